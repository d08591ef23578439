"""The objective after T steps of one constant P, from below: for the P of a grid, of least squares for all in the range.

A proximal step with Pβ1 ≤ 2β does not expand, so that the errors of single steps add up. Of least squares the objective after T
steps, φ(P) = ½Σ_p‖(I - (P/β_p)M_pM_pᵀ)^T r_p‖², is convex in P, with φ'(P) = -TΣ_p⟨g_T, g_{T-1}⟩/β_p for the gradients g at
the last two iterates: between two points it lies above both tangents.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...rigor.balls import float_below, rational
from ...rigor.bounds import Array, array_down, array_up
from ...rigor.intervals import Interval
from ..batches import LeastSquaresBatch
from .entrywise import Enclosed, total
from .problems import Problems


@dataclass(frozen=True)
class Constants:
    """Objectives after T steps of each P, and of least squares the slopes of the objective in P."""

    steps: Array
    objectives: list[Interval]
    slopes: list[Interval] | None

    def least(self) -> float:
        """At most the objective for every one of the steps, or of least squares for every P between the first and the last."""
        lows = [low for low, _ in self.objectives]
        if self.slopes is None or len(lows) == 1:
            return min(lows)
        points = list(zip(self.steps.tolist(), lows, self.slopes, strict=True))
        return max(0.0, min(_above_tangents(a, b) for a, b in pairwise(points)))


def constants(problems: Problems, start: Array, count: int, steps: Array) -> Constants:
    """Of ``count`` ≥ 1 steps from ``start`` (N, d), with each P of ``steps`` (k,), which increase."""
    X = np.repeat(start[:, :, None], len(steps), axis=2)
    off = np.zeros((len(X), 1, len(steps)))  # Euclidean distance of the true iterates from X

    def here() -> Enclosed:
        return Enclosed(X, np.broadcast_to(off, X.shape))

    before = None
    for iteration in range(count):
        moved = problems.steps(X, problems.gradient(problems.residual(Enclosed.exactly(X))), steps)
        if iteration == count - 1 and isinstance(problems.batch, LeastSquaresBatch):
            before = problems.gradient(problems.residual(here()))
        X, off = moved.value, array_up(off + moved.spread(), 1)
    residual = problems.residual(here())
    objectives = problems.objectives(here(), residual)
    if before is None:
        return Constants(steps, objectives, None)
    products = problems.gradient(residual) * before * Enclosed.exactly(np.full((1, 1, 1), float(count)))
    terms = products.quotient(problems.beta[:, None, None])
    sums = total(array_down(terms.value - terms.radius, 1), array_up(terms.value + terms.radius, 1))
    return Constants(steps, objectives, [(-high, -low) for low, high in sums])


def _above_tangents(a: tuple[float, float, Interval], b: tuple[float, float, Interval]) -> float:
    """Lower bound between two points (P, lower bound of the value, enclosure of the slope) of a convex function."""
    (left, low, (slope, _)), (right, other, (_, rise)) = a, b
    if slope >= 0.0:
        return low
    if rise <= 0.0:
        return other
    down, up, length = Fraction(slope), Fraction(rise), Fraction(right) - Fraction(left)
    # where the tangents meet
    value = Fraction(low) + down * (Fraction(other) - up * length - Fraction(low)) / (down - up)
    return float_below(rational(value))
