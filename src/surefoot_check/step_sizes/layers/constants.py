"""The objective after T steps that are the same for all coordinates: of one constant P, and of a schedule.

A step with Pβ1 ≤ 2β does not expand, so that the errors of single steps add up. Of least squares the objective after T steps of
one P, φ(P) = ½Σ_p‖(I - (P/β_p)M_pM_pᵀ)^T r_p‖², is convex in P, with φ'(P) = -TΣ_p⟨g_T, g_{T-1}⟩/β_p for the gradients g at the
last two iterates: between two points it lies above both tangents.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...rigor.balls import float_below, rational
from ...rigor.bounds import Array, array_down, array_up
from ...rigor.intervals import Interval
from .entrywise import Enclosed, total
from .problems import Problems


def after_steps(problems: Problems, start: Array, steps: Array) -> list[Interval]:
    """Enclosures (k) of the objective after the steps P (T, k) from ``start`` (N, d)."""
    at = Enclosed.exactly(np.repeat(start[:, :, None], steps.shape[1], axis=2))
    if not problems.batch.proximal:
        return problems.squares(problems.carried(problems.residual(at), steps))
    X, off = at.value, np.zeros((len(start), 1, 1))
    for P in steps:
        moved = problems.steps(X, problems.gradient(problems.residual(Enclosed.exactly(X))), P)
        X, off = moved.value, array_up(off + moved.spread(), 1)
    at = Enclosed(X, np.broadcast_to(off, X.shape))
    return problems.objectives(at, problems.residual(at))


def least_between(problems: Problems, start: Array, count: int, points: Array) -> float:
    """At most the objective of least squares after ``count`` ≥ 1 steps with any one P between the first of ``points``, which
    increase, and the last."""
    at = Enclosed.exactly(np.repeat(start[:, :, None], len(points), axis=2))
    before = problems.carried(problems.residual(at), np.tile(points, (count - 1, 1)))
    after = problems.carried(before, points[None])
    products = problems.pulled(after) * problems.pulled(before)
    terms = (products * Enclosed.exactly(np.full((1, 1, 1), float(count)))).quotient(problems.beta[:, None, None])
    falls = total(array_down(terms.value - terms.radius, 1), array_up(terms.value + terms.radius, 1))
    lows = [low for low, _ in problems.squares(after)]
    tangents = [(P, low, (-b, -a)) for P, low, (a, b) in zip(points.tolist(), lows, falls, strict=True)]
    return max(0.0, min(lows[0], *(_above_tangents(a, b) for a, b in pairwise(tangents))))


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
