"""Numbers rounded for reading: those of a guarantee to the side on which the shown number is guaranteed, too."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Literal

Towards = Literal["nearest", "up", "down"]
"""Where a number is rounded to."""
ROUNDINGS = {"nearest": ROUND_HALF_EVEN, "up": ROUND_CEILING, "down": ROUND_FLOOR}
EXACT = 17
"""Digits that tell any two floats apart."""


def rounded(value: float, digits: int, towards: Towards = "nearest") -> Decimal:
    """A float with so many significant digits; the decimal that names it is taken as its value. What is not finite, and 0, is
    returned as it is."""
    exact = Decimal(repr(float(value)))
    if not exact.is_finite() or len(exact.normalize().as_tuple().digits) <= digits:
        return exact
    return exact.quantize(Decimal((0, (1,), exact.adjusted() - digits + 1)), ROUNDINGS[towards])


def plain(value: float, digits: int = 6, towards: Towards = "nearest") -> str:
    """A number in ASCII, with so many significant digits."""
    return f"{float(rounded(value, digits, towards)):.{digits}g}"


def of_sides(left: float, relation: str, right: float, holds: bool, digits: int = 4) -> tuple[int, Towards, Towards]:
    """How both sides of a hypothesis are rounded: of one that holds away from what it needs, with as many digits, at least
    ``digits``, as the relation, read as it stands, needs to be true; of one that fails with so many that it reads as false."""
    less = relation.startswith("<")
    towards: tuple[Towards, Towards] = ("up", "down") if less else ("down", "up")
    if not holds:
        towards = ("nearest", "nearest")
    known = not (math.isnan(left) or math.isnan(right))
    for enough in range(digits, EXACT):
        shown = rounded(left, enough, towards[0]), rounded(right, enough, towards[1])
        if not known or _true(shown[0], relation, shown[1]) == holds:
            return enough, towards[0], towards[1]
    return EXACT, "nearest", "nearest"


def _true(left: Decimal, relation: str, right: Decimal) -> bool:
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[relation]
