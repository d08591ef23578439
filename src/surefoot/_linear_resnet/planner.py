"""What the theorems on linear ResNets leave to choose: steps, scales and schedules, in floats."""

from __future__ import annotations

import math
from functools import partial

from surefoot_check.linear_resnet import gd, local, sgd_local
from surefoot_check.linear_resnet.gd import step
from surefoot_check.linear_resnet.local import decrease, smoothness
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment

from .._core import minibatch
from .._core.plans import OWN_STEP, Plan
from .._core.schedule import gap_at

FLOOR = 1e-36
"""Relative gap after which the schedule goes on with its last rate."""
SEGMENT = math.log(10.0) / 16.0
"""Longest segment, as a decrease of ln gap."""


def sufficient_alpha(gap: float, sigma_min_X: float) -> float:
    """The α of B = α[0, I], with A = [I; 0], for which Corollary 2 of the reference holds at W = 0 and γ = 1 with equality."""
    return 8.0 * math.sqrt(2.0 * gap) / sigma_min_X


def smallest_alpha(gap: float, norm_X: float, sigma_min_X: float) -> float:
    """The α of B = α[0, I], with A = [I; 0], for which the hypothesis holds with equality (there σ_min(A) = ‖A‖ = 1)."""
    return 4.0 * math.sqrt(2.0 * math.e**3 * gap) * norm_X / sigma_min_X**2


def as_measured(q: Quantities) -> dict[str, float]:
    """Radius and γ: found where the constants are measured, since those depend on the radius."""
    return {name: q[name] for name in local.THEOREM.choices}


def advance(q: Quantities) -> Schedule:
    """The schedule of ``local`` in segments of constant rate; one for a constant step of one's own."""
    gap, start = float(q["initial_gap"]), 0
    if OWN_STEP in q:
        eta = float(q[OWN_STEP])
        return [Segment(0, None, gap, decrease(q, eta) * (1.0 - SLACK), eta)]
    segments: Schedule = []
    if gap == 0.0:
        return [Segment(0, None, 0.0, 0.0, q["gamma"] / smoothness(q, 0.0) * (1.0 - SLACK))]
    lowest = max(gap * FLOOR, 1e-290)
    while True:
        eta = q["gamma"] / smoothness(q, gap) * (1.0 - SLACK)
        fall = decrease(q, eta) * (1.0 - SLACK)
        if gap <= lowest or fall == 0.0:
            segments.append(Segment(start, None, gap, fall, eta))
            return segments
        count = max(1, int(SEGMENT / -math.log1p(-fall)))
        segments.append(Segment(start, count, gap, fall, eta))
        start += count
        gap = gap_at(segments[-1], start)


def largest_on_the_ball(q: Quantities) -> float:
    """The largest constant step of ``local`` on the ball of ``q``: γ/K at the initial gap, rounded down."""
    return q["gamma"] / float(smoothness(q, q["initial_gap"])) * (1.0 - SLACK)


def constant_step(q: Quantities) -> dict[str, float]:
    """The initial loss (the optimal value is not part of the reduced problem), and the step it gives, or one's own if smaller."""
    loss = max(q.get("initial_loss", 0.0), q["initial_gap"])
    usable = q["norm_A"] * q["norm_B"] * q["norm_X"] > 0.0
    eta = largest_step({**q, "initial_loss": loss}) if usable else 0.0
    return {"initial_loss": loss, "initial_step": min(eta, q.get(OWN_STEP, eta))}


def largest_step(q: Quantities) -> float:
    """The step of ``gd``, rounded down."""
    return float(step(q)) * (1.0 - SLACK)


def rate(q: Quantities) -> Schedule:
    """One segment with the rate of ``gd``."""
    eta = float(q["initial_step"])
    return [Segment(0, None, float(q["initial_gap"]), gd.decrease(q, eta) * (1.0 - SLACK), eta)]


PLANS = (
    Plan(local.THEOREM, advance, as_measured, largest=largest_on_the_ball),
    Plan(gd.THEOREM, rate, constant_step, recertifiable=False, largest=largest_step),  # it speaks of zero weights
    Plan(
        sgd_local.THEOREM, partial(minibatch.schedule, sgd_local.THEOREM), recertifiable=False
    ),  # batches are drawn once
)
"""In the order in which they are listed."""
