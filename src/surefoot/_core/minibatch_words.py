"""What reports and screens say of the quantities of theorems about mini-batches."""

from __future__ import annotations

from collections.abc import Mapping

SYMBOLS: Mapping[str, tuple[str, str]] = {
    "batch": ("B", "samples of a mini-batch, drawn afresh at each step without replacement"),
    "delta": ("δ", "probability, over the batches, with which the bound may fail"),
    "stay_delta": ("δ₁", "the part of δ for leaving the ball; 0 where epochs see to that"),
    "growth": ("g", "how many times farther from the nearest fit than at first iterates may go"),
    "fraction": ("x", "what an epoch leaves, after the first, of the squared bound of that distance; 0 without epochs"),
    "epoch": (
        "T",
        "steps of an epoch, between two changes of the fit that distances are measured to; 1 without epochs",
    ),
    "fit_ball": ("2d", "radius of the ball in which the nearest fit is looked for"),
    "inner_ball": ("ρ₁", "radius of the ball of the nearest fits"),
    "batch_step": ("h", "step along the gradient of the loss summed over a batch: η times samples over B"),
    "gamma_batch": ("γ", "h times the square of β: below 2 no batch steps too far"),
    "alpha_mean": ("α'", "2 - hω: what a step in the mean gains"),
    "distance": ("R₀", "the nearest exact fit lies within this distance of these weights"),
    "reach": ("ΛgR₀", "by how much the Jacobian may change between an iterate and its nearest fit"),
    "strength": ("s", "the least by which the residual grows with the distance to the nearest fit"),
    "mean_decrease": ("c", "part of the squared distance to the fits that a step takes in the mean, at least"),
    "sure_distance": (
        "(1+g)R₀",
        "whatever the batches, the first T iterates lie within this distance of these weights",
    ),
    "sure_gap": ("½(bgR₀)²", "whatever the batches, the first T iterates have gaps of at most this"),
    "lipschitz_fit": (
        "Λ(2d)",
        "the Jacobian changes at most so many times as much as the weights where the fit is looked for",
    ),
    "norm_J_ball": ("b", "largest singular value of the Jacobian on the ball"),
    "lipschitz_batch": ("Λ_B", "the same as Λ, of the rows of any one batch"),
    "norm_batch": ("β", "largest singular value of the rows of any one batch of the Jacobian, on the ball"),
    "second_moment": ("ω", "what the square of a batch's gradient is at most in the mean, on the ball"),
    "sigma_ball": ("σ(ρ)", "smallest singular value of the Jacobian on the ball"),
    "sigma_inner": ("σ₁", "the same on the ball of the nearest fits"),
}
"""Of those that only these theorems have, and of the bound b that others share."""
