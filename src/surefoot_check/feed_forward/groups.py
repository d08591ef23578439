"""Equal rows of X merged: outputs of equal rows are equal, so that targets that differ cannot all be fitted.

With m rows equal to x and ȳ the mean of their targets, ½Σ‖f(x_i) - y_i‖² is ½Σ m‖f(x) - ȳ‖², over the groups, and the scatter
½Σ‖y_i - ȳ‖² of the targets within them, which no weights change: the least value of the loss. The residual has the rows
√m(f(x) - ȳ), the Jacobian those of f times √m. Where the loss is c times that, so is the scatter, and √(cm) stands for √m.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..rigor.approximation import Approximation
from ..rigor.balls import ball, rational
from ..rigor.bounds import UNIT_ROUNDOFF, Array, down, frobenius_upper, up
from ..rigor.intervals import Interval


class Groups:
    """The groups of equal rows of X (N, d) with targets Y (N, k), in the order in which they begin; ``multiple`` is c.

    Attributes:
        first: the first row of each (G,).
        counts: how many rows each has (G,).
    """

    def __init__(self, X: Array, Y: Array, multiple: Fraction = Fraction(1)) -> None:
        known: dict[bytes, int] = {}
        rows = np.ascontiguousarray(X + 0.0)  # of -0 that is 0, which it equals
        self._of = np.array([known.setdefault(row.tobytes(), len(known)) for row in rows])
        self.first: NDArray[np.int64] = np.unique(self._of, return_index=True)[1]
        self.counts: NDArray[np.int64] = np.bincount(self._of)
        self._Y, self._multiple = Y, multiple

    @property
    def all_differ(self) -> bool:
        """Whether every row is a group of its own."""
        return len(self.first) == len(self._of)

    @cached_property
    def _several(self) -> dict[int, list[list[Fraction]]]:
        """The exact targets of each group of more than one row, by output."""
        return {
            int(group): [[Fraction(y) for y in column] for column in self._Y[self._of == group].T.tolist()]
            for group in np.flatnonzero(self.counts > 1)
        }

    @cached_property
    def _exact_means(self) -> dict[int, list[Fraction]]:
        return {group: [sum(ys, Fraction()) / len(ys) for ys in columns] for group, columns in self._several.items()}

    @cached_property
    def means(self) -> Approximation:
        """The mean target of each (G, k)."""
        if self.all_differ:
            return Approximation(self._Y)
        means = self._Y[self.first]
        for group, exact in self._exact_means.items():
            means[group] = [float(mean) for mean in exact]  # rounded once
        return Approximation(means, Approximation.rounded(means[self.counts > 1], 0.0, underflow=True).error)

    @property
    def plain(self) -> bool:
        """Whether every root is 1."""
        return self.all_differ and self._multiple == 1

    @cached_property
    def roots(self) -> Approximation:
        """√(cm) of each (G,)."""
        if self.plain:
            return Approximation(np.ones(len(self.counts)))
        roots = np.sqrt([float(self._multiple * count) for count in self.counts.tolist()])  # rounded twice
        return Approximation(roots, up(2.0 * UNIT_ROUNDOFF * frobenius_upper(roots)))

    @cached_property
    def scatter(self) -> float:
        """½cΣ‖y_i - ȳ‖², to the nearest float."""
        return float(self._exact_scatter)

    @cached_property
    def _exact_scatter(self) -> Fraction:
        pairs = ((columns, self._exact_means[group]) for group, columns in self._several.items())
        squares = (
            (y - mean) ** 2 for columns, means in pairs for ys, mean in zip(columns, means, strict=True) for y in ys
        )
        return self._multiple * sum(squares, Fraction()) / 2

    @property
    def scatter_bounds(self) -> Interval:
        """Enclosure of it."""
        nearest = self.scatter
        return (nearest, nearest) if nearest == self._exact_scatter else (down(nearest, 0), up(nearest, 0))

    def one_of_each(self, A: Approximation) -> Approximation:
        """The first row of each group, of an array of all rows in which those of a group are equal."""
        return A if self.all_differ else Approximation(A.value[self.first], A.error)

    def residual(self, f: Approximation) -> Approximation:
        """√(cm)(f(x) - ȳ) (G, k) of the outputs of all rows."""
        apart = self.one_of_each(f) - self.means
        if self.plain:
            return apart
        k = apart.value.shape[1]
        return apart * Approximation(np.repeat(self.roots.value[:, None], k, axis=1), up(k * self.roots.error))

    def exact_residual(self, f: Any) -> Any:
        """The same in ball arithmetic, of the outputs (G, k) of one row of each."""
        from flint import arb_mat

        k = self._Y.shape[1]
        entries = []
        for group, row in enumerate(self.first.tolist()):
            given = [ball(y) for y in self._Y[row].tolist()]
            means = [rational(x) for x in self._exact_means.get(group, [])] or given
            root = rational(self._multiple * int(self.counts[group])).sqrt()
            entries += [root * (f[group, j] - means[j]) for j in range(k)]
        return arb_mat(len(self.first), k, entries)
