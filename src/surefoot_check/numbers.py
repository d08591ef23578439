"""Scalar functions that work on Python floats, on ``flint.arb`` balls and on the numbers of ``tracing`` alike.

A theorem is written once with these and evaluated in float64 to decide, in ball arithmetic to prove, and traced to show.
Dispatch is on the argument, so that this module never imports python-flint. With balls, ``a < b`` is true only
when it is certain; a theorem therefore states every condition as "not certain means not proved".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Number = Any
"""A Python float, a ``flint.arb`` or a ``tracing.Traced``; mixed expressions are exact conversions of the float."""

Quantities = Mapping[str, Number]


def sqrt(x: Number) -> Number:
    """Square root; a float below zero raises ``ValueError``, a ball that contains such a number becomes NaN."""
    return math.sqrt(x) if isinstance(x, float | int) else x.sqrt()


def exp(x: Number) -> Number:
    """Exponential; a float overflow becomes ``inf``."""
    if not isinstance(x, float | int):
        return x.exp()
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def expm1(x: Number) -> Number:
    """``exp(x) - 1`` without cancellation; a float overflow becomes ``inf``."""
    if not isinstance(x, float | int):
        return x.expm1()
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf


def log(x: Number) -> Number:
    """Natural logarithm."""
    return math.log(x) if isinstance(x, float | int) else x.log()


def log1p(x: Number) -> Number:
    """``log(1 + x)`` without cancellation."""
    return math.log1p(x) if isinstance(x, float | int) else x.log1p()


def larger(x: Number, y: Number) -> Number:
    """Maximum (of balls: a ball that contains the maximum)."""
    if isinstance(x, float | int) and isinstance(y, float | int):
        return max(x, y)
    return x.max(y) if not isinstance(x, float | int) else y.max(x)


def smaller(x: Number, y: Number) -> Number:
    """Minimum (of balls: a ball that contains the minimum)."""
    if isinstance(x, float | int) and isinstance(y, float | int):
        return min(x, y)
    return x.min(y) if not isinstance(x, float | int) else y.min(x)


def power(x: Number, exponent: Number) -> Number:
    """``x ** exponent`` for ``x > 0``."""
    if isinstance(x, float | int) and isinstance(exponent, float | int):
        return float(x) ** exponent
    return exp(exponent * log(x))


def power_of_complement(x: Number, count: int) -> Number:
    """``(1 - x) ** count`` for ``0 <= x < 1``, or any ``x >= 0`` and an even ``count``; floats keep the relative accuracy
    of a small x."""
    if not isinstance(x, float | int):
        return (1 - x) ** count
    if x < 1.0:
        return math.exp(count * math.log1p(-x))
    return (x - 1.0) ** count
