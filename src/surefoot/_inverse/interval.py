"""The problem of a certificate: an interval of the nonzero σ²/c0."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from surefoot_check.inverse.enclosures import KIND, LARGEST

from .._core.losses import Loss


def as_interval(value: Any) -> tuple[float, float]:
    """(l, u) as floats.

    Raises:
        TypeError: not two real numbers.
        ValueError: not 0 < l < u ≤ 1e30.
    """
    try:
        lower, upper = value
    except (TypeError, ValueError):
        raise TypeError(f"interval is {value!r}; pass two numbers (l, u), bounds of sigma^2/c0") from None
    for end in (lower, upper):
        if isinstance(end, bool) or not isinstance(end, Real):
            raise TypeError(f"interval is {value!r}; pass two numbers (l, u), bounds of sigma^2/c0")
    lower, upper = float(lower), float(upper)
    if not 0.0 < lower < upper <= LARGEST:
        raise ValueError(f"interval is ({lower}, {upper}); it must be 0 < l < u <= {LARGEST:.0e}, bounds of sigma^2/c0")
    return lower, upper


class Spectrum(Loss):
    """All matrices whose nonzero squared singular values lie in c0 [lower, upper], as the core sees them."""

    kind = KIND
    optimal_value = 0.0

    def __init__(self, interval: Any) -> None:
        self.lower, self.upper = as_interval(interval)

    def arrays(self) -> dict[str, Tensor]:
        return {"interval": torch.tensor([self.lower, self.upper], dtype=torch.float64)}
