"""Data reduced once to the sufficient statistics of least squares; rows never sit in memory together.

½‖XW - Y‖²_F depends on X (N, n) and Y (N, m) only through the triangular factor of [X Y], which is updated block by block:
R ← qr([R; block]). For a memory-mapped file only one block at a time is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .validate import as_tensor, finite

BLOCK_BYTES = 64 << 20
"""Size of one block of rows in float64."""


@dataclass(frozen=True)
class Cut:
    """What a reduction to the numerical rank dropped; the certificate speaks of what is left.

    Attributes:
        directions: how many X has, its number of columns.
        kept: how many are left, the numerical rank.
        below: how many were dropped because their singular value, as computed, is at most ``tolerance``, which may be rounding
            and may be data. The others do not occur in X at all, and to drop them changes nothing.
        tolerance: max(N, n) eps times the largest singular value.
        largest_dropped, smallest_kept: singular values as computed; ``largest_dropped`` is 0 where ``below`` is.
        optimal_loss: the loss that W can no longer lower: the optimal value of the problem as given may be lower than that of the
            reduced one by this much, and a gap of the problem as given larger, where the dropped singular values are not 0.
    """

    directions: int
    kept: int
    below: int
    tolerance: float
    largest_dropped: float
    smallest_kept: float
    optimal_loss: float

    @property
    def text(self) -> str:
        """In one sentence or two."""
        absent = self.directions - self.kept - self.below
        parts = []
        if self.below:
            parts.append(
                f"{self.below} of {self.directions} directions of the data dropped, whose singular values are at most "
                f"{self.largest_dropped:.3g}, within the tolerance {self.tolerance:.3g} (smallest kept: "
                f"{self.smallest_kept:.3g}): unless they are exactly 0, the optimal value of the data as given is lower, and the "
                f"gap to it larger, by up to {self.optimal_loss:.6g}"
            )
        if absent:
            parts.append(
                f"{absent} of {self.directions} directions dropped that do not occur in the data, which changes nothing"
            )
        return "; ".join(parts)

    def to_dict(self) -> dict[str, float | str]:
        """In plain values, with the text."""
        return {**asdict(self), "text": self.text}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Cut:
        """From ``to_dict``; ``KeyError`` where something is missing."""
        return cls(**{field.name: record[field.name] for field in fields(cls)})


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
    cut: Cut | None = None
    """What was dropped; ``None`` where nothing was."""


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


@dataclass(frozen=True)
class Triangle:
    """Rows of [X Y] (N, n + m) by a factor F with FᵀF = [X Y]ᵀ[X Y].

    F (k, n + m) is upper triangular, or where N ≤ n those rows themselves: then there is nothing to compress.
    """

    factor: Tensor
    rows: int
    columns: int

    @property
    def compressed(self) -> bool:
        """Whether the factor is triangular."""
        return self.rows > self.columns


def triangle(blocks: Iterable[tuple[Tensor, Tensor]], first_row: int = 0) -> Triangle:
    """The factor of the stacked rows of all blocks (X_i (N_i, n), Y_i (N_i, m)), each read once.

    Raises:
        TypeError: a dtype other than float64 or float32.
        ValueError: no rows, blocks that do not fit together, NaN or infinity (place named, rows counted from ``first_row``).
    """
    factor: Tensor | None = None
    rows = n = 0
    for block_x, block_y in blocks:
        x, y = as_tensor("X", block_x), as_tensor("Y", block_y)
        y = y[:, None] if y.ndim == 1 else y
        if x.ndim != 2 or y.ndim != 2 or x.shape[0] != y.shape[0]:
            raise ValueError(
                f"X has shape {tuple(x.shape)} and Y {tuple(y.shape)}; they must be (N, n) and (N, m) with the same N"
            )
        finite("X", x, first_row + rows)
        finite("Y", y, first_row + rows)
        both = torch.cat([x.double(), y.double()], 1)
        if factor is None:
            n = x.shape[1]
        elif both.shape[1] != factor.shape[1] or x.shape[1] != n:
            raise ValueError(
                f"a block has {x.shape[1]} + {y.shape[1]} columns; the first had {n} + {factor.shape[1] - n}"
            )
        rows += x.shape[0]
        if factor is not None:
            # by this name, so that one copy of the block is gone before LAPACK makes another
            both = torch.cat([factor, both])
        factor = _compressed(both, rows, n)
    if factor is None or rows == 0 or n == 0 or factor.shape[1] == n:
        raise ValueError("X is empty; pass at least one row and one column of X and Y")
    return Triangle(factor, rows, n)


def _compressed(factor: Tensor, rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(factor, mode="r")[1] if rows > columns else factor


def merge(triangles: Sequence[Triangle]) -> Triangle:
    """The factor of the rows of all triangles, stacked in that order.

    Raises:
        ValueError: they have different numbers of columns.
    """
    if len(triangles) == 1:
        return triangles[0]
    shapes = {(t.columns, t.factor.shape[1] - t.columns) for t in triangles}
    if len(shapes) > 1:
        sizes = " and ".join(f"{n} + {m}" for n, m in sorted(shapes))
        raise ValueError(f"the shares have {sizes} columns of X and Y; all must have the same")
    rows, (n, _) = sum(t.rows for t in triangles), shapes.pop()
    return Triangle(_compressed(torch.cat([t.factor for t in triangles]), rows, n), rows, n)


def reduce_blocks(blocks: Iterable[tuple[Tensor, Tensor]]) -> LeastSquaresStatistics:
    """Statistics from row blocks (X_i (N_i, n), Y_i (N_i, m)), each read once.

    Raises:
        TypeError, ValueError: as ``triangle``; X = 0.
    """
    return statistics_of(triangle(blocks))


def statistics_of(rows: Triangle) -> LeastSquaresStatistics:
    """Statistics of the rows with this factor.

    Raises:
        ValueError: X = 0.
    """
    n, R = rows.columns, rows.factor
    if not rows.compressed:
        return _full_rank(R[:, :n], R[:, n:], 0.0, rows.rows)
    return _full_rank(R[:n, :n], R[:n, n:], 0.5 * float((R[n:, n:] ** 2).sum()), rows.rows)


def _full_rank(design: Tensor, target: Tensor, offset: float, rows: int) -> LeastSquaresStatistics:
    """Drop exactly zero columns; where the numerical rank is still deficient, rotate to it (Theorem 7 of the proofs)."""
    n = design.shape[1]
    used = (design != 0).any(0)
    kept = int(used.sum())
    if kept == 0:
        raise ValueError("X is zero; there is nothing to learn from it: pass at least one row that is not zero")
    design = design[:, used]
    # an SVD of the triangle is as good as one of X: R has the singular values of X up to rounding
    U, s, Vh = torch.linalg.svd(design, full_matrices=False)
    tolerance = max(rows, n) * torch.finfo(torch.float64).eps * float(s[0])
    rank = int((s > tolerance).sum())
    basis = cut = None
    if rank < n:
        cut = Cut(
            directions=n,
            kept=rank,
            below=len(s) - rank,
            tolerance=tolerance,
            largest_dropped=float(s[rank]) if rank < len(s) else 0.0,
            smallest_kept=float(s[rank - 1]),
            optimal_loss=0.5 * float(((U[:, rank:].T @ target) ** 2).sum()),
        )
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
    return LeastSquaresStatistics(design.contiguous(), target.contiguous(), offset, basis, rows, n, cut)
