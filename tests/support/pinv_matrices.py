"""Matrices to invert, and relative errors, for the tests of ``surefoot.linalg``."""

from __future__ import annotations

import torch
from pinv_reference import true_pinv


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def with_singular_values(
    values: list[float], m: int, n: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> torch.Tensor:
    k = len(values)
    U = torch.linalg.qr(draw(m, k, seed=seed))[0]
    V = torch.linalg.qr(draw(n, k, seed=seed + 1))[0]
    return ((U * torch.tensor(values, dtype=torch.float64)) @ V.mT).to(dtype)


def of_rank_three(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """A 15×15 matrix of integers of rank 3, and its pseudoinverse from the factors."""
    left, right = torch.randint(-4, 5, (2, 15, 3), generator=torch.Generator().manual_seed(3)).double()
    true = true_pinv(right).mT @ true_pinv(left)
    return (left @ right.mT).to(dtype), true


def relative(X: torch.Tensor, true: torch.Tensor) -> float:
    wide = torch.complex128 if true.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(X.detach().to(wide) - true) / torch.linalg.vector_norm(true))


def relative_each(X: torch.Tensor, true: torch.Tensor) -> float:
    pairs = zip(X.reshape(-1, *X.shape[-2:]), true.reshape(-1, *true.shape[-2:]), strict=True)
    return max(relative(x, t) for x, t in pairs)
