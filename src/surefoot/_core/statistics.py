"""Data reduced once to the sufficient statistics of least squares; rows never sit in memory together.

½‖XW - Y‖²_F depends on X (N, n) and Y (N, m) only through the triangular factor of [X Y], which is updated block by block:
R ← qr([R; block]). For a memory-mapped file only one block at a time is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .validate import as_tensor, finite

BLOCK_BYTES = 64 << 20
"""Size of one block of rows in float64."""


@dataclass(frozen=True)
class LeastSquaresStatistics:
    """½‖XW - Y‖² = ½‖design Bᵀ W - target‖² + offset, B the basis (identity where ``None``).

    design (r, r) has full rank r; target (r, m); offset ≥ 0; basis (n, r) has orthonormal columns and is present where the
    rank r of X is below n; rows N and columns n are those of X.
    """

    design: Tensor
    target: Tensor
    offset: float
    basis: Tensor | None
    rows: int
    columns: int


def row_blocks(X: Tensor | np.ndarray, Y: Tensor | np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """Consecutive float64 blocks of rows of X (N, n) and Y (N, m); arrays on disk are read block by block."""
    columns = X.shape[1] + Y.shape[1]
    block = max(1, BLOCK_BYTES // (8 * columns))
    for start in range(0, X.shape[0], block):
        parts: list[Tensor] = []
        for array in (X, Y):
            rows = array[start : start + block]
            # on disk any real dtype will do: converting a copy of the file first is what blocks are there to avoid
            parts.append(
                torch.from_numpy(np.array(rows, np.float64)) if isinstance(rows, np.ndarray) else rows.detach()
            )
        yield parts[0], parts[1]


def reduce_blocks(blocks: Iterable[tuple[Tensor, Tensor]]) -> LeastSquaresStatistics:
    """Statistics from row blocks (X_i (N_i, n), Y_i (N_i, m)), each read once.

    Raises:
        TypeError: a dtype other than float64 or float32.
        ValueError: no rows, blocks that do not fit together, NaN or infinity (its row and column are named), X = 0.
    """
    R: Tensor | None = None
    rows = n = 0
    only: tuple[Tensor, Tensor] | None = None
    for block_x, block_y in blocks:
        x, y = as_tensor("X", block_x), as_tensor("Y", block_y)
        y = y[:, None] if y.ndim == 1 else y
        if x.ndim != 2 or y.ndim != 2 or x.shape[0] != y.shape[0]:
            raise ValueError(
                f"X has shape {tuple(x.shape)} and Y {tuple(y.shape)}; they must be (N, n) and (N, m) with the same N"
            )
        finite("X", x, rows)
        finite("Y", y, rows)
        x, y = x.double(), y.double()
        both = torch.cat([x, y], 1)
        if R is None:
            n = x.shape[1]
            only = (x, y) if x.shape[0] <= n else None
        elif both.shape[1] != R.shape[1] or x.shape[1] != n:
            raise ValueError(f"a block has {x.shape[1]} + {y.shape[1]} columns; the first had {n} + {R.shape[1] - n}")
        else:
            only, both = None, torch.cat([R, both])
        rows += x.shape[0]
        R = torch.linalg.qr(both, mode="r")[1]
    if R is None or rows == 0 or n == 0 or R.shape[1] == n:
        raise ValueError("X is empty; pass at least one row and one column of X and Y")
    if only is not None:  # no more rows than columns: nothing to compress, keep the numbers as they are
        design, target, offset = only[0], only[1], 0.0
    else:
        design, target = R[:n, :n], R[:n, n:]
        offset = 0.5 * float((R[n:, n:] ** 2).sum())
    return _full_rank(design, target, offset, rows)


def _full_rank(design: Tensor, target: Tensor, offset: float, rows: int) -> LeastSquaresStatistics:
    """Drop exactly zero columns; where the numerical rank is still deficient, rotate to it (Theorem 7 of the proofs)."""
    n = design.shape[1]
    used = (design != 0).any(0)
    kept = int(used.sum())
    if kept == 0:
        raise ValueError("X is zero; there is nothing to learn from it")
    design = design[:, used]
    # an SVD of the triangle is as good as one of X: R has the singular values of X up to rounding
    U, s, Vh = torch.linalg.svd(design, full_matrices=False)
    rank = int((s > max(rows, n) * torch.finfo(torch.float64).eps * s[0]).sum())
    basis = None
    if rank < kept:
        rotated = U[:, :rank].T @ target
        if rank < len(target):  # otherwise the rows are independent and the data is interpolated: no rounding noise
            offset += 0.5 * float(((target - U[:, :rank] @ rotated) ** 2).sum())
        design, target, inner = torch.diag(s[:rank]), rotated, Vh[:rank].T
    else:
        inner = torch.eye(kept, dtype=design.dtype, device=design.device)
        if design.shape[0] != kept:  # zero columns were dropped from a triangle
            Q, design = torch.linalg.qr(design)
            rotated = Q.T @ target
            offset += 0.5 * float(((target - Q @ rotated) ** 2).sum())
            target = rotated
    if rank < n:
        basis = torch.zeros(n, rank, dtype=design.dtype, device=design.device)
        basis[used] = inner
    return LeastSquaresStatistics(design.contiguous(), target.contiguous(), offset, basis, rows, n)
