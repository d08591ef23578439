"""The schedule of the theorem on the linearised ADMM, in floats."""

from __future__ import annotations

import math

from surefoot_check.deconvolution.ladmm import THEOREM, distance
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment

from .._core.plans import Plan

STRETCH = 1.1
"""A segment lasts until the bound has fallen by this factor."""
LONGEST = 2**52
SMALLEST = 1e-280
"""Levels do not fall below: numbers near the end of the range of floats have no relative accuracy."""


def levels(q: Quantities) -> Schedule:
    """V_0, then D/t in steps."""
    first, reach = float(q["initial_gap"]), float(distance(q)) * (1.0 + SLACK)
    alpha = float(q["alpha"])
    # D/t says more than V_0 from the second start on
    starts, following = [0], max(1, math.ceil(reach / first)) if first > 0.0 else LONGEST
    while following < LONGEST and reach / following >= SMALLEST:
        starts.append(following)
        following = max(following + 1, math.ceil(STRETCH * following))
    levels = [first, *(min(first, reach / start) for start in starts[1:])]
    ends = [*starts[1:], None]
    return [
        Segment(start, None if end is None else end - start, level, 0.0, alpha)
        for start, end, level in zip(starts, ends, levels, strict=True)
    ]


PLANS = (Plan(THEOREM, levels),)
