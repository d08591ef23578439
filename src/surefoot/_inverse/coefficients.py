"""Coefficients C (K, L) of the layers X_{k+1} = X_k Σ_{l<L} C_kl (I - A X_k)^l."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from surefoot_check.theorems.inverse import MAX_LAYERS

from .._core.validate import integer

MAX_TERMS = 64
STEEP = 2.0**200
"""Above it T_L(τe)/T_L(τ) is e^L to more digits than a float has."""


def sizes(layers: object, terms: object) -> tuple[int, int]:
    """K and L, checked.

    Raises:
        ValueError: not integers from 1 to 64.
    """
    found = integer("layers", layers, 1), integer("terms", terms, 1)
    for name, value, most in zip(("layers", "terms"), found, (MAX_LAYERS, MAX_TERMS), strict=True):
        if value > most:
            raise ValueError(f"{name} is {value}; at most {most} are supported, and {most} are far more than converge")
    return found


def ones(layers: int, terms: int) -> Tensor:
    """All ones, float64: the residual is raised to the power L by every layer."""
    return torch.ones(layers, terms, dtype=torch.float64)


def chebyshev(layers: int, terms: int, lower: float, upper: float) -> Tensor:
    """The coefficients with the smallest worst residual on [lower, upper] of σ²/c0, 1/T_{L^K}((u+l)/(u-l)); float64.

    Layer 0 is T_L((2e-2+u+l)/(u-l))/T_L(t_0), t_0 = (u+l)/(u-l), layer k is T_L(τ_k e)/T_L(τ_k), τ_k = T_{L^k}(t_0)
    (docs/theorems/inverse.md, Proposition 4). They are computed exactly in rational arithmetic, then rounded.

    Args:
        layers, terms: K ≥ 1 and L ≥ 1.
        lower, upper: 0 < lower < upper.
    """
    low, high = Fraction(lower), Fraction(upper)
    slope, offset = 2 / (high - low), (high + low - 2) / (high - low)
    rows: list[list[float]] = []
    for _ in range(layers):
        if slope > STEEP:
            rows.append([1.0] * terms)
            continue
        values = _composed(_chebyshev_polynomial(terms), slope, offset)
        at_one = sum(values, Fraction(0))
        # p = (1-φ)/(1-e): its coefficients are the partial sums of those of 1-φ
        partial, row = Fraction(1), []
        for value in values[:terms]:
            partial -= value / at_one
            row.append(float(partial))
        rows.append(row)
        # any τ gives a residual polynomial, so this one may be rounded
        slope, offset = Fraction(_rounded(at_one)), Fraction(0)
    return torch.tensor(rows, dtype=torch.float64)


def _rounded(value: Fraction) -> float:
    return float(value) if value < STEEP else math.nextafter(STEEP, math.inf)


def _chebyshev_polynomial(degree: int) -> list[int]:
    """The coefficients of T_degree, from that of x^0 on."""
    before, current = [1], [0, 1]
    for _ in range(degree - 1):
        after = [0, *(2 * c for c in current)]
        for j, c in enumerate(before):
            after[j] -= c
        before, current = current, after
    return current


def _composed(coefficients: list[int], slope: Fraction, offset: Fraction) -> list[Fraction]:
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
