"""What reports and screens say of two-layer linear networks."""

from __future__ import annotations

from .._core.words import Words

WORDS = Words(
    advised={
        r"start from sf\.nn\.TwoLayerLinear\.certifiable\(loss, seed=0\)": r"use --start certifiable",
        r"train it as torch\.nn\.Sequential with weight decay and certify it by feed-forward/minimum": (
            r"take `surefoot train feed-forward --loss mse`"
        ),
        r"draw W1 and W2 independently \(Gaussian\)": r"use --start gaussian",
    },
    symbols={
        "smoothness": ("K", "smoothness of the loss: its gradient changes at most K times as much as its argument"),
        "strong_convexity": ("μ", "strong convexity of the loss (or its Polyak-Łojasiewicz constant)"),
        "initial_gap": ("L₀", "loss minus optimal value at the initial weights"),
        "initial_distance": ("‖W₀ − W*‖", "Frobenius distance of the initial map to the minimiser"),
        "optimum_sigma_min": ("σ_min(W*)", "smallest singular value of the minimiser"),
        "optimum_sigma_max": ("‖W*‖", "largest singular value of the minimiser"),
        "sigma_min_squared": (
            "s₋",
            "λ_min(W1 W1ᵀ) + λ_min(W2 W2ᵀ) at the start: how strongly the weights pass on the gradient",
        ),
        "sigma_max_squared": ("s₊", "‖W1‖² + ‖W2‖² at the start"),
        "lambda_plus": ("λ₊", "largest eigenvalue of the imbalance D = W1ᵀW1 − W2ᵀW2"),
        "lambda_minus": ("λ₋", "largest eigenvalue of −D"),
        "lambda_n": ("λ_n(D)", "n-th largest eigenvalue of D: what the imbalance alone gives W1"),
        "lambda_m": ("λ_m(−D)", "m-th largest eigenvalue of −D: what the imbalance alone gives W2"),
        "radius": ("r", "the map stays within this distance of the minimiser"),
        "beta1": ("β₁", "margin: smallest singular value of the map that training cannot go below"),
        "beta2": ("β₂", "largest norm of the map during training"),
        "alpha1": (
            "α₁",
            "lower bound of s₋ = λ_min(W1 W1ᵀ) + λ_min(W2 W2ᵀ) from imbalance and margin; the rate is proportional to it",
        ),
        "alpha2": ("α₂", "upper bound of s₊ = ‖W1‖² + ‖W2‖² from imbalance and margin"),
        "guaranteed_sigma": ("(1 − θ) α₁", "lower bound of s₋ during the whole run"),
        "budget": ("θ", "share of α₁ that the drift of the imbalance may use up"),
        "decrease": ("c", "share of the first-order decrease that every step must achieve"),
        "scale": ("s²", "unit of the weights; they are s times orthonormal rows if [W1; W2][W1; W2]ᵀ = s² I"),
        "step": ("η_t", "the prescribed step of iteration t"),
        "bound": ("L̂_t", "largest possible gap after t prescribed steps"),
        "cycle": ("η_{T+t}", "the steps that are repeated for ever after those"),
        "cycle_factor": ("c²", "factor of the largest possible gap in every repetition"),
        "c": ("c", "exponent of the theorem: the imbalance may change by exp(η₀^c)"),
        "d": ("d", "exponent of the theorem: steps may grow by 1 + η₀^d every two iterations"),
        "e1": ("e1", "limit of the first step from the smoothness along the path"),
        "e2": ("e2", "limit of the first step from the change of the imbalance"),
        "e3": ("e3", "limit of the first step from a positive rate"),
        "eta_max": ("η_max", "largest admissible first step: the least of e1, e2, e3"),
        "initial_step": ("η₀", "first step"),
        "mu_bar": ("μ̄", "Polyak-Łojasiewicz constant that holds along the path"),
        "K_bar0": ("K̄₀", "smoothness that holds along the first step"),
        "rho_bar": ("ρ̄", "guaranteed factor of the gap in one iteration"),
        "delta": ("Δ", "ρ̄ times the growth of the squared step; it must stay below 1"),
    },
    engines={
        "gram": "small matrices W1 W1ᵀ, W1 W2ᵀ, W2 W2ᵀ in place of the weights; the same iterates",
        "weights": "the weights themselves",
    },
)
