"""Which sector a coordinate is in (docs/theorems/layers.md, section 1)."""

from __future__ import annotations

import torch
from torch import Tensor


def angles(x: Tensor, v: Tensor) -> Tensor:
    """θ = |v|/(|x|+|v|) in [0, 1], or 2 less that where x and v have opposite signs; of the shape of x and v = ∇f/β.

    It is a pseudo-angle of the line through (x, v): no scale of the problem, and no sign of a coordinate, moves it.
    """
    size = x.abs() + v.abs()
    share = torch.where(size > 0.0, v.abs() / size, 0.0)
    return torch.where(x.sign() * v.sign() < 0.0, 2.0 - share, share)


def sectors_of(x: Tensor, v: Tensor, boundaries: Tensor) -> Tensor:
    """How many of the ``boundaries`` (K-1,) are at most θ, int64, of the shape of x and v."""
    return torch.searchsorted(boundaries, angles(x, v), right=True)


def even(sectors: int) -> Tensor:
    """Boundaries (K-1,) float64 of K sectors of equal width."""
    return 2.0 * torch.arange(1, sectors, dtype=torch.float64) / sectors
