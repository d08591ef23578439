"""Random draws that the problem generators share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core.validate import as_tensor, integer, nonnegative, positive_integer, real


def generator_of(seed: int) -> torch.Generator:
    """A generator on the CPU, so that a seed gives the same problems everywhere."""
    return torch.Generator().manual_seed(integer("seed", seed, 0))


def fraction(name: str, value: Any) -> float:
    """``value`` as a float in (0, 1]."""
    number = nonnegative(name, value)
    if not 0.0 < number <= 1.0:
        raise ValueError(f"{name} is {value!r}; it must lie in (0, 1]")
    return number


def matrices(count: int, rows: int, columns: int, generator: torch.Generator, *, unit_columns: bool) -> Tensor:
    """Gaussian (count, rows, columns) float64, its columns scaled to norm 1 or not."""
    sizes = [positive_integer(name, value) for name, value in (("count", count), ("rows", rows), ("columns", columns))]
    M = torch.randn(*sizes, generator=generator, dtype=torch.float64)
    return M / M.norm(dim=1, keepdim=True) if unit_columns else M


def spread(matrix: Any, targets: Any, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """M (N, b, d), one matrix seen N times, and Y (N, b): the columns of ``targets``, or ``count`` images of Gaussian x̂.

    Both in the dtype of the matrix, to which ``targets`` are rounded.
    """
    matrix = real("matrix", matrix, 2).to(as_tensor("matrix", matrix).dtype)  # single precision stays
    if targets is None:
        x = torch.randn(
            positive_integer("count", count), matrix.shape[1], generator=generator_of(seed), dtype=torch.float64
        )
        Y = x.to(matrix) @ matrix.T
    else:
        targets = as_tensor("targets", targets)
        Y = real("targets", targets[:, None] if targets.ndim == 1 else targets, 2).T.to(matrix)
        if Y.shape[1] != matrix.shape[0]:
            raise ValueError(
                f"matrix has {matrix.shape[0]} rows and targets {Y.shape[1]}; each column of targets needs one number per row"
            )
    return matrix.expand(len(Y), *matrix.shape), Y.contiguous()
