"""What the theorems on feed-forward networks leave to choose: the ball, the floor step, the schedule; in floats."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from surefoot_check.feed_forward import local
from surefoot_check.feed_forward.enclosures import Measured
from surefoot_check.feed_forward.lipschitz import symmetric_bend
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment

from .._core.plans import Plan
from .._core.schedule import gap_at

ROUNDS = 500
"""Of the iteration that finds the least ball."""
ROOM = (1e-6, 1e-4, 1e-2, 0.1, 0.3)
"""By how much the ball is made larger than the least one, until the published numbers fit."""
PUBLISHED = 4.0 * SLACK
"""Relative room for the slack of published numbers."""
NEGLIGIBLE = 1e-2
"""Share of the last rate that the curvature may add before a segment without an end begins."""
SEGMENT = math.log(10.0) / 8.0
"""Fall of ln L over one segment."""
LATEST = 1e15
"""Iteration after which the last segment begins in any case."""


def lipschitz(at: Measured) -> Callable[[float], float]:
    """Λ by radius, in floats."""

    def of(radius: float) -> float:
        S = np.array(symmetric_bend(at.bounds, radius))
        return float(np.linalg.eigvalsh(S)[-1]) if np.isfinite(S).all() else math.inf

    return of


def choose_ball(bend: Callable[[float], float], sigma: float, r0: float) -> float:
    """The least ρ with r0 ≤ σρ - ½Λ(ρ)ρ², a little enlarged; where there is none, one at which to say what is missing.

    Args:
        bend: Λ of ρ, increasing.
        sigma: σ0 > 0.
        r0: bound of the residual.
    """
    sigma, r0 = sigma * (1.0 - PUBLISHED), r0 * (1.0 + PUBLISHED)
    rho = r0 / sigma
    for _ in range(ROUNDS):
        square = sigma * sigma - 2.0 * bend(rho) * r0
        if not square > 0.0:
            break
        before, rho = rho, 2.0 * r0 / (sigma + math.sqrt(square))
        if rho <= before * (1.0 + 1e-9):
            return _enlarged(bend, sigma, r0, rho)
    smallest = bend(0.0)
    return min(r0 / sigma, 0.5 * sigma / smallest) if smallest > 0.0 else r0 / sigma


def _enlarged(bend: Callable[[float], float], sigma: float, r0: float, rho: float) -> float:
    for room in ROOM:
        wider = rho * (1.0 + room)
        curvature = bend(wider) * (1.0 + PUBLISHED)
        if curvature * wider <= sigma and r0 <= wider * (sigma - 0.5 * curvature * wider):
            return wider
    return rho


def floor_step(q: Quantities) -> dict[str, float]:
    """The ball of ``q`` and the floor step 1/b²; 0 where the theorem does not hold."""
    norm = local.THEOREM.derived(q).get("norm_J_ball", 0.0)
    return {"ball": q.get("ball", 0.0), "eta": (1.0 - SLACK) / (norm * norm) if norm > 0.0 else 0.0}


def schedule(q: Quantities) -> Schedule:
    """The guaranteed gap: segments of constant rate that follow it from above, and one without an end."""
    level, start, eta = float(q["initial_gap"]), 0, float(q["eta"])
    segments: Schedule = []
    while level > 0.0 and 2.0 * q["lipschitz_J"] * local.residual(level) > NEGLIGIBLE * local.left(q):
        decrease = _decrease(q, level * math.exp(-SEGMENT))
        length = SEGMENT / -math.log1p(-decrease) if decrease > 0.0 else math.inf
        if length < 1.0 or start + length > LATEST:
            break
        segments.append(Segment(start, int(length), level, decrease, eta))
        start += int(length)
        level = gap_at(segments[-1], start)
    segments.append(Segment(start, None, level, _decrease(q, 0.0), eta))
    return segments


def _decrease(q: Quantities, level: float) -> float:
    """Of the gap in every step that leaves it at least at this level."""
    part = float(local.fall(q, level))
    return part * (2.0 - part) * (1.0 - SLACK)


PLANS = (Plan(local.THEOREM, schedule, floor_step),)
"""In the order in which they are listed."""
