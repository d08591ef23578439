"""What a certificate claims, decided in one place: text, screen, report, plots and JSON read it from here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from surefoot_check.statement import Segment

from .plans import PLANS
from .rounding import plain

PRACTICAL = 1e6
"""More iterations than this are no plan: a count above it is true and of no practical use."""
TARGET = 1e-6
"""Relative gap whose guaranteed count decides whether a certificate is of practical use."""

VACUOUS = "beware: more than 1e6 guaranteed iterations to a relative gap of 1e-6 are of no practical use"
"""Of a certificate that holds and is not practical."""


class Kind(StrEnum):
    """The kinds of claims about the gap."""

    RATE = "rate"
    SUBLINEAR = "sublinear"
    LEVELS = "levels"
    MONOTONE = "monotone"
    FLOW = "flow"
    NOTHING = "nothing"

    @property
    def text(self) -> str:
        """What is claimed."""
        return {
            "rate": "every iteration, at least from some point on, leaves at most a fixed part of the gap, which so goes to 0",
            "sublinear": "the gap is at most a constant divided by the number of iterations",
            "levels": "the gap is bounded after every iteration up to a last one, and no further",
            "monotone": "the gap never grows; there is no rate",
            "flow": "along the gradient flow every unit of time leaves at most a fixed part of the gap; nothing is guaranteed of "
            "iterations",
            "nothing": "nothing is guaranteed",
        }[self.value]


@dataclass(frozen=True)
class Claim:
    """What a certificate guarantees about the gap.

    Attributes:
        kind: which kind of claim.
        decrease: of a rate, the least part of the gap that an iteration takes (0 where some iterations need take none); of a
            flow, that of a unit of time.
        final: of a rate, that part from the last segment of the schedule on.
        constant: of a sublinear claim, c such that the gap after t ≥ 1 iterations is at most c/t.
    """

    kind: Kind
    decrease: float = 0.0
    final: float = 0.0
    constant: float = math.inf

    def factor(self, digits: int = 6) -> str:
        """Of a rate, the factor of the gap in an iteration, rounded up; near 1 what it lacks, rounded down."""
        part = self.decrease or self.final
        said = plain(1.0 - part, digits, "up")
        said = f"1 - {plain(part, 4, 'down')}" if said == "1" else said
        return said if self.decrease else f"{said} in the end"

    @property
    def converges(self) -> bool:
        """Whether the gap is guaranteed to become as small as one likes."""
        return self.kind in (Kind.RATE, Kind.SUBLINEAR)

    @property
    def of_iterations(self) -> bool:
        """Whether it speaks of the iterations of a run at all."""
        return self.kind not in (Kind.FLOW, Kind.NOTHING)

    @property
    def bounds(self) -> bool:
        """Whether the bound falls at all."""
        return self.converges or self.kind is Kind.LEVELS


def claim(theorem: str, holds: bool, schedule: Sequence[Segment], quantities: Mapping[str, float]) -> Claim:
    """What the schedule of a theorem guarantees; nothing where it does not hold (a refuted theorem keeps its schedule)."""
    if not holds or not schedule:
        return Claim(Kind.NOTHING)
    last = schedule[-1]
    if theorem in PLANS and PLANS[theorem].theorem.counts_time:
        return Claim(Kind.FLOW, last.decrease, last.decrease)
    if last.decrease > 0.0 or last.level == 0.0:
        return Claim(Kind.RATE, min(segment.decrease for segment in schedule), last.decrease)
    if last.level == schedule[0].level:
        return Claim(Kind.MONOTONE)
    constant = PLANS[theorem].theorem.sublinear(quantities) if theorem in PLANS else None
    return Claim(Kind.LEVELS) if constant is None else Claim(Kind.SUBLINEAR, constant=float(constant))
