"""Rows of X that are zero, duplicate or parallel, and their merging.

A positively homogeneous network, f(κx) = κ f(x) for κ > 0, gives parallel rows parallel features Z, so that σ_min(Z) = 0; no
theorem about the interpolation of all labels applies before such rows are merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._core.brief import brief
from .._core.validate import as_tensor, finite

SHOWN = 5


@dataclass(frozen=True)
class RowGroup:
    """Rows x_i = κ_i x_j of X with κ_i > 0, j the first of them.

    Attributes:
        rows: their indices, ascending.
        factors: κ_i, 1 for the first.
        duplicates: whether all are equal, bit for bit.
    """

    rows: tuple[int, ...]
    factors: tuple[float, ...]
    duplicates: bool

    @property
    def text(self) -> str:
        """The rows and what ties them, in words."""
        relation = "equal" if self.duplicates else "positive multiples of each other"
        return f"rows {_listed(self.rows)} are {relation}"


@dataclass(frozen=True)
class RowReport:
    """Groups of parallel rows, and the all-zero rows."""

    groups: tuple[RowGroup, ...]
    zero_rows: tuple[int, ...]

    __repr__ = brief

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.groups or self.zero_rows)

    @property
    def text(self) -> str:
        """What was found, what it means and what to do; empty where there is nothing."""
        parts = []
        if self.groups:
            several = f"{len(self.groups)} groups of parallel rows: " if len(self.groups) > 1 else ""
            shown = "; ".join(group.text for group in self.groups[:SHOWN]) + ("; …" if len(self.groups) > SHOWN else "")
            parts.append(
                f"{several}{shown}. The network is positively homogeneous: a row κx has the equilibrium κz and the output "
                "κf(x), so that the smallest singular value of Z is 0 and no certificate can hold. sf.data.merge_rows(X, Y) "
                "merges them without changing the gradient of the loss."
            )
        if self.zero_rows:
            rows = f"row {self.zero_rows[0]} is" if len(self.zero_rows) == 1 else f"rows {_listed(self.zero_rows)} are"
            parts.append(
                f"{rows} all zero: the output there is 0 whatever the weights. sf.data.merge_rows(X, Y) drops them; their labels "
                "leave a constant loss."
            )
        return " ".join(parts)


@dataclass(frozen=True)
class MergedRows:
    """Data with the same squared loss up to ``constant``, without parallel and zero rows.

    Attributes:
        X: (n, d).
        Y: (n,) or (n, p), as the labels that were given.
        constant: loss on the given rows less loss on the merged rows, for all weights.
        position: row of X that stands for each given row (N,), int64; -1 for zero rows.
        report: what was merged.
        conflicts: indices into ``report.groups`` whose labels no network can fit, with the loss that they leave.
    """

    X: Tensor
    Y: Tensor
    constant: float
    position: Tensor
    report: RowReport
    conflicts: dict[int, float]

    __repr__ = brief

    @property
    def text(self) -> str:
        """What was merged and what loss remains, in words."""
        if not self.report:
            return f"nothing to merge: {len(self.X)} rows, none parallel to another and none all zero"
        text = f"{len(self.position)} rows became {len(self.X)}"
        if self.conflicts:
            shown = list(self.conflicts.items())[:SHOWN]
            listed = "; ".join(f"{self.report.groups[k].text}: at least {loss:.3g}" for k, loss in shown)
            text += f"; conflicting labels leave a loss that no weights remove ({listed}{_rest(self.conflicts)})"
        return text + f"; the loss on the given rows is that on the merged rows plus {self.constant:.6g}"


def parallel_rows(X: Any, tolerance: float | None = None) -> RowReport:
    """Groups of rows of X (N, d) that are equal or positive multiples of each other, and all-zero rows.

    Rows are parallel where their unit vectors differ by at most ``tolerance``: by default (√d + 8) units of the dtype's
    precision, what rounding makes of multiples. Unit rows are sorted by a projection onto a fixed direction, on which parallel
    ones lie next to each other; runs of neighbours are split by further projections, and their members compared in full.

    Raises:
        TypeError, ValueError: X is not a finite matrix of float32 or float64.

    Example:
        >>> sf.data.parallel_rows(torch.tensor([[1.0, 2.0], [0.0, 1.0], [2.0, 4.0]])).groups[0].text
        'rows 0, 2 are positive multiples of each other'
    """
    X = _rows("X", X)
    if tolerance is None:
        tolerance = (math.sqrt(X.shape[1]) + 8.0) * torch.finfo(X.dtype).eps
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance is {tolerance!r}; it must be in [0, 1), such as 1e-12")
    # the largest entry scaled to 1, so that no square underflows or overflows
    largest = X.abs().amax(dim=1)
    zero_rows = (largest == 0).nonzero().flatten()
    indices = (largest > 0).nonzero().flatten()
    if len(indices) == 0:
        return RowReport((), tuple(zero_rows.tolist()))
    scaled = X[indices].double() / largest[indices].double()[:, None]
    lengths = torch.linalg.vector_norm(scaled, dim=1)
    units = scaled / lengths[:, None]
    groups = []
    for candidates in _runs(units, tolerance):
        for members in _verified(units, candidates, tolerance):
            rows = indices[members]
            ratio = (largest[rows].double() / largest[rows[0]].double()) * (lengths[members] / lengths[members[0]])
            duplicates = bool((X[rows] == X[rows[0]]).all())
            factors = (1.0,) * len(rows) if duplicates else (1.0, *ratio[1:].tolist())
            groups.append(RowGroup(tuple(rows.tolist()), factors, duplicates))
    return RowReport(tuple(sorted(groups, key=lambda group: group.rows)), tuple(zero_rows.tolist()))


def merge_rows(X: Any, Y: Any, tolerance: float | None = None) -> MergedRows:
    """Merge parallel rows and drop all-zero rows, so that the squared loss changes by a constant only.

    With f = f(x_j), x_i = κ_i x_j, s² = Σκ_i² and ȳ = Σκ_i y_i/s: Σ ½(κ_i f - y_i)² = ½(s f - ȳ)² + ½(Σy_i² - ȳ²),
    and s f = f(s x_j).
    One row s x_j with the label ȳ takes the place of the group (n equal rows with equal labels y: √n x and √n y). A zero row
    adds ½y_i². The loss, its gradient and hence gradient descent on all weights are unchanged but for that constant.

    Args:
        X: (N, d).
        Y: (N,) or (N, p).
        tolerance: as for ``parallel_rows``; rows that are parallel only within it are replaced by exact multiples.

    Raises:
        TypeError, ValueError: not finite floats, shapes that do not fit, no row that is not all zero, or overflow.

    Example:
        >>> merged = sf.data.merge_rows(torch.tensor([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]]), torch.tensor([1.0, 2.0, 3.0]))
        >>> len(merged.X), merged.constant  # equal rows with the labels 1 and 3 leave (1² + 1²)/2
        (2, 1.0)
    """
    X = _rows("X", X)
    labels = as_tensor("Y", Y)
    if labels.ndim not in (1, 2) or len(labels) != len(X):
        raise ValueError(
            f"Y has shape {tuple(labels.shape)}; it must be ({len(X)},) or ({len(X)}, p), a row for every row of X"
        )
    finite("Y", labels)
    report = parallel_rows(X, tolerance)
    if len(report.zero_rows) == len(X):
        raise ValueError("all rows of X are all zero; there is nothing to fit")
    targets = labels.double().reshape(len(X), -1)
    kept = torch.ones(len(X), dtype=torch.bool, device=X.device)
    kept[list(report.zero_rows)] = False
    representative = torch.arange(len(X), device=X.device)
    merged_X, merged_Y = X.clone(), targets.clone()
    constant = 0.5 * float((targets[list(report.zero_rows)] ** 2).sum())
    conflicts = {}
    for k, group in enumerate(report.groups):
        first, rest = group.rows[0], list(group.rows[1:])
        factors = torch.tensor(group.factors, dtype=torch.float64, device=X.device)[:, None]
        largest = factors.max()
        length = torch.linalg.vector_norm(factors / largest)
        s, weights = float(largest * length), factors / largest / length
        own = targets[list(group.rows)]
        label = (weights * own).sum(dim=0)
        # Σy² - ȳ² without cancellation
        left = 0.5 * float(((own - weights * label) ** 2).sum())
        if left > (8.0 * torch.finfo(labels.dtype).eps) ** 2 * len(own) * float((own**2).sum()):
            conflicts[k] = left
        constant += left
        merged_X[first] = (X[first].double() * s).to(X.dtype)
        merged_Y[first] = label
        kept[rest] = False
        representative[rest] = first
    if not bool(torch.isfinite(merged_X).all()):
        raise ValueError("X has parallel rows so large that the merged row overflows; scale X down")
    if not math.isfinite(constant):
        raise ValueError("Y is so large that its squares overflow; scale Y down")
    position = torch.cumsum(kept, 0)[representative] - 1
    position[list(report.zero_rows)] = -1
    shape = (-1, *labels.shape[1:])
    return MergedRows(
        merged_X[kept], merged_Y[kept].to(labels.dtype).reshape(shape), constant, position, report, conflicts
    )


def _rows(name: str, value: Any) -> Tensor:
    tensor = as_tensor(name, value)
    if tensor.ndim != 2 or tensor.numel() == 0:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; it must be (N, d) with at least one row and one column"
        )
    finite(name, tensor)
    return tensor


def _runs(units: Tensor, tolerance: float) -> list[Tensor]:
    """Sets of at least two rows (ascending) outside of which no two rows lie within ``tolerance`` of each other."""
    generator = torch.Generator().manual_seed(0)
    runs = [torch.arange(len(units), device=units.device)]
    for _ in range(3):
        direction = torch.randn(units.shape[1], generator=generator, dtype=units.dtype).to(units.device)
        direction /= torch.linalg.vector_norm(direction)
        values = units @ direction
        # the rounding of the projections
        reach = tolerance + 4.0 * (units.shape[1] + 2) * torch.finfo(units.dtype).eps
        split = []
        for run in runs:
            ordered, order = values[run].sort()
            breaks = (ordered.diff() > reach).nonzero().flatten() + 1
            pieces = torch.tensor_split(run[order], breaks.cpu())
            split += [piece.sort().values for piece in pieces if len(piece) > 1]
        runs = split
    return runs


def _verified(units: Tensor, candidates: Tensor, tolerance: float) -> list[Tensor]:
    """Groups of rows within ``tolerance`` of the first of them."""
    groups = []
    while len(candidates) > 1:
        near = torch.linalg.vector_norm(units[candidates] - units[candidates[0]], dim=1) <= tolerance
        if int(near.sum()) > 1:
            groups.append(candidates[near])
        candidates = candidates[~near]
    return groups


def _listed(rows: Sequence[int]) -> str:
    return ", ".join(str(row) for row in rows[:SHOWN]) + _rest(rows)


def _rest(items: Sequence[int] | dict[int, float]) -> str:
    return f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
