"""The start of the unrolled network: few stages of half-quadratic splitting, for many noise levels at once."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operators import Blur
from ..problem import extended
from ..shrinkage import shrink
from ..wiener import laplacian

POWER = 2.0 / 3.0
BETAS = (3.0, 12.0, 48.0, 192.0)
"""Of the stages: further apart than those of ``HyperLaplacian``, as the layers go on from there."""
PENALTY, PENALTY_POWER = 4.5e-4, 1.4
"""λ at a noise level of 0.01, and its power of that level."""
ROUNDS = 2
"""Of each stage where BᵀB is only majorized: what lies beyond the border comes from the last of them."""


def half_quadratic_start(observed: Tensor, blur: Blur, noise: Tensor) -> Tensor:
    """A rough argmin of ½‖Bz - y‖² + λ‖∇z‖ₚᵖ, a latent image (..., H, W): see ``half_quadratic``; no values are recorded.

    Args:
        observed: y (..., h, w).
        blur: B.
        noise: its standard deviation, one for all or one for each image, (..., 1, 1).
    """
    smoothness = laplacian(blur.domain, observed)
    z = extended(observed, blur)
    penalty = PENALTY * (noise / 0.01) ** PENALTY_POWER
    for beta in BETAS:
        inverse = 1.0 / (blur.majorizer + penalty * beta * smoothness)
        for _ in range(_rounds(blur)):
            # the z-step for the majorizer, as a correction of z
            pull = torch.zeros_like(z)
            for axis in (-2, -1):
                slope = z.roll(-1, axis) - z
                rest = shrink(slope, POWER, beta) - slope
                pull += rest.roll(1, axis) - rest
            z = z + blur.filtered(inverse, blur.adjoint(observed - blur.forward(z)) + penalty * beta * pull)
    return z


def start_applications(blur: Blur) -> int:
    """Products with B, Bᵀ or an inverse filter that ``half_quadratic_start`` takes for each image."""
    return 3 * len(BETAS) * _rounds(blur)


def _rounds(blur: Blur) -> int:
    return 1 if blur.exact_majorizer else ROUNDS
