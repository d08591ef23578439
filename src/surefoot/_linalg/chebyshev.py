"""The coefficients of Chebyshev layers, for the iteration of ``pinv`` and for learned inverses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

STEEP = 2.0**200
"""Above it T_L(τe)/T_L(τ) is e^L to more digits than a float has."""


def layers(terms: int, lower: float, upper: float) -> Iterator[tuple[list[float], float]]:
    """For K = 1, 2, … the coefficients of layer K, lowest power first, and the worst residual after it (0 once below 2^-200).

    The composed residual of K layers is the Chebyshev polynomial of degree L^K, the smallest possible on [lower, upper] of
    σ²/c0: layer 1 is T_L((2e-2+u+l)/(u-l))/T_L(t_0), t_0 = (u+l)/(u-l), the next T_L(τe)/T_L(τ), τ = T_{L^k}(t_0)
    (docs/theorems/inverse.md, Proposition 4). They are computed exactly in rational arithmetic, then rounded.

    Args:
        terms: L ≥ 1.
        lower, upper: 0 < lower < upper. Where lower/upper is below the rounding unit the residual stays at 1.
    """
    low, high = Fraction(lower), Fraction(upper)
    slope, offset = 2 / (high - low), (high + low - 2) / (high - low)
    while slope <= STEEP:
        values = composed(_polynomial(terms), slope, offset)
        at_one = sum(values, Fraction(0))
        # p = (1-φ)/(1-e): its coefficients are the partial sums of those of 1-φ
        partial, row = Fraction(1), []
        for value in values[:terms]:
            partial -= value / at_one
            row.append(float(partial))
        # any τ gives a residual polynomial, so this one may be rounded; far above STEEP its size does not count
        top = float(min(at_one, Fraction(2 * STEEP)))
        yield row, 1.0 / top if top <= STEEP else 0.0
        slope, offset = Fraction(top), Fraction(0)
    while True:
        yield [1.0] * terms, 0.0


def _polynomial(degree: int) -> list[int]:
    """The coefficients of T_degree, from that of x^0 on."""
    before, current = [1], [0, 1]
    for _ in range(degree - 1):
        after = [0, *(2 * c for c in current)]
        for j, c in enumerate(before):
            after[j] -= c
        before, current = current, after
    return current


def composed(coefficients: Sequence[int | Fraction], slope: Fraction, offset: Fraction) -> list[Fraction]:
    """The coefficients of q(slope e + offset)."""
    result: list[Fraction] = [Fraction(0)]
    for c in reversed(coefficients):
        raised = [Fraction(0)] * (len(result) + 1)
        for j, value in enumerate(result):
            raised[j] += value * offset
            raised[j + 1] += value * slope
        raised[0] += c
        result = raised
    return result[: len(coefficients)]
