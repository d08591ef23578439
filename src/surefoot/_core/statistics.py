"""Data reduced once to the sufficient statistics of least squares; rows never sit in memory together.

½‖XW - Y‖²_F depends on X (N, n) and Y (N, m) only through the triangular factor of [X Y], which is updated block by block:
R ← qr([R; block]). For a memory-mapped file only one block at a time is copied. Weights scale the rows by their roots, an
intercept is one more column in front, of which the first row of the factor disposes, and a ridge is n more rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .validate import as_tensor, finite, fits_map, nonnegative, positive, real

BLOCK_BYTES = 64 << 20
"""Size of one block of rows in float64."""


@dataclass(frozen=True)
class Reduction:
    """How rows become statistics.

    Attributes:
        l2: λ of the penalty λ/2 ‖W‖²_F, n rows √λ I below X and rows of 0 below Y.
        rcond: singular values of at most this times the largest are dropped; ``None``: max(N, n) eps.
        intercept: whether one is eliminated.
        offset: W0 (n, m), a fixed map that is subtracted: the targets become Y - XW0. The penalty is of what is added to it.
    """

    l2: float = 0.0
    rcond: float | None = None
    intercept: bool = False
    offset: Tensor | None = None


PLAIN = Reduction()
"""Rows as they are, to their numerical rank."""


def reduction(l2: Any, rcond: Any, intercept: Any, offset: Any = None) -> Reduction:
    """The ``Reduction``.

    Raises:
        TypeError: an l2 or rcond that is no number, an intercept that is no bool.
        ValueError: a negative or infinite l2, an rcond outside (0, 1).
    """
    if not isinstance(intercept, bool | np.bool_):
        raise TypeError(f"intercept is {intercept!r} ({type(intercept).__name__}); pass True or False")
    l2 = nonnegative("l2", l2)
    if rcond is not None:
        wanted = "a number between 0 and 1, or None for max(N, n) eps"
        given, rcond = rcond, positive("rcond", rcond, wanted)
        if rcond >= 1.0:
            raise ValueError(f"rcond is {given!r}; it must be {wanted}")
    return Reduction(l2, rcond, bool(intercept), None if offset is None else real("offset", offset, 2))


@dataclass(frozen=True)
class Cut:
    """What the reduction of the data dropped or added; the certificate speaks of the arrays that are left.

    Attributes:
        directions: how many X has, its number of columns.
        kept: how many are left, the numerical rank.
        below: how many were dropped because their singular value, as computed, is at most ``tolerance``, which may be rounding
            and may be data. The others do not occur in X at all, and to drop them changes nothing.
        tolerance: rcond, or without one max(N, n) eps, times the largest singular value.
        largest_dropped, smallest_kept: singular values as computed; ``largest_dropped`` is 0 where ``below`` is.
        optimal_loss: the loss that W can no longer lower: the optimal value of the problem as given may be lower than that of the
            reduced one by this much, and a gap of the problem as given larger, where the dropped singular values are not 0 (for a
            W that is 0 in the dropped directions; training leaves W there as it is).
        rcond: the tolerance relative to the largest singular value, where one was given.
        rows, rows_dropped: how many there were, and how many were dropped because their weight is 0.
        intercept: whether one was eliminated.
        l2: of the penalty that the stored arrays contain.
        also: what else was done, as the end of the text.
    """

    directions: int
    kept: int
    below: int
    tolerance: float
    largest_dropped: float
    smallest_kept: float
    optimal_loss: float
    rcond: float | None = None
    rows: int = 0
    rows_dropped: int = 0
    intercept: bool = False
    l2: float = 0.0
    also: str = ""

    @classmethod
    def of_nothing(cls, directions: int, also: str) -> Cut:
        """Nothing was dropped, and this was done."""
        return cls(directions, directions, 0, 0.0, 0.0, 0.0, 0.0, also=also)

    @property
    def text(self) -> str:
        """In a sentence or some; empty where nothing was dropped or added."""
        absent = self.directions - self.kept - self.below
        parts = []
        if self.below:
            parts.append(
                f"{self.below} of {self.directions} directions of the data dropped, whose singular values are at most "
                f"{self.largest_dropped:.3g}, within the tolerance {self.tolerance:.3g} (smallest kept: "
                f"{self.smallest_kept:.3g}): unless they are exactly 0, the optimal value of the data as given is lower, and the "
                f"gap to it larger, by up to {self.optimal_loss:.6g}{self._elsewhere}"
            )
        if absent:
            parts.append(
                f"{absent} of {self.directions} directions dropped that do not occur in the data, which changes nothing"
            )
        if self.rows_dropped:
            parts.append(f"{self.rows_dropped} of {self.rows} rows dropped, whose weight is 0, which changes nothing")
        if self.intercept:
            parts.append(
                "an intercept eliminated, by centring X and Y: the optimal value, and every gap, is with the best intercept"
            )
        if self.l2:
            parts.append(f"the penalty of l2 = {self.l2:g} stored as rows: the optimal value contains it")
        if self.also:
            parts.append(self.also)
        return "; ".join(parts)

    @property
    def _elsewhere(self) -> str:
        """What more is to be said of singular values that are no rounding."""
        if self.rcond is None:
            return ""
        return (
            f" (rcond = {self.rcond:g}; for W that is 0 in these directions, where training leaves it as it is: with a part w "
            f"there the gap is larger by up to ({self.largest_dropped:.3g} |w| + {(2.0 * self.optimal_loss) ** 0.5:.3g})^2/2)"
        )

    def to_dict(self) -> dict[str, float | str | None]:
        """In plain values, with the text."""
        return {**asdict(self), "text": self.text}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Cut:
        """From ``to_dict``, also of a version that knew fewer reasons; ``KeyError`` where something is missing."""
        names = [field.name for field in fields(cls) if field.name in record or field.default is MISSING]
        return cls(**{name: record[name] for name in names})


@dataclass(frozen=True)
class LeastSquaresStatistics:
    """½‖XW - Y‖² = ½‖design Bᵀ W - target‖² + offset, B the basis (identity where ``None``).

    design (r, r) has full rank r; target (r, m); offset ≥ 0; basis (n, r) has orthonormal columns and is present where the
    rank r of X is below n; rows N (of positive weight) and columns n are those of X.
    """

    design: Tensor
    target: Tensor
    offset: float
    basis: Tensor | None
    rows: int
    columns: int
    cut: Cut | None = None
    """What was dropped or added; ``None`` where nothing was."""
    means: tuple[Tensor, Tensor] | None = None
    """The weighted means of X (n,) and Y (m,), where an intercept was eliminated."""


Block = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]
"""X_i (N_i, n), Y_i (N_i, m) or (N_i,), and perhaps weights (N_i,) of the rows."""


def row_blocks(
    X: Tensor | np.ndarray, Y: Tensor | np.ndarray, weights: Tensor | np.ndarray | None = None
) -> Iterator[Block]:
    """Consecutive float64 blocks of rows of X (N, n) and Y (N, m), and of their weights (N,); arrays on disk are read block by
    block."""
    columns = X.shape[1] + Y.shape[1]
    block = max(1, BLOCK_BYTES // (8 * columns))
    for start in range(0, X.shape[0], block):
        parts: list[Tensor] = []
        for array in (X, Y) if weights is None else (X, Y, weights):
            rows = array[start : start + block]
            # on disk any real dtype will do: converting a copy of the file first is what blocks are there to avoid
            parts.append(
                torch.from_numpy(np.array(rows, np.float64)) if isinstance(rows, np.ndarray) else rows.detach()
            )
        yield (parts[0], parts[1]) if weights is None else (parts[0], parts[1], parts[2])


@dataclass(frozen=True)
class Triangle:
    """Rows of [X Y] (N, n + m), each scaled by the root of its weight, by a factor F with FᵀF = [X Y]ᵀ[X Y].

    F (k, n + m) is upper triangular, or where N ≤ n those rows themselves: then there is nothing to compress. With an
    intercept, F (k, 1 + n + m) is of [1 X Y], X and Y less their ``origin`` (n + m,), one of the rows of largest weight, which
    keeps the differences of large numbers exact and makes a constant column 0.

    Attributes:
        rows: N, those of positive weight.
        columns: n.
        dropped: how many rows of weight 0 there were beside them.
    """

    factor: Tensor
    rows: int
    columns: int
    origin: Tensor | None = None
    dropped: int = 0

    @property
    def leading(self) -> int:
        """Columns before X."""
        return 0 if self.origin is None else 1

    @property
    def compressed(self) -> bool:
        """Whether the factor is triangular."""
        return self.rows > self.columns + self.leading


def triangle(blocks: Iterable[Block], first_row: int = 0, intercept: bool = False) -> Triangle:
    """The factor of the stacked rows of all blocks (X_i (N_i, n), Y_i (N_i, m), and perhaps weights (N_i,)), each read once.

    Raises:
        TypeError: a dtype other than float64 or float32.
        ValueError: no rows, blocks that do not fit together, NaN, infinity or a negative weight (place named, rows counted from
            ``first_row``).
    """
    factor: Tensor | None = None
    origin: Tensor | None = None
    heaviest = -1.0
    read = rows = n = 0
    for block in blocks:
        x, y, weights = _checked(block, first_row + read)
        read += x.shape[0]
        both = torch.cat([x.double(), y.double()], 1)
        if intercept and len(both):
            row, weight = _heaviest(both, weights)
            if weight > heaviest:
                factor = factor if factor is None or origin is None else _less(factor, row - origin)
                origin, heaviest = row, weight
        both = _scaled(both, weights, origin)
        if factor is None:
            n = x.shape[1]
        elif both.shape[1] != factor.shape[1] or x.shape[1] != n:
            raise ValueError(
                f"a block has {x.shape[1]} + {y.shape[1]} columns; the first had {n} + {factor.shape[1] - intercept - n}"
            )
        rows += both.shape[0]
        if factor is not None:
            # by this name, so that one copy of the block is gone before LAPACK makes another
            both = torch.cat([factor, both])
        factor = _compressed(both, rows, n + intercept)
    if factor is None or read == 0 or n == 0 or factor.shape[1] == n + intercept:
        raise ValueError("X is empty; pass at least one row and one column of X and Y")
    return Triangle(factor, rows, n, origin, read - rows)


def _checked(block: Block, first_row: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows, targets as columns, and weights; ``first_row`` is the number of the first."""
    x, y = as_tensor("X", block[0]), as_tensor("Y", block[1])
    y = y[:, None] if y.ndim == 1 else y
    if x.ndim != 2 or y.ndim != 2 or x.shape[0] != y.shape[0]:
        raise ValueError(
            f"X has shape {tuple(x.shape)} and Y {tuple(y.shape)}; they must be (N, n) and (N, m) with the same N"
        )
    finite("X", x, first_row)
    finite("Y", y, first_row)
    if len(block) == 2:
        return x, y, None
    weights = as_tensor("sample_weight", block[2])
    one_for_each_row(weights, x.shape[0])
    finite("sample_weight", weights, first_row)
    if bool((weights < 0.0).any()):
        place = int((weights < 0.0).nonzero()[0])
        raise ValueError(
            f"sample_weight is {float(weights[place]):g} at index {first_row + place}; weights must be at least 0"
        )
    return x, y, weights.double()


def one_for_each_row(weights: Tensor | np.ndarray, rows: int) -> None:
    """Raise ``ValueError`` unless there are as many weights as rows."""
    if tuple(weights.shape) != (rows,):
        raise ValueError(
            f"sample_weight has shape {tuple(weights.shape)}; it must be ({rows},), one weight for each row of X"
        )


def _heaviest(both: Tensor, weights: Tensor | None) -> tuple[Tensor, float]:
    """The first row of the largest weight, and that weight. As the origin it is 0 exactly: the rounding of its difference from
    the mean, times the root of its weight, could exceed rows of small weight."""
    place = 0 if weights is None else int(weights.argmax())
    return both[place].clone(), 1.0 if weights is None else float(weights[place])


def _scaled(both: Tensor, weights: Tensor | None, origin: Tensor | None) -> Tensor:
    """The rows less the origin, after a column of ones where there is an origin, scaled by the roots of the weights that are not
    0. ``both`` is changed."""
    if weights is not None and not bool(weights.all()):
        both, weights = both[weights > 0.0], weights[weights > 0.0]
    if origin is not None:
        both = torch.cat([both.new_ones(len(both), 1), both.sub_(origin)], 1)
    return both if weights is None else both.mul_(weights.sqrt()[:, None])


def _compressed(factor: Tensor, rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(factor, mode="r")[1] if rows > columns else factor


def merge(triangles: Sequence[Triangle]) -> Triangle:
    """The factor of the rows of all triangles, stacked in that order.

    Raises:
        ValueError: they have different numbers of columns.
    """
    if len(triangles) == 1:
        return triangles[0]
    shapes = {(t.columns, t.factor.shape[1] - t.leading - t.columns) for t in triangles}
    if len(shapes) > 1:
        sizes = " and ".join(f"{n} + {m}" for n, m in sorted(shapes))
        raise ValueError(f"the shares have {sizes} columns of X and Y; all must have the same")
    rows, (n, _) = sum(t.rows for t in triangles), shapes.pop()
    with_rows = [t for t in triangles if t.rows and t.origin is not None]
    origin = max(with_rows, key=lambda t: float(t.factor[:, 0].norm())).origin if with_rows else None
    factor = torch.cat([_moved(t, origin) for t in triangles])
    leading = 0 if origin is None else 1
    return Triangle(_compressed(factor, rows, n + leading), rows, n, origin, sum(t.dropped for t in triangles))


def _moved(rows: Triangle, origin: Tensor | None) -> Tensor:
    """The factor of the rows less another origin."""
    if origin is None or rows.origin is None:
        return rows.factor
    return _less(rows.factor, origin - rows.origin)


def _less(factor: Tensor, move: Tensor) -> Tensor:
    """The factor of [1 X Y] with X and Y less ``move``."""
    ones = factor[:, :1]
    return torch.cat([ones, factor[:, 1:] - ones * move], 1)


def reduce_blocks(blocks: Iterable[Block], how: Reduction = PLAIN) -> LeastSquaresStatistics:
    """Statistics from row blocks (X_i (N_i, n), Y_i (N_i, m), and perhaps weights (N_i,)), each read once.

    Raises:
        TypeError, ValueError: as ``triangle``; X = 0.
    """
    return statistics_of(triangle(blocks, intercept=how.intercept), how)


def statistics_of(rows: Triangle, how: Reduction = PLAIN) -> LeastSquaresStatistics:
    """Statistics of the rows with this factor.

    Raises:
        ValueError: X = 0, or constant where an intercept is eliminated; no row of positive weight; an rcond below n eps.
    """
    n, R, N = rows.columns, rows.factor, rows.rows
    if N == 0:
        raise ValueError(f"sample_weight is 0 for all {rows.dropped} rows; at least one must be positive")
    means = None
    if rows.origin is not None:
        R, means = _centred(rows, rows.origin)
    if not bool(R[:, :n].any()):
        fault = "zero; there is nothing to learn from it: pass at least one row that is not zero"
        if means is not None:
            fault = "constant; an intercept fits all that is known of Y: pass at least two different rows"
        raise ValueError(f"X is {fault}")
    if how.offset is not None:
        # on the right factor of [X Y] as on its rows
        fits_map(how.offset, (n, R.shape[1] - n), R.device)
        R = torch.cat([R[:, :n], R[:, n:] - R[:, :n] @ how.offset], 1)
        means = None if means is None else (means[0], means[1] - means[0] @ how.offset)
    compressed = rows.compressed
    if how.l2:
        ridge = torch.zeros(n, R.shape[1], dtype=R.dtype, device=R.device)
        ridge.fill_diagonal_(how.l2**0.5)
        N, compressed = N + n, True
        R = _compressed(torch.cat([R, ridge]), N, n)
    tolerance = _tolerance(how.rcond, N, n)
    if compressed:
        statistics = _full_rank(R[:n, :n], R[:n, n:], 0.5 * float((R[n:, n:] ** 2).sum()), rows.rows, tolerance)
    else:
        statistics = _full_rank(R[:, :n], R[:, n:], 0.0, rows.rows, tolerance)
    assert statistics.cut is not None
    cut = replace(
        statistics.cut,
        rcond=how.rcond,
        rows=rows.rows + rows.dropped,
        rows_dropped=rows.dropped,
        intercept=how.intercept,
        l2=how.l2,
        also=""
        if how.offset is None
        else "the network's map is added to a fixed one, W0: the targets left are Y - X W0",
    )
    return replace(statistics, cut=cut if cut.text else None, means=means)


def _centred(rows: Triangle, origin: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The factor of the centred rows, and the means of X and Y.

    The first column of the triangle of [1 X Y] is that of the ones alone, so that the rows below the first are the triangle of
    what is orthogonal to the ones (Frisch, Waugh and Lovell); the first row has the means.
    """
    R = rows.factor if rows.compressed else torch.linalg.qr(rows.factor, mode="r")[1]
    means = origin + R[0, 1:] / R[0, 0]
    return R[1:, 1:], (means[: rows.columns], means[rows.columns :])


def _tolerance(rcond: float | None, rows: int, columns: int) -> float:
    """Relative to the largest singular value."""
    eps = torch.finfo(torch.float64).eps
    if rcond is None:
        return max(rows, columns) * eps
    if rcond < columns * eps:
        raise ValueError(
            f"rcond is {rcond:g}; it must be at least n eps = {columns * eps:.3g}: smaller singular values are rounding"
        )
    return rcond


def _full_rank(design: Tensor, target: Tensor, offset: float, rows: int, rcond: float) -> LeastSquaresStatistics:
    """Drop exactly zero columns; where the numerical rank is still deficient, rotate to it (Theorem 7 of the proofs)."""
    n = design.shape[1]
    used = (design != 0).any(0)
    kept = int(used.sum())
    design = design[:, used]
    # an SVD of the triangle is as good as one of X: R has the singular values of X up to rounding
    U, s, Vh = torch.linalg.svd(design, full_matrices=False)
    tolerance = rcond * float(s[0])
    rank = int((s > tolerance).sum())
    cut = Cut(
        directions=n,
        kept=rank,
        below=len(s) - rank,
        tolerance=tolerance,
        largest_dropped=float(s[rank]) if rank < len(s) else 0.0,
        smallest_kept=float(s[rank - 1]),
        optimal_loss=0.5 * float(((U[:, rank:].T @ target) ** 2).sum()),
    )
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
    return LeastSquaresStatistics(design.contiguous(), target.contiguous(), offset, basis, rows, n, cut)
