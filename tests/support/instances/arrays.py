"""Seeded matrices with given difficulties, shared by the families of all systems."""

from __future__ import annotations

import torch
from draws import normal
from torch import Tensor

DOUBLE = torch.float64


def with_values(rows: int, columns: int, values: list[float], seed: int) -> Tensor:
    """Random singular vectors and these singular values, up to rounding."""
    left = torch.linalg.qr(normal(rows, len(values), seed=seed))[0]
    right = torch.linalg.qr(normal(columns, len(values), seed=seed + 1000))[0]
    return left @ (torch.tensor(values, dtype=DOUBLE)[:, None] * right.T)


def graded(rows: int, columns: int, ratio: float, seed: int) -> Tensor:
    """Gaussian entries, each column ``ratio`` times as large as the one before."""
    return normal(rows, columns, seed=seed) * ratio ** torch.arange(columns, dtype=DOUBLE)
