"""What the theorems on feed-forward networks leave to choose: the ball, the floor step, the schedule; in floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from surefoot_check.feed_forward import exact_fit, local, minimum, sgd
from surefoot_check.feed_forward.enclosures import Measured
from surefoot_check.feed_forward.lipschitz import symmetric_bend
from surefoot_check.feed_forward.sharp import bend_matrix
from surefoot_check.near_a_fit.state import StateTheorem, size
from surefoot_check.numbers import Quantities
from surefoot_check.rigor.bounds import Array
from surefoot_check.statement import SLACK, Schedule, Segment

from .._core import minibatch
from .._core.plans import OWN_STEP, Plan, chosen_step
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
BISECTIONS = 50
LATEST = 1e15
"""Iteration after which the last segment begins in any case."""


def bends(at: Measured, radius: float) -> list[Array]:
    """Symmetric matrices, with a row for each layer, in floats: the largest eigenvalue of each is a bound of Λ."""
    matrices = [at.scale * np.array(symmetric_bend(at.bounds, radius))]
    if at.centre is not None:
        matrices.append(bend_matrix(at.centre, radius))
    return [S for S in matrices if np.isfinite(S).all()]


def lipschitz(at: Measured) -> Callable[[float], float]:
    """Λ by radius, in floats: the smaller of its two bounds, of which each is measured once."""
    return lambda radius: min((float(np.linalg.eigvalsh(S)[-1]) for S in bends(at, radius)), default=math.inf)


def choose_ball(bend: Callable[[float], float], sigma: float, r0: float) -> float:
    """The least ρ with r0 ≤ σρ - ½Λ(ρ)ρ², a little enlarged; where there is none, one at which to say what is missing.

    Args:
        bend: Λ of ρ, increasing.
        sigma: σ0 > 0; of a minimum m0.
        r0: bound of the residual; of a minimum g0.
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


def the_ball(q: Quantities) -> dict[str, float]:
    """That of ``q``; 0 where there is none."""
    return {"ball": q.get("ball", 0.0)}


def floor_step(q: Quantities) -> dict[str, float]:
    """The ball of ``q`` and the floor step 1/b²; 0 where the theorem does not hold."""
    norm = local.THEOREM.derived(q).get("norm_J_ball", 0.0)
    return _stepping(q, (1.0 - SLACK) / (norm * norm) if norm > 0.0 else 0.0)


def floor_step_of_minimum(q: Quantities) -> dict[str, float]:
    """The ball of ``q`` and the floor step 2/(M + m0); 0 where the theorem does not hold."""
    norm = minimum.THEOREM.derived(q).get("norm_H_ball", 0.0)
    return _stepping(q, 2.0 * (1.0 - SLACK) / (norm + q["lambda_min_H"]) if norm > 0.0 else 0.0)


def _stepping(q: Quantities, floor: float) -> dict[str, float]:
    """The ball of ``q`` and the floor step, or a step of one's own that is smaller."""
    return {**the_ball(q), "eta": min(floor, q.get(OWN_STEP, floor))}


def whole_steps(q: Quantities) -> Schedule:
    """That of the simplified Newton iteration: one rate."""
    decrease = float(exact_fit.THEOREM.decrease(q)) * (1.0 - SLACK)
    return [Segment(0, None, float(q["initial_gap"]), decrease, 1.0)]


def schedule(theorem: StateTheorem, q: Quantities) -> Schedule:
    """The guaranteed gap: segments of constant rate that follow it from above, and one without an end."""
    level, start, eta = float(q["initial_gap"]), 0, float(q["eta"])
    segments: Schedule = []
    while level > 0.0 and 2.0 * q[theorem.bend] * size(level) > NEGLIGIBLE * theorem.left(q):
        decrease = _decrease(theorem, q, level * math.exp(-SEGMENT))
        length = SEGMENT / -math.log1p(-decrease) if decrease > 0.0 else math.inf
        if length < 1.0 or start + length > LATEST:
            break
        segments.append(Segment(start, int(length), level, _lasting(theorem, q, level, int(length)), eta))
        start += int(length)
        level = gap_at(segments[-1], start)
    segments.append(Segment(start, None, level, _decrease(theorem, q, 0.0), eta))
    return segments


def _decrease(theorem: StateTheorem, q: Quantities, level: float) -> float:
    """Of the gap in every step that leaves it at least at this level."""
    part = float(theorem.fall(q, level))
    return part * (2.0 - part) * (1.0 - SLACK)


def _lasting(theorem: StateTheorem, q: Quantities, level: float, count: int) -> float:
    """The largest decrease that each of so many steps from the level on is sure of, by bisection: the less it is, the higher it
    ends, and the more it may be."""
    low, high = _decrease(theorem, q, level * math.exp(-SEGMENT)), _decrease(theorem, q, level)
    for _ in range(BISECTIONS):
        tried = 0.5 * (low + high)
        sure = tried <= _decrease(theorem, q, level * math.exp(count * math.log1p(-tried)))
        low, high = (tried, high) if sure else (low, tried)
    return low


STATES: dict[str, StateTheorem] = {theorem.id: theorem for theorem in (local.THEOREM, minimum.THEOREM)}
"""The theorems whose guarantee goes on from every state that passes a test."""
PLANS = (
    Plan(local.THEOREM, partial(schedule, local.THEOREM), floor_step, largest=chosen_step),
    Plan(exact_fit.THEOREM, whole_steps, the_ball),
    Plan(minimum.THEOREM, partial(schedule, minimum.THEOREM), floor_step_of_minimum, largest=chosen_step),
    Plan(sgd.THEOREM, partial(minibatch.schedule, sgd.THEOREM), recertifiable=False),
)
"""In the order in which they are listed."""
