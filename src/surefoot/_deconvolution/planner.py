"""The schedules of the theorems on solvers, in floats."""

from __future__ import annotations

import math
from functools import partial

from surefoot_check.deconvolution import ladmm, total_variation
from surefoot_check.deconvolution.change import MonotoneChange
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment

from .._core.plans import Plan

STRETCH = 1.1
"""A segment lasts until the bound has fallen by this factor."""
LONGEST = 2**52
SMALLEST = 1e-280
"""Levels do not fall below: numbers near the end of the range of floats have no relative accuracy."""


def levels(theorem: MonotoneChange, q: Quantities) -> Schedule:
    """V_0, then D/t in steps."""
    first, reach = float(q["initial_gap"]), float(theorem.distance(q)) * (1.0 + SLACK)
    step = float(q[theorem.stands_for_step])
    # D/t says more than V_0 from the second start on
    ratio = reach / first if first > 0.0 else math.inf
    starts, following = [0], max(1, math.ceil(ratio)) if ratio < LONGEST else LONGEST
    while following < LONGEST and reach / following >= SMALLEST:
        starts.append(following)
        following = max(following + 1, math.ceil(STRETCH * following))
    levels = [first, *(min(first, reach / start) for start in starts[1:])]
    ends = [*starts[1:], None]
    return [
        Segment(start, None if end is None else end - start, level, 0.0, step)
        for start, end, level in zip(starts, ends, levels, strict=True)
    ]


PLANS = tuple(Plan(theorem, partial(levels, theorem)) for theorem in (ladmm.THEOREM, total_variation.THEOREM))
