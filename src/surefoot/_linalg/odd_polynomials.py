"""Odd polynomials whose composition brings an interval of singular values to 1, and proved ranges of it.

p_1 is the odd polynomial of its degree that is nearest to 1 on [l, u] in the maximum norm, p_2 the nearest on the range
of p_1, and so on. No other composition of as many odd polynomials of these degrees ends with a smaller distance from 1
(Amsel, Persson, Musco and Gower, The Polar Express, arXiv 2505.16932; proofs: docs/theorems/orthogonalize.md). Near 1 they
are the Newton-Schulz polynomials.

Rounding asks for two departures. Every interval is widened by 2ε on both sides before its polynomial is made. And on [l, u]
with a tiny l the best polynomial falls to about l again inside of the interval, by cancellation of its terms, which would
lose the digits of such singular values, in half precision their sign too. So it is made for [u/50, u] where l is smaller,
and centred: for degree 5 and l ≥ 1e-4 an error above 1e-3 is up to 22 % larger after the same steps.

The ranges are enclosed in exact and in fixed-point arithmetic, for the rounded coefficients that are used: by Bernstein
coefficients on bisected intervals, of which one is done where they hardly exceed the values at ends of all so far.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .._core.brief import brief
from .chebyshev import composed

BITS, PAD = 256, 2**40
"""Binary digits of the fixed-point numbers of the ranges, and more units than their rounding."""
FLOOR = 0.02
"""Of the lower end for which a polynomial is made, relative to the upper end."""
SMALL = 2.0**-12
"""Of the half width of an interval around 1, relatively: below, the best polynomial is Newton-Schulz to within factor 4^j."""
LIMIT = 64
"""Most steps."""
Coefficients = tuple[float, ...]
"""Of x, x³, x⁵, …"""
Interval = tuple[float, float]


class PolarSteps(NamedTuple):
    """Odd polynomials, applied one after the other to the singular values of a matrix.

    ``coefficients[k]`` are those of x, x³, x⁵, … in step k+1; ``intervals[k]`` contains every singular value before it
    that lies in ``intervals[0]`` at the start, and the last interval those of the result.

    Example:
        >>> steps = sf.linalg.orthogonalize_steps(0.01, torch.float32, steps=4)
        >>> s = np.linspace(0.01, 1.0)  # singular values
        >>> for row in steps.coefficients:
        ...     s = sum(c * s ** (2 * j + 1) for j, c in enumerate(row))
        >>> bool(abs(s - 1.0).max() <= steps.error < 0.013)
        True
    """

    coefficients: tuple[Coefficients, ...]
    intervals: tuple[Interval, ...]

    __repr__ = brief

    @property
    def error(self) -> float:
        """The largest |σ − 1| of the result, proved; without the rounding of the products."""
        low, high = self.intervals[-1]
        return max(abs(1.0 - low), abs(high - 1.0))

    @property
    def inverse(self) -> list[list[float]]:
        """The coefficients of the learned inverse whose residual after each layer is 1 − σ²: those of q(1 − e)² for x·q(x²).

        With them ``sf.certify(sf.nn.LearnedInverse(torch.tensor(steps.inverse)), interval=(l**2, 1.0))`` is a certificate of
        ‖XᴴX − I‖ after each step that ``surefoot-check`` accepts, up to the rounding of these coefficients.
        """
        residual = np.polynomial.Polynomial([1.0, -1.0])
        return [(np.polynomial.Polynomial(row)(residual) ** 2).coef.tolist() for row in self.coefficients]


@lru_cache(maxsize=256)
def compose(lower: float, eps: float, degree: int, steps: int | None) -> PolarSteps:
    """The steps for singular values in [lower, 1] in arithmetic of precision ``eps``: as many as asked for, or as many as bring
    the error under 4ε."""
    interval: Interval = (lower, 1.0)
    coefficients: list[Coefficients] = []
    intervals = [interval]
    while len(coefficients) < (LIMIT if steps is None else steps):
        low, high = interval[0] * (1.0 - 2.0 * eps), interval[1] * (1.0 + 2.0 * eps)
        row = nearest_to_one((degree + 1) // 2, max(low, FLOOR * high), high)
        bottom, top = image(row, low, high)
        centre = (bottom + top) / 2.0
        row = tuple(c / centre for c in row)
        interval = image(row, low, high)
        coefficients.append(row)
        intervals.append(interval)
        if steps is None and max(1.0 - interval[0], interval[1] - 1.0) <= 4.0 * eps:
            break
    return PolarSteps(tuple(coefficients), tuple(intervals))


def nearest_to_one(terms: int, lower: float, upper: float) -> Coefficients:
    """The odd polynomial Σ_j c_j x^(2j+1) of so many terms that minimises max |1 − p| on [lower, upper], by Remez' exchange.

    The error has its extremes at both ends and at the terms − 1 zeros of the derivative, with alternating signs.
    """
    centre = (lower + upper) / 2.0
    if upper - centre <= SMALL * centre:
        return tuple(c / centre ** (2 * j + 1) for j, c in enumerate(newton_schulz(terms)))
    powers = np.arange(1, 2 * terms, 2)
    # 1 - cos: Chebyshev's points, on the interval scaled to end at 1
    low = lower / upper
    points = low + (1.0 - low) * (1.0 - np.cos(np.pi * np.arange(terms + 1) / terms)) / 2.0
    signs = (-1.0) ** np.arange(terms + 1)
    row, before = np.zeros(terms), math.inf
    for _ in range(100):
        # p(x_i) + (-1)^i E = 1
        *row, error = np.linalg.solve(np.column_stack([points[:, None] ** powers, signs]), np.ones(terms + 1))
        zeros = np.roots((row * powers)[::-1]).real
        points = np.array([low, *np.sqrt(np.sort(zeros)), 1.0])
        if abs(error - before) <= 1e-15:
            break
        before = error
    return tuple(float(c) / upper ** int(power) for c, power in zip(row, powers, strict=True))


def newton_schulz(terms: int) -> Coefficients:
    """x Σ_{j<terms} binom(2j, j)/4^j (1 − x²)^j, the Taylor polynomial of the sign function at 1."""
    row = [Fraction(0)] * terms
    for j in range(terms):
        for i in range(j + 1):
            row[i] += Fraction(math.comb(2 * j, j), 4**j) * math.comb(j, i) * (-1) ** i
    return tuple(map(float, row))


def image(row: Coefficients, low: float, high: float) -> Interval:
    """An interval that contains Σ_j row[j] x^(2j+1) for low ≤ x ≤ high, wider than these values by 2^-56 of the largest.

    In integers, units of 2^-256. Each mean of two coefficients loses at most half a unit, so that fewer than 200 bisections
    of a polynomial of degree 7 lose less than 2^10 units: ``PAD`` is far above.
    """
    dense = [Fraction(0)] * (2 * len(row))
    dense[1::2] = map(Fraction, row)
    taylor = composed(dense, Fraction(high) - Fraction(low), Fraction(low))
    degree = len(taylor) - 1
    box = [
        math.floor(2**BITS * sum(Fraction(math.comb(i, j), math.comb(degree, j)) * taylor[j] for j in range(i + 1)))
        for i in range(degree + 1)
    ]
    least, most = bottom, top = min(box[0], box[-1]), max(box[0], box[-1])
    boxes = [box]
    while boxes:
        box = boxes.pop()
        # both ends are values, and all values lie between the smallest and the largest coefficient
        least, most = min(least, box[0], box[-1]), max(most, box[0], box[-1])
        excess = max(PAD, max(abs(least), abs(most)) >> 56)
        if min(box) >= least - excess and max(box) <= most + excess:
            bottom, top = min(bottom, *box), max(top, *box)
        else:
            boxes += _halves(box)
    lowest, highest = Fraction(bottom - PAD, 2**BITS), Fraction(top + PAD, 2**BITS)
    return math.nextafter(float(lowest), -math.inf), math.nextafter(float(highest), math.inf)


def _halves(box: list[int]) -> tuple[list[int], list[int]]:
    """Bernstein coefficients on the two halves (de Casteljau)."""
    left, right = [], []
    while box:
        left.append(box[0])
        right.append(box[-1])
        box = [(a + b) >> 1 for a, b in pairwise(box)]
    return left, right[::-1]
