"""Exact floats as balls of FLINT, norms of matrices of balls, and floats around balls.

Python's ``max`` and ``min`` return one of two balls that overlap, which need not bound the other: of balls they are taken by
methods, ``x.max(y)``, whose result contains the larger of any two numbers in x and y.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from .bounds import Array


def ball(x: float) -> Any:
    """The float as an exact ball."""
    from flint import arb

    return arb(x)


def rational(x: Fraction) -> Any:
    """A ball around the quotient."""
    from flint import arb, fmpq

    return arb(fmpq(x.numerator, x.denominator))


def arb_matrix(A: Array) -> Any:
    """The array (rows, columns), or the vector as one column, as an exact ``arb_mat``."""
    from flint import arb_mat

    columns = A.shape[1] if A.ndim == 2 else 1
    return arb_mat(len(A), columns, [float(x) for x in A.reshape(-1)])


def frobenius(*matrices: Any) -> tuple[Any, Any]:
    """Lower and upper bound of the Frobenius norm of all entries together."""
    total: Any = sum((x * x for M in matrices for x in M.entries()), ball(0.0))
    return total.abs_lower().sqrt().lower(), total.abs_upper().sqrt().upper()


def float_above(x: Any) -> float:
    """The least float, or the next, that is not below any number in the ball x; infinite of NaN, of which nothing is known."""
    upper = x.upper()
    value = float(upper)
    if math.isnan(value):
        return math.inf
    return value if upper <= value else math.nextafter(value, math.inf)


def float_below(x: Any) -> float:
    """The mirror image of ``float_above``."""
    return -float_above(-x)
