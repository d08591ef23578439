"""The largest eigenvalue of a small symmetric matrix of numbers, by positive pivots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .balls import ball
from .bounds import up, witnesses

SLACK = 1e-13
"""Relative distance at which the eigenvalue is tried to be bounded; doubled until it is."""
PRECISION = 128
"""Bits of the ball arithmetic in which such matrices are made."""


def is_below(S: list[list[Any]], bound: Any) -> bool:
    """Whether the largest eigenvalue of a symmetric matrix is certainly below: bound·I - S has positive pivots."""
    count = len(S)
    rest = [[(bound if i == j else 0.0 * bound) - S[i][j] for j in range(count)] for i in range(count)]
    for k in range(count):
        pivot = rest[k][k]
        if not pivot > 0:
            return False
        for i in range(k + 1, count):
            factor = rest[i][k] / pivot
            for j in range(k + 1, count):
                rest[i][j] = rest[i][j] - factor * rest[k][j]
    return True


def largest_eigenvalue(S: list[list[Any]]) -> float:
    """Upper bound of the largest eigenvalue of a symmetric matrix of balls, none negative; infinite where there is none."""
    computed = np.array([[float(x) for x in row] for row in S])
    if not np.isfinite(computed).all():
        return math.inf
    if all(x == 0 for row in S for x in row):  # not of ``computed``, in which small ones vanish
        return 0.0
    values = witnesses(np.linalg.eigvalsh, computed)
    if values is None:
        return math.inf
    largest, slack = float(values[0][-1]), SLACK
    while slack < 1.0:
        bound = up(largest * (1.0 + slack), 2)
        if is_below(S, ball(bound)):
            return bound
        slack *= 2.0
    return math.inf
