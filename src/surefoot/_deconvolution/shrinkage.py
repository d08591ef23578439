"""The proximal map of |w|ᵖ, exact for every p in [1/2, 1], from one table for all weights."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import hardshrink, softshrink

ENTRIES = 4096
"""Of the table: its nearest entry is right to about 1e-4, and each Newton step squares that."""
NEWTON = {torch.float32: 1, torch.float64: 2}


class _Table(NamedTuple):
    """Of u(a) = argmin |u|ᵖ + (u - a)²/2 for a > 0.

    Attributes:
        threshold: the a at which u jumps from 0.
        ratios: u(a)/a at threshold/a = (i + ½)/ENTRIES.
    """

    threshold: float
    ratios: Tensor


def threshold(power: float) -> float:
    """The a up to which u = 0 minimises |u|ᵖ + (u - a)²/2.

    There both minima are equal: uᵖ + (u - a)²/2 = a²/2 with p uᵖ⁻¹ + u = a, so that u²⁻ᵖ = 2(1 - p).
    """
    if power == 1.0:
        return 1.0
    jump = (2.0 * (1.0 - power)) ** (1.0 / (2.0 - power))
    return jump + power * jump ** (power - 1.0)


@lru_cache
def _table(power: float, dtype: torch.dtype, device: torch.device) -> _Table:
    least = threshold(power)
    a = least * ENTRIES / (torch.arange(ENTRIES, dtype=torch.float64) + 0.5)
    u = a.clone()
    for _ in range(12):  # from the right of a convex function's root Newton's method descends to it
        u = _newton(u, a, power)
    return _Table(least, (u / a).to(dtype=dtype, device=device))


def _newton(u: Tensor, a: Tensor, power: float) -> Tensor:
    """A Newton step for u + p uᵖ⁻¹ = a, u > 0."""
    slope = u.pow(power - 2.0).mul_(power)
    right = (u * slope).mul_(power - 2.0).add_(a)
    return right.div_(slope.mul_(power - 1.0).add_(1.0))


def shrink(v: Tensor, power: float, beta: float | Tensor) -> Tensor:
    """argmin over w of |w|ᵖ + β/2 (w - v)², entry by entry, to rounding; p in [1/2, 1], β > 0 broadcasts against v.

    With w = β^(-1/(2 - p)) u and v = β^(-1/(2 - p)) a both terms scale alike, so that u(a) is one function for all β; Krishnan
    and Fergus (Fast image deconvolution using hyper-Laplacian priors, NIPS 2009) tabulate one for each β. At its jump 0 is taken.
    """
    return shrunk(v, power, beta)[0]


def shrunk(v: Tensor, power: float, beta: float | Tensor) -> tuple[Tensor, Tensor]:
    """w = ``shrink``, and |w|ᵖ."""
    if power == 1.0:
        w = softshrink(v * beta, 1.0).div_(beta)
        return w, w.abs()
    scale = beta ** (1.0 / (2.0 - power))
    least, ratios = _table(power, v.dtype, v.device)
    scaled = v * scale
    kept = hardshrink(scaled, least).sign_()
    a = scaled.abs_().clamp_(min=least)
    # entries that are not finite stay so, and must not leave the table
    entry = (least * ENTRIES / a).to(torch.int32).clamp_(0, ENTRIES - 1)
    u = ratios.index_select(0, entry.flatten()).view(a.shape).mul_(a)
    for _ in range(NEWTON[v.dtype]):
        u = _newton(u, a, power)
    penalty = u.pow(power).mul_(kept.abs()).div_(scale**power)  # u is nowhere 0, whose power is slow
    return u.mul_(kept).div_(scale), penalty
