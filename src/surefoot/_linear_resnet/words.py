"""What reports and screens say of deep linear ResNets."""

from __future__ import annotations

from .._core.minibatch_words import SYMBOLS as OF_BATCHES
from .._core.words import Words

WORDS = Words(
    advised={
        r"the modified identity with a sufficient alpha": r"--transform modified-identity --alpha sufficient",
        r"the modified identity with a larger alpha": r"--transform modified-identity with a larger --alpha",
        r"a larger delta": r"a larger --delta",
        r"a larger batch": r"a larger --batch",
        r"train first, with sf.descend, and certify there": r"train first, without --batch",
        r"project the targets onto what X can fit, Y = X @ torch\.linalg\.lstsq\(X, Y\)\.solution": r"use --project",
    },
    symbols={
        "initial_gap": ("gap₀", "loss minus optimal value at the initial weights"),
        "pl_constant": (
            "μ",
            "Polyak-Łojasiewicz constant on the ball: the squared gradient is at least 2 μ times the gap",
        ),
        "gauss_newton": (
            "Σ z²",
            "curvature on the ball through the network's Jacobian: its squared norm, summed by layers",
        ),
        "bilinear": ("λ_max(M)", "curvature on the ball from pairs of layers, per unit of the residual's norm"),
        "gamma": ("γ", "steps are at most γ/K; 1 gives the best rate"),
        "radius": ("ϱ", "radius of the ball around the weights for which the constants hold (0: none found)"),
        "required_radius": ("ϱ_min", "length that no path of gradient descent exceeds; it must fit into the ball"),
        "smoothness": ("K₀", "Σ z² + sqrt(2 gap₀) λ_max(M): smoothness of the loss along the first step"),
        "norm_A": ("‖A‖", "largest singular value of the input transformation"),
        "norm_B": ("‖B‖", "largest singular value of the output transformation"),
        "sigma_min_A": ("σ_min(A)", "smallest singular value of A"),
        "sigma_min_B": ("σ_min(B)", "smallest singular value of B"),
        "norm_X": ("‖X‖", "largest singular value of the data"),
        "sigma_min_X": ("σ_r(X)", "smallest positive singular value of the data"),
        "weight_norm": ("‖W‖", "norm of all layers' weights; the theorem starts at zero"),
        "initial_loss": ("ℓ₀", "loss at the initial weights, optimal value included"),
        "initial_step": ("η", "the constant step"),
        "eta": ("η", "the constant step, for gradients of a batch scaled by samples over its size"),
        "newton_step": ("d", "length of the Newton step from these weights to an exact fit of the linearised residual"),
        "sigma_min_J": ("σ₀", "smallest singular value of the Jacobian of the residual at these weights"),
        "lipschitz_J": ("Λ", "the Jacobian changes at most so many times as much as the weights on the ball"),
        "ball": ("ρ", "radius of the ball around the weights in which all iterates stay"),
        **OF_BATCHES,
    },
    problems={"fitted": "squared loss of rows that can be fitted"},
    engines={
        "subspace": "the weights in the subspace that gradient descent can reach; the same iterates",
        "minibatch": "the weights in the subspace that descent can reach, on a batch of the rows at every step",
    },
)
