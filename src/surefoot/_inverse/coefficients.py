"""Coefficients C (K, L) of the layers X_{k+1} = X_k Σ_{l<L} C_kl (I - A X_k)^l."""

from __future__ import annotations

from itertools import islice

import torch
from torch import Tensor

from surefoot_check.inverse.constants import MAX_LAYERS

from .._core.validate import integer
from .._linalg import chebyshev as optimal

MAX_TERMS = 64


def sizes(layers: object, terms: object) -> tuple[int, int]:
    """K and L, checked.

    Raises:
        ValueError: not integers from 1 to 64.
    """
    counts = integer("layers", layers, 1), integer("terms", terms, 1)
    for name, value, most in zip(("layers", "terms"), counts, (MAX_LAYERS, MAX_TERMS), strict=True):
        if value > most:
            raise ValueError(f"{name} is {value}; at most {most} are supported, and {most} are far more than converge")
    return counts


def ones(layers: int, terms: int) -> Tensor:
    """All ones, float64: the residual is raised to the power L by every layer."""
    return torch.ones(layers, terms, dtype=torch.float64)


def chebyshev(layers: int, terms: int, lower: float, upper: float) -> Tensor:
    """The coefficients with the smallest worst residual on [lower, upper] of σ²/c0, 1/T_{L^K}((u+l)/(u-l)); float64.

    Source: docs/theorems/inverse.md, Proposition 4.

    Args:
        layers, terms: K ≥ 1 and L ≥ 1.
        lower, upper: 0 < lower < upper.
    """
    rows = [row for row, _ in islice(optimal.layers(terms, lower, upper), layers)]
    return torch.tensor(rows, dtype=torch.float64)
