"""Learned matrix inverses, docs/theorems/inverse.md.

A layer X⁺ = X Σ_l C_kl (I - AX)^l takes the residual e = 1 - σx of a singular value to 1 - (1 - e) Σ_l C_kl e^l; at the start
e = 1 - σ²/c0, with σ²/c0 anywhere in the interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import mpmath
from mpmath import mpf

from .reference import UNIT, Array, Reference, eigenvalues, exact, singular_values, solve

Arrays = Mapping[str, Array]

EXCESS = mpf(10) ** -12
"""Relative excess of the checker's range of a layer; the next layer magnifies it by the slope there."""


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    """The ends of the interval, max |C - 1|, and the largest residual at the start and after each layer."""
    lower, upper = (mpf(float(end)) for end in problem["interval"])
    deviation = max(abs(mpf(c) - 1) for c in weights["C"].ravel().tolist())
    values = [1 - upper, 1 - lower]
    start = max(map(abs, values))
    references = {
        "lower": Reference(lower),
        "upper": Reference(upper),
        "deviation": Reference(deviation, 8 * UNIT * deviation),
        "initial_gap": Reference(start, 16 * UNIT * start),
    }
    excess = mpf(0)
    for k, row in enumerate(weights["C"].tolist(), 1):
        values, slope = layer([mpf(c) for c in row], values)
        largest = max(map(abs, values))
        excess = mpf(1.01) * slope * excess + 2 * EXCESS * largest
        references[f"residual[{k}]"] = Reference(largest, excess + 4 * UNIT * largest)
    return references


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    """The largest |1 - σ²/c0|: that of the start, whatever the coefficients."""
    return quantities(kind, problem, weights, {})["initial_gap"].value


def layer(row: list[mpf], values: list[mpf]) -> tuple[list[mpf], mpf]:
    """Least and largest residual after a layer, of those between the least and the largest before it, and a bound of the slope:
    the extremes are attained at the ends or where the derivative vanishes."""
    low, high = min(values), max(values)
    # 1 - (1 - e) Σ c_l e^l by powers of e, from the constant on
    ascending = [1 - row[0], *(before - after for before, after in pairwise(row)), row[-1]]
    slope = [c * j for j, c in enumerate(ascending)][1:]
    steepest = mpmath.polyval([abs(c) for c in slope[::-1]], max(abs(low), abs(high)))
    extremes = [mpmath.polyval(ascending[::-1], e) for e in [low, high, *_roots(slope, low, high)]]
    return [min(extremes), max(extremes)], steepest


def _roots(ascending: list[mpf], low: mpf, high: mpf) -> list[mpf]:
    """All real roots between low and high, and possibly other numbers there."""
    coefficients, roots = ascending, []
    while coefficients and coefficients[-1] == 0:
        coefficients = coefficients[:-1]
    while coefficients and coefficients[0] == 0:  # a root at 0, of any multiplicity
        coefficients, roots = coefficients[1:], [mpf(0)]
    if len(coefficients) > 1:
        # roots that nearly coincide are found with fewer digits, and may leave the real line a little
        roots += [mpmath.re(root) for root in mpmath.polyroots(coefficients[::-1], maxsteps=500, extraprec=400)]
    return [min(max(root, low), high) for root in roots]


def training(matrices: Array, c0: float, C: Array) -> dict[str, mpf]:
    """Of the loss 1/(2nK) Σ_i Σ_k ‖A_iX_kA_i - A_i‖²_F of coefficients C (K, L), A_i in ``matrices`` (n, rows, columns): its
    ``floor`` and ``initial_gap`` above that, and the extreme nonzero eigenvalues of the Hessian for one layer.

    Each A_i loses the part Σ σ²e_k(σ²/c0)² of its singular values, and e_k is a polynomial of degree L^k in σ²/c0 that is 1 at 0.
    """
    squares = [s * s for A in matrices for s in singular_values(exact(A)) if s > 0]
    weights, y = [mpmath.sqrt(s) for s in squares], [s / mpf(c0) for s in squares]
    layers, terms = C.shape
    scale, residual, loss, floor = mpf(2 * len(matrices) * layers), [1 - v for v in y], mpf(0), mpf(0)
    for k, row in enumerate(C.tolist(), 1):
        residual = [1 - (1 - e) * mpmath.polyval(row[::-1], e) for e in residual]
        loss += mpmath.fsum(s * e * e for s, e in zip(squares, residual, strict=True)) / scale
        floor += _distance_squared(weights, y, terms**k) / scale
    rows = mpmath.matrix([[w * v * (1 - v) ** j for j in range(terms)] for w, v in zip(weights, y, strict=True)])
    values = eigenvalues(rows.T * rows / len(matrices))
    positive = [v for v in values if v > 0]
    return {
        "initial_gap": loss - floor,
        "floor": floor,
        "smoothness": positive[0],
        "strong_convexity": positive[-1],
    }


def _distance_squared(weights: list[mpf], y: list[mpf], degree: int) -> mpf:
    """The least Σ w²(1 - y q(y))² of polynomials q of a degree below ``degree``; 0 where they interpolate."""
    if degree >= len(y):
        return mpf(0)
    powers = mpmath.matrix([[w * v**j for j in range(1, degree + 1)] for w, v in zip(weights, y, strict=True)])
    right = mpmath.matrix(weights)
    rest = right - powers * solve(powers.T * powers, powers.T * right)
    return mpmath.fsum(v * v for v in rest)
