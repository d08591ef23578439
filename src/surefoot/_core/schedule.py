"""Schedules in floats: the gap that they guarantee at an iteration, and when it reaches a target."""

from __future__ import annotations

import math
from collections.abc import Sequence

from surefoot_check.numbers import exp
from surefoot_check.statement import Segment


def gap_at(segment: Segment, iteration: int) -> float:
    """Gap that the segment guarantees at ``iteration`` ≥ its start, rounded up."""
    passed = iteration - segment.start
    if passed == 0 or segment.decrease == 0.0:
        return segment.level
    return segment.level * exp(passed * math.log1p(-segment.decrease)) * (1.0 + 1e-12)


def iterations_to(schedule: Sequence[Segment], relative_gap: float) -> float:
    """Smallest t with guaranteed gap ≤ relative_gap times the first level; ``math.inf`` if there is none."""
    target = relative_gap * schedule[0].level
    if target == 0.0 < schedule[0].level:  # it underflows; no bound in floats reaches it
        return math.inf
    for segment in schedule:
        if segment.level <= target:
            return segment.start
        if segment.decrease > 0.0:
            needed = (math.log(segment.level) - math.log(target) + 2e-12) / -math.log1p(-segment.decrease)
            count = math.ceil(needed) if needed < math.inf else math.inf
            if segment.count is None or count <= segment.count:
                return segment.start + count
    return math.inf
