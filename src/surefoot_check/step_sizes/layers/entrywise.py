"""Batches of arrays known entry by entry up to a radius: what the statements about layers compute with, rounded outwards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...rigor.bounds import ETA, FAST, UNIT_ROUNDOFF, Array, Level, array_down, array_up, gamma
from ...rigor.functions import RELATIVE, evaluated
from ...rigor.intervals import TINY, Interval


@dataclass(frozen=True)
class Enclosed:
    """An array as computed, and how far each entry may be from what it stands for."""

    value: Array
    radius: Array

    @classmethod
    def exactly(cls, value: Array) -> Enclosed:
        """The array as it is."""
        return cls(value, np.zeros_like(value))

    @classmethod
    def _rounded(cls, value: Array, radius: Array, operations: int) -> Enclosed:
        """The result of one rounded operation an entry; the radius of its operands was computed by so many operations."""
        return cls(value, array_up(radius + UNIT_ROUNDOFF * np.abs(value) + TINY, operations + 3))

    def __add__(self, other: Enclosed) -> Enclosed:
        return self._rounded(self.value + other.value, self.radius + other.radius, 1)

    def __sub__(self, other: Enclosed) -> Enclosed:
        return self._rounded(self.value - other.value, self.radius + other.radius, 1)

    def __mul__(self, other: Enclosed) -> Enclosed:
        radius = np.abs(self.value) * other.radius + (np.abs(other.value) + other.radius) * self.radius
        return self._rounded(self.value * other.value, radius, 5)

    def column(self, k: int) -> Enclosed:
        """One column, as a matrix of one."""
        return Enclosed(self.value[..., k, None], self.radius[..., k, None])

    def beside(self, other: Enclosed) -> Enclosed:
        """The columns of both."""
        values, radii = (self.value, other.value), (self.radius, other.radius)
        return Enclosed(np.concatenate(values, axis=-1), np.concatenate(radii, axis=-1))

    def signed(self, signs: Array) -> Enclosed:
        """Times numbers of magnitude 1, exactly."""
        return Enclosed(self.value * signs, np.broadcast_to(self.radius, self.value.shape))

    def quotient(self, divisor: Array) -> Enclosed:
        """Over positive numbers."""
        return self._rounded(self.value / divisor, self.radius / divisor, 1)

    def shrunk(self, threshold: Enclosed) -> Enclosed:
        """sign(x) max(|x| - threshold, 0), which moves no more than both arguments do, and is 0 where both sides say so."""
        size = np.maximum(np.abs(self.value) - threshold.value, 0.0)
        moved = self._rounded(np.copysign(size, self.value), self.radius + threshold.radius, 1)
        gone = self.magnitudes()[1] <= array_down(threshold.value - threshold.radius, 1)
        return Enclosed(moved.value, np.where(gone, 0.0, moved.radius))

    def magnitude(self) -> Enclosed:
        """Of each entry."""
        return Enclosed(np.abs(self.value), self.radius)

    def spread(self) -> Array:
        """Upper bounds of the Euclidean norms of the columns of the radii, (N, 1, k) of (N, r, k)."""
        terms = self.radius.shape[1]
        return array_up(np.sqrt(array_up(np.square(self.radius).sum(axis=1, keepdims=True) + TINY, terms + 4)), 1)

    def magnitudes(self) -> tuple[Array, Array]:
        """Bounds of the magnitudes of the entries."""
        size = np.abs(self.value)
        return np.maximum(array_down(size - self.radius, 1), 0.0), array_up(size + self.radius, 1)

    def function(self, name: str, steepest: float, level: Level) -> Enclosed:
        """A function of ``rigor.functions`` of the entries, with slopes of at most that magnitude."""
        at = evaluated(name, self.value, level)
        error = RELATIVE * np.abs(at.value) + TINY if level is FAST else at.error
        return Enclosed(at.value, array_up(steepest * self.radius + error, 4))


def product(A: Array, X: Enclosed, level: Level) -> Enclosed:
    """A_p X_p of A (N, r, k) and X (N, k, m).

    At level fast |fl(AX) - AX| ≤ γ_k|A||X| + 2kη entry by entry, and the radius |A|(γ_k|X| + ρ) is a sum of numbers that are not
    negative, within γ_k of itself.
    """
    inner, magnitudes = A.shape[2], np.abs(A)
    if level is FAST:
        # η where γ_k|X| underflows
        radius = magnitudes @ (gamma(inner) * np.abs(X.value) + X.radius + ETA)
        return Enclosed(A @ X.value, array_up(radius + (2.0 * inner * ETA + TINY), 2 * inner + 6))
    results = [level.product(np.ascontiguousarray(M), np.ascontiguousarray(Z)) for M, Z in zip(A, X.value, strict=True)]
    moved = [(M[:, :, None] * Z).sum(axis=1) for M, Z in zip(magnitudes, X.radius, strict=True)]
    radius = np.array([some + error for some, (_, error) in zip(moved, results, strict=True)])
    return Enclosed(np.array([value for value, _ in results]), array_up(radius + TINY, inner + 4))


def total(lows: Array, highs: Array) -> list[Interval]:
    """Enclosures of the sums over all but the last axis, whose terms are known between two bounds."""
    columns = lows.shape[-1]
    pairs = zip(lows.reshape(-1, columns).T, highs.reshape(-1, columns).T, strict=True)
    # fsum rounds once
    return [(math.nextafter(math.fsum(a), -math.inf), math.nextafter(math.fsum(b), math.inf)) for a, b in pairs]
