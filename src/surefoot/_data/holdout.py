"""Seeded splits into train and test rows."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import DataError


def require_fraction(fraction: float) -> None:
    """Raise ``DataError`` for what is no fraction of test rows."""
    if isinstance(fraction, bool) or not 0 <= fraction < 1:
        raise DataError(f"test_fraction is {fraction!r}; expected a number in [0, 1)")


def holdout(rows: int, fraction: float, seed: int, labels: Tensor | None = None) -> Tensor | None:
    """A bool mask (N,), True = test, of round(fraction N) random rows, or None for fraction 0.

    At least one row stays a train row. With `labels` (N,) the rounding is done class by class, so that the
    class frequencies of both parts agree (a stratified split).
    """
    if fraction == 0:
        return None
    generator = torch.Generator().manual_seed(seed)
    test = torch.zeros(rows, dtype=torch.bool)
    groups = [torch.arange(rows)] if labels is None else [(labels == c).nonzero()[:, 0] for c in labels.unique()]
    for group in groups:
        size = len(group)
        count = min(round(fraction * size), size - 1)
        test[group[torch.randperm(size, generator=generator)[:count]]] = True
    return test
