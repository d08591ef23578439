"""How a learned solver ended, in each problem of a batch and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum


class SolveStatus(StrEnum):
    """How a solver ended in a problem."""

    SOLVED = "solved"
    ITERATIONS = "iterations"
    STALLED = "stalled"

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return {
            "solved": "the duality gap is at most the tolerance times the objective",
            "iterations": "all iterations were used; pass more of them",
            "stalled": "no further decrease can be proved, or the solution's own rounding is above the tolerance: pass a larger "
            "tolerance, and problems in float64 if they were not",
        }[self.value]

    @classmethod
    def of_all(cls, statuses: Sequence[SolveStatus]) -> SolveStatus:
        """Of a batch: ``SOLVED`` if every problem is; else ``ITERATIONS`` if more of them can help one, else ``STALLED``."""
        return next((status for status in (cls.ITERATIONS, cls.STALLED) if status in statuses), cls.SOLVED)


def summary(statuses: Sequence[SolveStatus]) -> str:
    """Such as "solved", or "30 solved, 2 stalled"."""
    counts = Counter(statuses)
    if len(counts) == 1:
        return str(statuses[0])
    return ", ".join(f"{counts[status]} {status}" for status in SolveStatus if counts[status])
