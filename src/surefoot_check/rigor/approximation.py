"""Arrays known up to an error: what the enclosures compute with. Every operation rounds its bound outwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .bounds import ETA, UNIT_ROUNDOFF, Array, Level, down, frobenius_upper, up, witnesses
from .intervals import Interval

BELOW = 1.0 - 1e-13
"""Norms above ``NEGLIGIBLE`` are bounded with less excess than this."""
NEGLIGIBLE = 1e-290


@dataclass(frozen=True)
class Approximation:
    """An array as computed, and a bound of its Euclidean distance from what it stands for."""

    value: Array
    error: float = 0.0

    def __add__(self, other: Approximation) -> Approximation:
        return self.rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Approximation) -> Approximation:
        return self.rounded(self.value - other.value, self.error + other.error)

    def __neg__(self) -> Approximation:
        return Approximation(-self.value, self.error)

    def __mul__(self, other: Approximation) -> Approximation:
        """The entrywise product."""
        largest, of_other = (float(np.abs(M.value).max(initial=0.0)) for M in (self, other))
        error = up(largest * other.error + of_other * self.error + self.error * other.error, 5)
        return self.rounded(self.value * other.value, error, underflow=True)

    def times(self, factor: float) -> Approximation:
        """A positive multiple."""
        return self.rounded(self.value * factor, self.error * factor, underflow=True)

    def image(self, matrix: Any, norm: float, level: Level, moved: float = 0.0) -> Approximation:
        """The product with a matrix on its left, or an operand of the level, of at most that spectral norm, which may be infinite
        if this array is exact; or with one within ``moved`` of it in Frobenius norm."""
        value, error = level.product(matrix, self.value)
        if self.error > 0.0 or moved > 0.0:
            error = up(error + norm * self.error + moved * up(frobenius_upper(self.value) + self.error), 6)
        return Approximation(value, error)

    @property
    def T(self) -> Approximation:
        """The transpose."""
        return Approximation(self.value.T, self.error)

    def norm(self) -> float:
        """Upper bound of the Euclidean norm of what the array stands for."""
        return up(frobenius_upper(self.value) + self.error)

    def bounds(self) -> Interval:
        """Enclosure of the Euclidean norm of the array as it is."""
        high = frobenius_upper(self.value)
        return (down(high * BELOW, 2) if high > NEGLIGIBLE else 0.0), high

    @staticmethod
    def rounded(value: Array, error: float, underflow: bool = False) -> Approximation:
        """The result of one rounded operation on each entry, from operands of that error (itself the result of one)."""
        rounding = up(UNIT_ROUNDOFF * frobenius_upper(value))
        tiny = ETA * value.size if underflow else 0.0
        return Approximation(value, up(up(error) + rounding + tiny, 2))


def least_solution(gram: Approximation, right: Approximation, sigma: float, level: Level) -> float:
    """Upper bound of ‖J⁺r‖, of JJᵀ (q, q), r (q, 1) and a lower bound of the least singular value of J; infinite where that is
    not positive.

    For any x, J⁺r = Jᵀx + J⁺(r - JJᵀx), of norm at most √(xᵀJJᵀx) + ‖r - JJᵀx‖/σ; x = 0 is one.
    """
    if not sigma > 0.0:
        return math.inf
    shortest = up(right.norm() / sigma)
    solved = witnesses(np.linalg.solve, gram.value, right.value)
    if solved is None:
        return shortest
    x = Approximation(solved[0])
    image = x.image(gram.value, 0.0, level, moved=gram.error)
    square, error = level.product(np.ascontiguousarray(x.value.T), image.value)
    length = up(math.sqrt(max(0.0, up(float(square[0, 0]) + error + up(x.norm() * image.error), 3))))
    return min(shortest, up(length + up((right - image).norm() / sigma)))
