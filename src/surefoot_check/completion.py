"""Matrix completion, rigorously: what is known of a map W at its observed entries alone; no array of the size of W is formed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .arrays import FormatError
from .problems import LinearMapProblem
from .rigor.approximation import Approximation
from .rigor.balls import ball
from .rigor.bounds import FAST, Array, Level, array_up, down, frobenius_upper, gamma, up
from .rigor.intervals import Interval
from .rigor.least_squares import ExactEntries, Integers

LARGEST_COUNT = 1 << 53
"""Beyond it integers are not exact in floats."""
LARGEST_SHAPE = 1 << 62
"""Largest nm: positions are numbered in 64 bits."""


class Completion(LinearMapProblem):
    """½ Σ_e c_e (W[r_e, s_e] - v_e)² over distinct entries of W (n, m), each observed c_e times, v_e on average.

    K and μ (of the Polyak-Łojasiewicz inequality) are the largest and the smallest of the c_e, exactly: 𝒳W = (√c_e W[r_e, s_e])
    has 𝒳𝒳ᵀ = diag(c). Any numbers are the entries of some W, so that the optimal value is 0, and the gap the loss itself.
    """

    kind = "completion"
    dimensions: ClassVar = {"rows": 1, "columns": 1, "values": 1, "counts": 1, "shape": 1}
    integers = ("rows", "columns", "counts", "shape")
    quadratic = True
    unique_optimum = False

    def __init__(
        self, rows: Integers, columns: Integers, values: Array, counts: Integers, shape: Integers, level: Level = FAST
    ) -> None:
        if shape.shape != (2,) or shape.min() < 1 or int(shape[0]) * int(shape[1]) > LARGEST_SHAPE:
            raise FormatError(
                f"shape is {shape.tolist()[:3]}; it must be two positive numbers, of a product below 2^62"
            )
        n, m = int(shape[0]), int(shape[1])
        if not rows.shape == columns.shape == values.shape == counts.shape:
            raise FormatError("rows, columns, values and counts do not fit together")
        if rows.min() < 0 or rows.max() >= n or columns.min() < 0 or columns.max() >= m:
            raise FormatError(f"rows and columns must be those of a matrix of shape {(n, m)}, counted from 0")
        if not (np.diff(rows * m + columns) > 0).all():
            raise FormatError("the entries must be distinct, and in the order of their rows and columns")
        if counts.min() < 1 or counts.max() > LARGEST_COUNT:
            raise FormatError("counts must be positive integers of at most 2^53")
        self.rows, self.columns, self.values, self.counts = rows, columns, values, counts
        self.shape, self.level = (n, m), level
        self._roots = array_up(np.sqrt(counts.astype(np.float64)), 1)

    def smoothness(self) -> Interval:
        return float(self.counts.max()), float(self.counts.max())

    def strong_convexity(self) -> Interval:
        return float(self.counts.min()), float(self.counts.min())

    def entries(self, left: Array, right: Array) -> Approximation:
        """The observed entries of left rightᵀ, for left (n, h) and right (m, h).

        Sums of h products in single elementwise operations: each errs by at most γ_h Σ|left||right|, which is at most its
        computed value over 1 - γ_h, but for underflow.
        """
        total, size = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        inner = left.shape[1]
        for one, other in zip(left.T, right.T, strict=True):
            term = one[self.rows] * other[self.columns]
            total += term
            size += np.abs(term)
        tiny = math.ldexp(2.0 * inner * len(total), -1074)
        magnitude = up(up(frobenius_upper(size) + tiny) / down(1.0 - gamma(inner)), 2)
        return Approximation(total, up(up(gamma(inner) * magnitude) + tiny, 2))

    def _root(self, W: Approximation) -> Interval:
        """Enclosure of √(2 gap) = ‖𝒳(W) - √c v‖, for W (n, m) or its observed entries."""
        seen = W if W.value.ndim == 1 else Approximation(W.value[self.rows, self.columns], W.error)
        residual = seen - Approximation(self.values)
        # each root and each product is rounded once more: 4 operations with the norm's own
        weighted = self._roots * residual.value
        error = up(float(self._roots.max()) * residual.error + math.ldexp(float(weighted.size), -1074), 3)
        low, high = Approximation(weighted).bounds()
        return max(0.0, down(down(low, 4) - error)), up(up(high, 4) + error)

    def gap_upper(self, W: Approximation) -> float:
        high = self._root(W)[1]
        return up(0.5 * high * high, 2)

    def gap_exact(self, W: Approximation, exact: Callable[[], Any]) -> tuple[Any, Any]:
        low, high = self._root(W)
        return (ball(down(0.5 * low * low, 2)) if low > 0.0 else None), ball(up(0.5 * high * high, 2))

    def exact_loss(self) -> ExactEntries:
        return ExactEntries(self.rows, self.columns, self.values, self.counts)

    def optimum(self) -> Approximation:
        raise NotImplementedError("the minimiser is not unique")
