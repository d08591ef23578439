"""Symbols and meanings of the quantities of the theorems on an exact fit nearby."""

SYMBOLS: dict[str, tuple[str, str]] = {
    "sigma_min_J": ("σ₀", "smallest singular value of the Jacobian of all outputs in all weights"),
    "norm_J": ("‖J₀‖", "largest singular value of the Jacobian at these weights"),
    "lipschitz_J": ("Λ", "the Jacobian changes at most Λ times as much as the weights, on the ball"),
    "kink_margin": (
        "m",
        "how often the change of a pre-activation on the ball fits into its distance to the nearest kink, at least",
    ),
    "ball": ("ρ", "radius of the ball of weights on which everything is bounded"),
    "newton_step": ("‖J⁺r‖", "norm of the Newton step at these weights"),
    "contraction": ("q", "the factor of the residual in a step of Newton's iteration with the first Jacobian"),
    "r0": ("r₀", "bound of the norm of the residual at these weights"),
    "sigma_star": ("σ*", "smallest singular value that the Jacobian keeps; the rate is proportional to its square"),
    "norm_J_ball": ("b", "largest singular value of the Jacobian where the run stays"),
    "radius": (
        "ρ*",
        "an exact fit, or the minimum, lies within this distance of these weights, and descent stays within it",
    ),
}
