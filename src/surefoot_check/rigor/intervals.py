"""Numbers known between two floats, and the small bounds of numbers that are not negative which everything shares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from .bounds import down, frobenius_upper, up

Interval = tuple[float, float]
"""Rigorous (lower, upper) enclosure of a real number."""
TINY = 1e-300
"""Covers the underflow of elementwise products and quotients: a few times 2^-1074 for each entry of an array."""


def root_down(x: float) -> float:
    """Lower bound of the square root of x ≥ 0."""
    return max(0.0, down(math.sqrt(max(x, 0.0))))


def squared(low: float, high: float) -> Interval:
    """Enclosure of x² for 0 ≤ low ≤ x ≤ high; an overflow is infinite, where ** would raise."""
    return max(0.0, down(low * low)), up(high * high)


def around(bounds: Interval, moved: float) -> Interval:
    """Enclosure of a number that is not negative, from one of another that is within ``moved`` of it."""
    return max(0.0, down(bounds[0] - moved)), up(bounds[1] + moved)


def sum_of(terms: Iterable[Interval]) -> Interval:
    """Of numbers that are not negative."""
    lows, highs = zip(*terms, strict=True)
    return max(0.0, down(math.fsum(lows))), sum_up(highs)


def sum_up(values: Iterable[float]) -> float:
    """Upper bound of a sum of numbers that are not negative."""
    return up(math.fsum(values))


def product_of(a: Interval, b: Interval) -> Interval:
    """Of numbers that are not negative."""
    return max(0.0, down(a[0] * b[0])), up(a[1] * b[1])


def quotient_of(a: Interval, b: float) -> Interval:
    """Of a number that is not negative and a positive one."""
    return max(0.0, down(a[0] / b)), up(a[1] / b)


def joined(parts: Iterable[float]) -> float:
    """Upper bound of the norm of a vector whose parts have these norms at most."""
    return frobenius_upper(np.array(list(parts), dtype=np.float64))


def bounded(enclosures: Mapping[str, Interval]) -> dict[str, Interval]:
    """Those with two finite ends, as Python's floats; NaN is not finite."""
    floats = {name: (float(low), float(high)) for name, (low, high) in enclosures.items()}
    return {name: ends for name, ends in floats.items() if all(map(math.isfinite, ends))}
