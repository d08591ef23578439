"""Extreme singular values through a Cholesky factorisation of the shifted Gram matrix.

Beyond ``bounds`` this trusts the a-priori model of a computed Cholesky factorisation: if that of a symmetric M (n, n)
completes, then M + E = R Rᵀ with ‖E‖ ≤ γ_{n+1}/(1 - 2γ_{n+1}) tr M (Rump, BIT 46, 2006), so that λ_min(M) ≥ -‖E‖. The
constant is doubled, which leaves room for kernels that multiply by a rounded reciprocal. No eigenvalue that LAPACK
returns is trusted: it only says which shift to try. An order of magnitude faster than the witnesses of
``bounds.singular_value_bounds``, and as sharp but near singularity.
"""

from __future__ import annotations

import math

import numpy as np

from .bounds import Array, down, frobenius_upper, gamma, product_with_error, singular_value_bounds, up

Interval = tuple[float, float]
POWER_STEPS = 20
CLOSE = 1.0 + 1e-9
"""Norm bounds that agree up to this factor are not improved."""


def norm_bounds(A: Array) -> Interval:
    """Enclosure of the spectral norm of a finite float64 matrix (m, n)."""
    high = cheap_norm(A)
    low = _largest_line(A)
    if high <= CLOSE * low or min(A.shape) == 1:
        return low, high
    return extreme_bounds(A)[1]


def cheap_norm(A: Array) -> float:
    """Upper bound of the spectral norm: the smaller of sqrt(‖A‖₁‖A‖_∞), which bounds that of |A| too, and ‖A‖_F."""
    magnitudes = np.abs(A)
    rows, columns = A.shape
    one = up(float(magnitudes.sum(axis=0).max(initial=0.0)), rows)
    infinity = up(float(magnitudes.sum(axis=1).max(initial=0.0)), columns)
    return min(up(math.sqrt(one) * math.sqrt(infinity), 3), frobenius_upper(A))


def extreme_bounds(A: Array) -> tuple[Interval, Interval]:
    """Enclosures of σ_min, the square root of λ_min(A Aᵀ) (0 if A has more rows than columns), and of the spectral
    norm."""
    rows, columns = A.shape
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0:
        return (0.0, 0.0), (0.0, 0.0)
    exponent = math.frexp(largest)[1]
    B = np.ldexp(A if rows <= columns else A.T, -exponent)  # exact but where it underflows, which ``vanished`` covers
    vanished = math.ldexp(float(A.size), -1074)
    G, error = product_with_error(B, B.T)
    # the bound is the norm of an entrywise one that is symmetric, γ|B||Bᵀ|: it holds for either triangle reflected
    G = np.tril(G) + np.tril(G, -1).T
    values = np.linalg.eigvalsh(G)
    norm = _norm(B, G, float(values[-1]), error, vanished)
    if rows > columns:
        return (0.0, 0.0), _scaled_back(norm, exponent)
    smallest = _smallest(B, G, float(values[0]), error, vanished)
    return _scaled_back(smallest, exponent), _scaled_back(norm, exponent)


def _norm(B: Array, G: Array, value: float, error: float, vanished: float) -> Interval:
    v = B @ B[int(np.argmax((B**2).sum(axis=1)))]
    for _ in range(POWER_STEPS):
        v = G @ (v / np.abs(v).max())
    # ‖Bᵀv‖/‖v‖; a relative error of 1e-6 covers the rounding of any admissible size
    low = float(np.linalg.norm(B.T @ v) / np.linalg.norm(v)) * (1.0 - 1e-6) - vanished
    shift = value * (1.0 + 1e-9) + 4.0 * _factorisation_error(value * len(G), len(G))
    defect = _indefiniteness(np.diag(np.full(len(G), shift)) - G)
    if defect is None:
        return max(0.0, low), up(float(singular_value_bounds(B)[1][0]) + vanished)
    return max(0.0, low), up(math.sqrt(up(shift + defect + error, 2)) + vanished, 2)


def _smallest(B: Array, G: Array, value: float, error: float, vanished: float) -> Interval:
    high = up(math.sqrt(up(float((B**2).sum(axis=1).min()), B.shape[1])) + vanished, 2)
    trace = float(np.trace(G))
    shift = value * (1.0 - 1e-7) - 4.0 * _factorisation_error(trace, len(G))
    defect = _indefiniteness(G - np.diag(np.full(len(G), shift))) if shift > 0.0 else None
    if defect is None:
        return max(0.0, down(float(singular_value_bounds(B)[0][-1]) - vanished)), high
    square = down(shift - up(defect + error))
    return max(0.0, down(math.sqrt(max(square, 0.0)) - vanished, 2)), high


def _factorisation_error(trace: float, n: int) -> float:
    """Bound of ‖E‖ for a matrix of this trace, with the rounding of its diagonal; 1e-300 covers underflow."""
    return up(2.0 * gamma(n + 2) / (1.0 - 4.0 * gamma(n + 2)) * trace * (1.0 + 1e-9), 4) + 1e-300 * n * n


def _indefiniteness(M: Array) -> float | None:
    """e ≥ 0 with λ_min ≥ -e for the exact difference that M was computed as; ``None`` where the factorisation breaks
    down.

    M = S - T with one of them a multiple of the identity, whose diagonal was rounded by at most u max|M_ii|."""
    n = len(M)
    if not np.isfinite(M).all():
        return None
    try:
        R = np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(R).all():
        return None
    diagonal = np.abs(np.diag(M))
    rounding = up(float(diagonal.max()) * 2.0**-53)
    return up(_factorisation_error(up(float(diagonal.sum()), n), n) + rounding)


def _largest_line(A: Array) -> float:
    """Lower bound of the spectral norm: the largest norm of a row or column."""
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    squares = (A / largest) ** 2
    longest = max(float(squares.sum(axis=0).max()), float(squares.sum(axis=1).max()))
    return max(0.0, down(math.sqrt(longest) * largest, max(A.shape) + 8))


def _scaled_back(bounds: Interval, exponent: int) -> Interval:
    low, high = (math.ldexp(x, exponent) for x in bounds)
    return max(0.0, down(low, 0)), up(high, 0)
