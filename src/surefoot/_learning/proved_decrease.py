"""Theorem 5 with the constants of the steps themselves: what is guaranteed of iterates with a proved decrease."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

SLACK = 1.0 + 8.0 * torch.finfo(torch.float64).eps
"""More than the relative rounding of one step of the recursion."""


def guaranteed(first: Tensor, constants: Tensor, radius: Tensor) -> Tensor:
    """Upper bounds (T+1, N) float64 of F(x_t) - F*, from F(x_0) and what was proved of each step alone.

    Let F(x_{t+1}) ≤ F(x_t) - Q_t, Q_t the decrease of the model with the constant β_t, which need not be a Lipschitz constant:
    Q_t = max_y {⟨g, x_t - y⟩ - (β_t/2)‖y - x_t‖² + h(x_t) - h(y)} ≥ max_{0≤τ≤1} {τa - τ²β_tR²/2} for the gap a at x_t and any
    R ≥ ‖x_t - x*‖ (section 4, inequality (1) with τ along x* - x_t). So a falls to a - a²/(2β_tR²) at most if a ≤ β_tR², and to
    β_tR²/2 if not; both are less for a smaller a. With β_t ≤ β this is at most 2βR²/(t+3) for t ≥ 1.

    Args:
        first: F(x_0) - F* is at most this (N,).
        constants: β_t (T, N); 0 where the problem did not move.
        radius: R (N,).
    """
    # numpy, as the steps are many and short
    steps, scales = constants.double().numpy(), (constants.double() * radius.double().square()).numpy()
    bound = first.double().numpy()
    bounds = [bound]
    with np.errstate(all="ignore"):
        for step, scale in zip(steps, scales, strict=True):
            lower = np.where(bound <= scale, bound - bound * (bound / (2.0 * scale)), 0.5 * scale) * SLACK
            bound = np.where(step > 0.0, np.minimum(lower, bound), bound)
            bounds.append(bound)
    return torch.from_numpy(np.stack(bounds))
