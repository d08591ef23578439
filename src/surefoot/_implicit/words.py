"""What reports and screens say of implicit ReLU networks."""

from __future__ import annotations

from surefoot_check.implicit import exact_fit, local

from .._core.near_a_fit.words import SYMBOLS
from .._core.words import Words

WORDS = Words(
    advised={
        r"sf\.nn\.ImplicitReLU\.certifiable\(X, y, width\) chooses their scale, gamma and the step": (
            r"without --gamma and --weights their scale, gamma and the step are chosen"
        ),
        r"use a smaller gamma, such as ([0-9.e+-]+)": r"use --gamma \1 or less",
        r"draw (?:A|W)\b[^;]*?, such as torch\.randn\((?:d|m), m\)(?: / m\*\*0\.5| / \(2 \* m\*\*0\.5\))": (
            r"draw them anew, by another --seed or --gamma"
        ),
    },
    symbols={
        **SYMBOLS,
        "initial_gap": ("½‖r₀‖²", "loss at these weights"),
        "gamma": ("γ", "weight of the fixed-point equation"),
        "norm_X": ("‖X‖", "largest singular value of the inputs"),
        "frobenius_X": ("‖X‖_F", "Frobenius norm of the inputs"),
        "norm_A": ("‖A₀‖", "largest singular value of A at the start"),
        "norm_W": ("‖W₀‖", "largest singular value of W at the start"),
        "norm_b": ("‖b₀‖", "largest singular value of b at the start"),
        "sigma_min_Z": ("α", "smallest singular value of the features Z₀, the equilibrium on all samples"),
        "norm_Z": ("z₀", "largest singular value of the features Z₀"),
        "kappa": (
            "κ",
            "how far the matrix whose spectrum is used may be from Z₀ Z₀ᵀ: errors of equilibrium and rounding",
        ),
        "node_min": ("σ²", "lower end of the spectrum of Z₀ Z₀ᵀ"),
        "node_max": ("z²", "upper end of the spectrum of Z₀ Z₀ᵀ"),
        "mass": (
            "w",
            "share of ‖r₀‖² at each node of the spectrum between σ² and z²: where in the spectrum the residual lies",
        ),
        "horizon": (
            "K",
            "iteration up to which the bound follows the spectrum; from there on the smallest eigenvalue rules",
        ),
        "tau": ("τ", "error that the output step may have, per unit of η‖r‖"),
        "delta": ("δ", "hidden steps may be 1 + δ times the bound of the gradient, for rounding"),
        "eta": ("η", "the constant step; of implicit/local the floor step"),
        "f": ("f", "the features drift by at most fσ"),
        "rho": ("ρ", "A drifts by at most ρ"),
        "B": ("B", "largest norm of b during training"),
        "q": ("q", "γ(‖A₀‖ + ρ): contraction factor of the fixed-point map during training"),
        "P": ("P", "bound of the sum of all η‖r_k‖ on frozen features"),
        "nu": ("ν", "bound of the path of b on frozen features"),
        "sigma": ("σ", "smallest singular value of the features that the theorem uses"),
        "s": ("s", "smallest singular value of the features during training"),
        "z": ("z", "largest singular value of the features during training"),
        "c": ("c", "a step moves the features by at most η c ‖b‖ ‖r‖"),
        "descent": ("m", "guaranteed rate: the residual falls by 1 − ηm a step"),
        "epsilon": ("ε", "perturbation of Z Zᵀ by drift and errors; it must stay below σ²"),
        "S": ("S", "bound of the sum of all η‖r_k‖"),
        "C1": ("C₁", "W may move by at most C₁"),
        "C2": ("C₂", "A may move by at most C₂"),
        "C3": ("C₃", "b may move by at most C₃"),
        "l1": ("λ₁", "‖W₀‖ + C₁"),
        "l2": ("λ₂", "‖A₀‖ + C₂"),
        "l3": ("λ₃", "‖b₀‖ + C₃"),
        "g0": ("γ₀", "γ λ₂: contraction factor of the fixed-point map during training"),
        "Q": ("Q", "1 + (γ₀/(1−γ₀))² (λ₁/λ₂)²"),
    },
    problems={"samples": "squared loss"},
    engines={"weights": "the weights themselves"},
    points={local.THEOREM.id: "an exact fit", exact_fit.THEOREM.id: "an exact fit"},
    targets=(1e-2, 1e-3, 1e-6),
)
