"""Matrix completion: a loss of a few entries of the map, which is never formed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .losses import ROUNDING, SCALE, QuadraticLoss
from .small_losses import Array, SmallQuadratic
from .statistics import Cut
from .validate import class_numbers, positive_integer, real

LARGEST = 1 << 62
"""Largest nm: positions are numbered in 64 bits."""
BLOCK = 1 << 14
"""Entries whose two rows of the factors are in memory at a time."""


class MatrixCompletion(QuadraticLoss):
    """½ Σ_k (W[rows_k, columns_k] - values_k)² over the observed entries of W (n, m).

    Memory and the work of an iteration are proportional to the observations and to the factors: for a two-layer network in
    weight space (``engine="weights"``, the default below a width of n + m) nothing of the size of W is formed. An entry that
    was observed several times is merged into the mean of its values, with the count as its weight, which is exact: K is the
    largest count, μ the smallest one, in the Polyak-Łojasiewicz inequality, and ℓ* is half the scatter around the means.

    The minimiser is never unique, so that theorems use their form without a known one; a matrix whose entries are all observed is
    ``SquaredLoss(torch.eye(n), values)``.

    Args:
        rows, columns: int64 (M,), which entry each value is of, counted from 0.
        values: float64 or float32 (M,), in any order.
        shape: (n, m).

    Attributes:
        rows, columns, values, counts: the distinct entries in the order of their rows and columns, with the means of their
            values, and how often each was observed.

    Raises:
        TypeError: indices that are no integers, or values of a wrong dtype.
        ValueError: empty, mismatched or non-finite data, values beyond 1e20, an index out of range, or a shape that is none.

    Example:
        >>> table = torch.outer(torch.arange(1.0, 7.0), torch.arange(1.0, 6.0)).double()
        >>> rows, columns = torch.where(torch.arange(30).reshape(6, 5) % 4 > 0)  # what was seen
        >>> loss = sf.MatrixCompletion(rows, columns, table[rows, columns], shape=(6, 5))
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=1, std=0.1, seed=0)
        >>> run = sf.descend(net, loss)
        >>> run.status.value, torch.allclose(net.end_to_end(), table, atol=1e-3)
        ('converged', True)
    """

    kind = "completion"
    unique_optimum = False

    def __init__(self, rows: Any, columns: Any, values: Any, shape: Sequence[int]) -> None:
        values = real("values", values, 1)
        n, m = self.shape = _shape(shape)
        rows, columns = _indices("rows", rows, n, values), _indices("columns", columns, m, values)
        largest = float(values.abs().max())
        if not largest <= SCALE:
            raise ValueError(f"values reach {largest:.3g}, beyond {SCALE:.0e}: products would overflow; scale the data")
        order = (rows * m + columns).argsort(stable=True)
        positions, counts = (rows * m + columns)[order].unique_consecutive(return_counts=True)
        means = torch.segment_reduce(values[order], "mean", lengths=counts)
        scatter = (values[order] - means.repeat_interleave(counts)) ** 2
        self._set(positions // m, positions % m, means, counts)
        self.optimal_value = 0.5 * float(scatter.sum())
        if len(means) < len(values):
            also = (
                f"{len(values)} observations of {len(means)} entries merged into their means: the optimal value is the scatter "
                "around them"
            )
            self.cut = Cut.of_nothing(n, also)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> MatrixCompletion:
        """The loss whose ``arrays()`` these are: distinct entries, in order."""
        loss = cls(arrays["rows"], arrays["columns"], arrays["values"], arrays["shape"].tolist())
        loss._set(loss.rows, loss.columns, loss.values, arrays["counts"])
        return loss

    def _sizes(self) -> str:
        n, m = self.shape
        return f"{len(self.values)} entries of {n}x{m}"

    def _set(self, rows: Tensor, columns: Tensor, values: Tensor, counts: Tensor) -> None:
        self.rows, self.columns, self.values, self.counts = rows, columns, values, counts
        self.smoothness, self.strong_convexity = float(counts.max()), float(counts.min())
        self._weights = counts.to(values.dtype)

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def gap_resolution(self) -> float:
        error = ROUNDING * float(self.values.norm())
        return 0.5 * self.smoothness * error * error

    def _find_optimum(self) -> Tensor:
        return self._scattered(self.values)

    def _scattered(self, entries: Tensor) -> Tensor:
        W = torch.zeros(self.shape, dtype=entries.dtype, device=entries.device)
        W[self.rows, self.columns] = entries
        return W

    def image(self, W: Tensor) -> Tensor:
        return self._weights.sqrt() * W[self.rows, self.columns]

    def adjoint(self, E: Tensor) -> Tensor:
        return self._scattered(self._weights.sqrt() * E)

    # -- at the observed entries alone ---------------------------------------------------------------------------------

    def entries(self, left: Tensor, right: Tensor) -> Tensor:
        """The observed entries (E,) of left rightᵀ, left (n, h) and right (m, h)."""
        result = torch.empty_like(self.values)
        for start in range(0, len(result), BLOCK):
            block = slice(start, start + BLOCK)
            one, other = left.index_select(0, self.rows[block]), right.index_select(0, self.columns[block])
            result[block] = torch.einsum("ij,ij->i", one, other)
        return result

    def size(self, entries: Tensor) -> float:
        """‖𝒳W‖² of these entries of W."""
        return float((self._weights * entries * entries).sum())

    def slopes(self, residual: Tensor) -> Tensor:
        """The entries of ∇ℓ, where W differs from the values by ``residual``; elsewhere it is 0."""
        return self._weights * residual

    def times(self, entries: Tensor, right: Tensor) -> Tensor:
        """G right (n, h), for the matrix G with these entries and zeros elsewhere, and right (m, h)."""
        return _bags(self.columns, right, self._ends_of_rows, entries)

    def transposed_times(self, entries: Tensor, left: Tensor) -> Tensor:
        """Gᵀ left (m, h), for left (n, h)."""
        order, ends = self._by_columns
        return _bags(self.rows[order], left, ends, entries[order])

    @cached_property
    def _ends_of_rows(self) -> Tensor:
        return _ends(self.rows, self.shape[0])

    @cached_property
    def _by_columns(self) -> tuple[Tensor, Tensor]:
        """The order of the entries by columns, and where each column begins in it."""
        return self.columns.argsort(stable=True), _ends(self.columns, self.shape[1])

    @cached_property
    def small(self) -> SmallEntries:
        return SmallEntries(self)

    def arrays(self) -> dict[str, Tensor]:
        return {
            "rows": self.rows,
            "columns": self.columns,
            "values": self.values,
            "counts": self.counts,
            "shape": torch.tensor(self.shape),
        }


class SmallEntries(SmallQuadratic):
    """The same on NumPy arrays of the size of W."""

    def __init__(self, loss: MatrixCompletion) -> None:
        self._positions = loss.rows.cpu().numpy(), loss.columns.cpu().numpy()
        self._roots = np.sqrt(loss.counts.cpu().numpy().astype(np.float64))
        self.optimum, self.smoothness = loss.optimum.cpu().numpy(), loss.smoothness

    def image(self, W: Array) -> Array:
        """𝒳W."""
        return self._roots * W[self._positions]

    def gradient(self, W: Array) -> Array:
        """𝒳ᵀ𝒳(W - W*)."""
        g = np.zeros_like(self.optimum)
        g[self._positions] = self._roots * self.image(W - self.optimum)
        return g


def _bags(indices: Tensor, rows: Tensor, ends: Tensor, factors: Tensor) -> Tensor:
    """Sums of multiples of rows, one sum for each stretch of ``indices``."""
    return embedding_bag(indices, rows, ends, mode="sum", per_sample_weights=factors, include_last_offset=True)


def _ends(indices: Tensor, count: int) -> Tensor:
    """Where the stretch of each of so many indices begins, once they are sorted, and where the last one ends."""
    lengths = torch.bincount(indices, minlength=count)
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _shape(shape: Any) -> tuple[int, int]:
    sizes = tuple(shape) if isinstance(shape, Sequence | np.ndarray | Tensor) and not isinstance(shape, str) else ()
    if len(sizes) != 2:
        raise ValueError(f"shape is {shape!r}; pass the two numbers of rows and columns of W")
    n, m = (positive_integer(f"shape[{i}]", size) for i, size in enumerate(sizes))
    if n * m > LARGEST:
        raise ValueError(f"shape is {(n, m)}, of more than 2^62 entries; number the rows and columns without gaps")
    return n, m


def _indices(name: str, value: Any, count: int, values: Tensor) -> Tensor:
    indices = class_numbers(name, value, values, "indices", "value")
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= count:
        raise ValueError(f"{name} run from {low} to {high}; for this shape they must lie in 0..{count - 1}")
    return indices
