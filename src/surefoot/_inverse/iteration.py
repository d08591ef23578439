"""The iteration of the layers on a batch of matrices, with a stop for each matrix at convergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._linalg import matrix_polynomial

FLOOR = 8.0
"""A residual of at most this many times ε‖A‖_F‖X‖_F has the size that rounding gives it."""
STAGNATION = 0.5
"""A layer that does not lower such a residual to this fraction only moves rounding errors."""
NOISE = 0.25
"""Where ε‖A‖_F‖X‖_F exceeds it, I - AX is rounding: the matrix is too ill-conditioned for this precision."""
PROJECTOR = 0.1
"""What has converged satisfies XAX = X to this part of X."""


@dataclass(frozen=True)
class Iterated:
    """X of every matrix at the layer where it stopped.

    Attributes:
        X: (..., n, m).
        layers: (...), layers applied to it.
        rank: (...), the trace of AX where it converged, m elsewhere.
        residual: (...), ‖AXA - A‖_F/‖A‖_F, 0 for A = 0.
        converged: (...), whether the residual has the size that rounding gives an X of this size.
    """

    X: Tensor
    layers: Tensor
    rank: Tensor
    residual: Tensor
    converged: Tensor


def layer(A: Tensor, X: Tensor, row: Sequence[Tensor | float]) -> Tensor:
    """X Σ_l c_l (I - AX)^l, the paper's equation (3); A (..., m, n) with m ≤ n, X (..., n, m)."""
    return _applied(X, _residual_matrix(A, X), row)


def unrolled(A: Tensor, X: Tensor, C: Tensor) -> list[Tensor]:
    """X_1 … X_K, differentiable in A, X and C (K, L); no stop."""
    iterates: list[Tensor] = []
    for row in C.to(A.dtype):
        X = layer(A, X, row.unbind())
        iterates.append(X)
    return iterates


def stopped(A: Tensor, X: Tensor, C: Sequence[Sequence[float]]) -> Iterated:
    """The layers, each matrix until its residual has the size of rounding.

    Rounding in the null spaces on both sides of A grows by the factor Σ_l C_kl in every layer (docs/theorems/inverse.md,
    Proposition 7), so a converged matrix is left alone, and what has grown until then is removed at the end.

    Args:
        A, X: as for ``layer``, without gradient.
        C: numbers.
    """
    size = torch.linalg.matrix_norm(A)
    E = _residual_matrix(A, X)
    residual, floor = _measure(A, X, E, size)
    layers = torch.zeros(A.shape[:-2], dtype=torch.int64, device=A.device)
    settled = residual <= floor
    active = ~settled
    for row in C:
        if not bool(active.any()):
            break
        tried = _applied(X, E, row)
        E_tried = _residual_matrix(A, tried)
        new, new_floor = _measure(A, tried, E_tried, size)
        # X moves by its error, and the next error is a power of that: small singular values that are still on their way
        # show in X long before they show in the residual
        move, reached = torch.linalg.matrix_norm(tried - X), torch.linalg.matrix_norm(tried)
        moved = move <= _small_move(A, len(row)) * reached
        noise = moved & (residual <= FLOOR * floor) & ~(new < STAGNATION * residual)
        # a move beyond rounding is the last correction of a small singular value, which the residual does not show
        correction = move > FLOOR * floor * reached
        taken = active & (~noise | correction) & (new_floor <= NOISE)
        settled = torch.where(active, moved & (noise | taken), settled)
        if bool(taken.all()):
            X, E, residual, floor = tried, E_tried, new, new_floor
        else:
            X = torch.where(taken[..., None, None], tried, X)
            E = torch.where(taken[..., None, None], E_tried, E)
            residual, floor = torch.where(taken, new, residual), torch.where(taken, new_floor, floor)
        layers = layers + taken
        active = taken & ~noise & ~(moved & (residual <= floor))
    excess = X @ E
    # XAX = X: no singular value is half inverted
    projects = torch.linalg.matrix_norm(excess) <= PROJECTOR * torch.linalg.matrix_norm(X)
    converged = settled & projects & (residual <= FLOOR * floor)
    rank = torch.where(converged, (A.shape[-2] - _trace(E)).round(), A.shape[-2]).to(torch.int64)
    deficient = converged & (rank < A.shape[-2])
    if bool(deficient.any()):
        # XAX has no part in the null spaces on both sides, and twice the (tiny) error elsewhere
        X = torch.where(deficient[..., None, None], X - excess, X)
    return Iterated(X, layers, rank, residual, converged)


def _residual_matrix(A: Tensor, X: Tensor) -> Tensor:
    """I - AX."""
    return torch.eye(A.shape[-2], dtype=A.dtype, device=A.device) - A @ X


def _small_move(A: Tensor, terms: int) -> float:
    """The relative move of X after which the error of a layer of L terms, of order L, is below ε."""
    return torch.finfo(A.dtype).eps ** (1.0 / min(terms, 3)) if terms > 1 else 0.0


def _trace(E: Tensor) -> Tensor:
    return E.diagonal(dim1=-2, dim2=-1).sum(-1).real


def _applied(X: Tensor, E: Tensor, row: Sequence[Tensor | float]) -> Tensor:
    return row[0] * X if len(row) == 1 else X @ matrix_polynomial.evaluate(row, E)


def _measure(A: Tensor, X: Tensor, E: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """‖EA‖_F/‖A‖_F = ‖AXA - A‖_F/‖A‖_F, and ε‖A‖_F‖X‖_F."""
    scale = torch.where(size > 0.0, size, 1.0)
    eps = torch.finfo(A.dtype).eps
    return torch.linalg.matrix_norm(E @ A) / scale, eps * size * torch.linalg.matrix_norm(X)
