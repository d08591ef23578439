"""What theorems about states leave to choose: the ball, the floor step, the schedule; in floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from surefoot_check.near_a_fit.exact_fit import ExactFit
from surefoot_check.near_a_fit.local import Local
from surefoot_check.near_a_fit.state import StateTheorem, size
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment

from ..plans import OWN_STEP, PLANS, Plan, chosen_step
from ..schedule import gap_at

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


def about_states(theorem: str) -> StateTheorem | None:
    """The theorem of that id, if its guarantee goes on from every state that passes a test."""
    plan = PLANS.get(theorem)
    return plan.theorem if plan is not None and isinstance(plan.theorem, StateTheorem) else None


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
    rho = min(r0 / sigma, 0.5 * sigma / smallest) if smallest > 0.0 else r0 / sigma
    while smallest < math.inf and bend(rho) == math.inf:
        rho *= 0.5
    return rho


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


def stepping(q: Quantities, floor: float) -> dict[str, float]:
    """The ball of ``q`` and the floor step, or a step of one's own that is smaller."""
    return {**the_ball(q), "eta": min(floor, q.get(OWN_STEP, floor))}


def floor_step(theorem: Local, q: Quantities) -> dict[str, float]:
    """The ball of ``q`` and the floor step 1/b²; 0 where the theorem does not hold."""
    norm = theorem.derived(q).get("norm_J_ball", 0.0)
    return stepping(q, (1.0 - SLACK) / (norm * norm) if norm > 0.0 else 0.0)


def whole_steps(theorem: ExactFit, q: Quantities) -> Schedule:
    """That of the simplified Newton iteration: one rate."""
    decrease = float(theorem.decrease(q)) * (1.0 - SLACK)
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


def plans(local: Local, exact_fit: ExactFit) -> tuple[Plan, Plan]:
    """Those of the two theorems on an exact fit of a system."""
    return (
        Plan(local, partial(schedule, local), partial(floor_step, local), largest=chosen_step),
        Plan(exact_fit, partial(whole_steps, exact_fit), the_ball),
    )
