"""Seeded splits into train and test rows."""

from __future__ import annotations

import torch
from torch import Tensor


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
