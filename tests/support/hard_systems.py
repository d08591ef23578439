"""Matrices on which elimination, its bounds, or the range of the numbers fail first, for the tests of ``surefoot.linalg``."""

from __future__ import annotations

import torch
from pinv_matrices import draw, with_singular_values


def hilbert(n: int) -> torch.Tensor:
    index = torch.arange(n, dtype=torch.float64)
    return 1.0 / (index[:, None] + index + 1.0)


def kahan(n: int, cosine: float = 0.8) -> torch.Tensor:
    sine = (1.0 - cosine**2) ** 0.5
    rows = sine ** torch.arange(n, dtype=torch.float64)
    return rows[:, None] * (torch.eye(n).double() - cosine * torch.triu(torch.ones(n, n).double(), 1))


def growing(n: int) -> torch.Tensor:
    """Wilkinson's matrix, whose pivots grow like 2ⁿ."""
    A = torch.eye(n, dtype=torch.float64) - torch.tril(torch.ones(n, n, dtype=torch.float64), -1)
    A[:, -1] = 1.0
    return A


def graded(n: int, decades: float, seed: int = 0) -> torch.Tensor:
    scale = torch.logspace(0, -decades, n, dtype=torch.float64)
    return scale[:, None] * draw(n, n, seed=seed) * scale.flip(0)


def hard_squares(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Square matrices by name, rounded to ``dtype``; scales of 1e±150 only where it has them."""
    small = 1e-6 if dtype in (torch.float32, torch.complex64) else 1e-14
    result = {
        "hilbert": hilbert(7 if small < 1e-10 else 4),
        "hilbert beyond": hilbert(13),
        "kahan": kahan(12),
        "growth": growing(20),
        "graded": graded(8, 4.0),
        "graded more": graded(8, 9.0),
        "nearly singular": with_singular_values([1.0] * 5 + [small], 6, 6),
        "nearly singular beyond": with_singular_values([1.0] * 5 + [small * 1e-3], 6, 6),
        "two close rows": draw(6, 6)[[0, 1, 2, 3, 4, 4]] + small * draw(6, 6, seed=1),
        "permutation": torch.eye(5, dtype=torch.float64)[[3, 0, 4, 1, 2]],
        "one by one": torch.full((1, 1), -3.0, dtype=torch.float64),
        "random": draw(21, 21, seed=2),
    }
    if small < 1e-10:
        result["huge"] = 1e150 * draw(5, 5, seed=3)
        result["tiny"] = 1e-150 * draw(5, 5, seed=4)
        result["of any size"] = 10.0 ** (40.0 * draw(5, 5, seed=5).clamp(-1, 1)) * draw(5, 5, seed=6)
    return {name: (A * (0.8 - 0.6j) if dtype.is_complex else A).to(dtype) for name, A in result.items()}
