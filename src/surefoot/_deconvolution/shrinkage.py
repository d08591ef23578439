"""The proximal map of |w|ᵖ, exact for every p in [1/2, 1], from one table for all weights."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

ENTRIES = 4096
"""Of the table: its nearest entry is right to about 1e-4, and each Newton step squares that."""
NEWTON = {torch.float32: 1, torch.float64: 2}


class _Table(NamedTuple):
    """Of u(a) = argmin |u|ᵖ + (u - a)²/2 for a > 0.

    Attributes:
        jump: the least u(a) that is not 0.
        threshold: the a at which u jumps from 0 to there.
        ratios: u(a)/a at threshold/a = (i + ½)/ENTRIES.
    """

    jump: float
    threshold: float
    ratios: Tensor


@lru_cache
def _table(power: float, dtype: torch.dtype, device: torch.device) -> _Table:
    # at the jump both minima are equal: uᵖ + (u - a)²/2 = a²/2 with p uᵖ⁻¹ + u = a, so that u²⁻ᵖ = 2(1 - p)
    jump = (2.0 * (1.0 - power)) ** (1.0 / (2.0 - power))
    threshold = jump + power * jump ** (power - 1.0)
    a = threshold * ENTRIES / (torch.arange(ENTRIES, dtype=torch.float64) + 0.5)
    u = a.clone()
    for _ in range(12):  # from the right of a convex function's root Newton's method descends to it
        u = _newton(u, a, power)
    return _Table(jump, threshold, (u / a).to(dtype=dtype, device=device))


def _newton(u: Tensor, a: Tensor, power: float) -> Tensor:
    """A Newton step for u + p uᵖ⁻¹ = a, u > 0."""
    curvature = power * u.pow(power - 2.0)
    return u - (u + u * curvature - a) / (1.0 - (1.0 - power) * curvature)


def shrink(v: Tensor, power: float, beta: float) -> Tensor:
    """argmin over w of |w|ᵖ + β/2 (w - v)², entry by entry, to rounding; v float32 or float64, β > 0, p in [1/2, 1].

    With w = β^(-1/(2 - p)) u and v = β^(-1/(2 - p)) a both terms scale alike, so that u(a) is one function for all β; Krishnan
    and Fergus (Fast image deconvolution using hyper-Laplacian priors, NIPS 2009) tabulate one for each β. At its jump 0 is taken.
    """
    if power == 1.0:
        return v.sign() * (v.abs() - 1.0 / beta).clamp_(min=0.0)
    scale = beta ** (1.0 / (2.0 - power))
    jump, threshold, ratios = _table(power, v.dtype, v.device)
    a = v.abs().mul_(scale)
    kept = a > threshold
    a.clamp_(min=threshold)
    # entries that are not finite stay so, and must not leave the table
    entry = (threshold * ENTRIES / a).to(torch.int32).clamp_(0, ENTRIES - 1)
    u = ratios.index_select(0, entry.flatten()).view(a.shape).mul_(a).clamp_(min=jump)
    for _ in range(NEWTON[v.dtype]):
        u = _newton(u, a, power)
    return (u * kept).copysign_(v).div_(scale)
