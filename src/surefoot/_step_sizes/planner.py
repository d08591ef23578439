"""Schedules of the theorems on learned step sizes, and what observed steps say afterwards, in floats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment
from surefoot_check.step_sizes import constants as shared
from surefoot_check.step_sizes import monotone, prox_monotone, prox_rate, rate

from .._core.plans import Plan
from .._core.schedule import gap_at
from . import as_printed

STRETCH = 0.1
"""A segment of the sublinear bound lasts until its level has fallen by about this part."""
DEEPEST = 1e-10
"""The schedule follows the sublinear bound down to this part of the gap after one step."""
FARTHEST = 1e-12
"""The least part of the initial gap that is claimed to be left after one step; a decrease must stay below 1."""
ULP = 2.0**-53
LONGEST = 2**52
"""Iterations of a segment; where one would be longer, the sublinear bound is of no use."""


def level(q: Quantities) -> Schedule:
    """The initial gap, for ever."""
    return [Segment(0, None, float(q["initial_gap"]), 0.0, float(q["range_low"]))]


def contraction(q: Quantities) -> Schedule:
    """One segment with the rate of ``rate``."""
    decrease = float(shared.contraction_decrease(q)) * (1.0 - SLACK)
    return [Segment(0, None, float(q["initial_gap"]), decrease, float(q["range_low"]))]


def linear_or_sublinear(q: Quantities) -> Schedule:
    """The better of the two bounds of ``prox-rate`` on each stretch."""
    fall, gamma, low = prox_rate.linear(q) * (1.0 - SLACK), prox_rate.curvature(q), float(q["range_low"])
    start = float(q["initial_gap"])
    first = max(prox_rate.first_level(q) * (1.0 + SLACK), FARTHEST * start)
    at_once = 1.0 - first / start - 4.0 * ULP if first < start else 0.0
    segments = [Segment(0, 1, start, max(fall, at_once), low)]
    time, level = 1, gap_at(segments[0], 1)
    deepest = DEEPEST * level
    while gamma * level > max(fall, STRETCH / LONGEST) and level > deepest:
        count = max(1, int(STRETCH / (gamma * level)))
        drop = -math.expm1(-math.log1p(count * gamma * level) / count) * (1.0 - SLACK)
        segments.append(Segment(time, count, level, max(drop, fall), low))
        time, level = time + count, gap_at(segments[-1], time + count)
    return [*segments, Segment(time, None, level, fall, low)]


def learning_rate(q: Quantities) -> dict[str, float]:
    """The learning rate in ``q``, or the largest that (14a) and (14b) admit."""
    if "log10_learning_rate" in q:
        return {"log10_learning_rate": q["log10_learning_rate"]}
    right = as_printed.right_sides(q)
    return {"log10_learning_rate": min(right["14a"], right["14b"]) - SLACK}


def printed_rate(q: Quantities) -> Schedule:
    """One segment whose iterations are steps of training."""
    decrease = min(10.0 ** min(as_printed.claimed_decrease(q), 0.0), 1.0 - SLACK)
    return [Segment(0, None, float(q["initial_gap"]), decrease)]


def a_posteriori(q: Quantities, lows: Sequence[float], highs: Sequence[float]) -> list[float]:
    """Factors Π_{τ≤t} ϱ_τ² (T+1,) of the gap, from the ranges that P was observed in at the T steps; rounded up.

    At least as good as the a-priori ϱ^{2t}, since observed ranges lie in [lo, hi]; unlike the measured ratios of gaps it
    holds for every Y with these ranges. ``q``: smoothness_ratio and convexity_ratio, in floats.

    Raises:
        ValueError: lengths that differ, or a range that is not increasing, negative, or beyond 2/s.
    """
    if len(lows) != len(highs):
        raise ValueError(f"lows has {len(lows)} entries and highs {len(highs)}; pass one of each per step")
    factors = [1.0]
    for t, (low, high) in enumerate(zip(lows, highs, strict=True), 1):
        if not 0.0 <= low <= high or not high * q["smoothness_ratio"] <= 2.0:
            raise ValueError(
                f"step {t} has the range {low} .. {high}; the theorem needs 0 <= low <= high <= "
                f"{2.0 / q['smoothness_ratio']:.6g}"
            )
        rho = 1.0 - shared.advance(q, low, high) * (1.0 - 1e-14) + 1e-15
        factors.append(min(factors[-1], factors[-1] * rho * rho * (1.0 + 1e-14)))
    return factors


PLANS = (
    Plan(monotone.THEOREM, level),
    Plan(rate.THEOREM, contraction),
    Plan(prox_monotone.THEOREM, level),
    Plan(prox_rate.THEOREM, linear_or_sublinear),
    Plan(as_printed.THEOREM, printed_rate, learning_rate),
)
"""In the order in which they are listed."""
