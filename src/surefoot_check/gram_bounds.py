"""Extreme singular values: the fast screen M1, the witnesses M3, the approximate inverse M4, and which to use when.

M1. Let G be symmetric and known up to an error, and let a Cholesky factorisation of the computed M = G - s I complete. Its
factor satisfies M + E = R Rᵀ with |E_ij| ≤ γ_{k+1} ‖R_i‖ ‖R_j‖, k ≤ n the number of terms of the inner product that defines
R_ij, in any order of summation, and ‖R_i‖² ≤ M_ii/(1-γ_{n+1}). So |E| ≤ d dᵀ with d_i² = γ_{n+1}/(1-γ_{n+1}) M_ii, and
‖E‖ ≤ ‖d‖² = γ_{n+1}/(1-γ_{n+1}) tr M (Rump, BIT 46, 2006). R Rᵀ is positive semidefinite: λ_min(M) ≥ -‖E‖, λ_min(G) ≥
s - ‖E‖. No eigenvalue that LAPACK returns is trusted: it only says which shift to try. Several times faster than M3; its slack
relative to σ_min² is some n u tr(G)/σ_min², so that M3 is the sharper one for condition numbers above some hundreds at n = 1000.
Level ``fast`` only: at level ``exact`` M3 is made in integers.

M3. ``spectra.singular_value_bounds``: singular vectors as witnesses.

M4. Y with ‖I - AY‖ ≤ e < 1: for every unit x, 1 - e ≤ ‖YᵀAᵀx‖ ≤ ‖Y‖‖Aᵀx‖, so that σ_min ≥ (1-e)/‖Y‖; likewise with YA for
square A. Relative to σ_min, not to ‖A‖: sharp where rows or columns are graded, and still positive near singularity.
"""

from __future__ import annotations

import math

import numpy as np

from .bounds import (
    FAST,
    UNIT_ROUNDOFF,
    Array,
    Level,
    down,
    frobenius_upper,
    gamma,
    product_error,
    product_with_error,
    up,
)
from .spectra import singular_value_bounds

Interval = tuple[float, float]
POWER_STEPS = 20
CLOSE = 1.0 + 1e-9
"""Norm bounds that agree up to this factor are not improved."""
SMALL = 128
"""Up to this many singular values, ``singular_extremes`` goes to M3 at once."""
SHARP = 1.0 - 1e-6
"""At level ``fast``, a bound of σ_min by M1 that is below its estimate by more than this factor calls for M3, one by M3 that
is that far below its upper bound for M4."""


def norm_bounds(A: Array, level: Level = FAST) -> Interval:
    """Enclosure of the spectral norm of a finite float64 matrix (m, n)."""
    high = cheap_norm(A)
    low = _largest_line(A)
    if high <= CLOSE * low or min(A.shape) == 1:
        return low, high
    return extreme_bounds(A, level)[1]


def cheap_norm(A: Array) -> float:
    """Upper bound of the spectral norm: the smaller of sqrt(‖A‖₁‖A‖_∞), which bounds that of |A| too, and ‖A‖_F."""
    magnitudes = np.abs(A)
    rows, columns = A.shape
    one = up(float(magnitudes.sum(axis=0).max(initial=0.0)), rows)
    infinity = up(float(magnitudes.sum(axis=1).max(initial=0.0)), columns)
    return min(up(math.sqrt(one) * math.sqrt(infinity), 3), frobenius_upper(A))


def extreme_bounds(A: Array, level: Level = FAST) -> tuple[Interval, Interval]:
    """Enclosures of σ_min, the square root of λ_min(A Aᵀ) (0 if A has more rows than columns), and of the spectral
    norm."""
    return _extremes(A, level, screen=level is FAST)


def singular_extremes(A: Array, level: Level = FAST) -> tuple[Interval, Interval]:
    """Enclosures of the last of the min(m, n) singular values, and of the first; sharp to some 1e-12 for small matrices."""
    wide = A if A.shape[0] <= A.shape[1] else np.ascontiguousarray(A.T)
    return _extremes(wide, level, screen=level is FAST and len(wide) > SMALL)


def _extremes(A: Array, level: Level, screen: bool) -> tuple[Interval, Interval]:
    """``screen``: whether M1 is tried first."""
    rows, columns = A.shape
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0:
        return (0.0, 0.0), (0.0, 0.0)
    exponent = math.frexp(largest)[1]
    B = np.ldexp(A if rows <= columns else A.T, -exponent)  # exact but where it underflows, which ``vanished`` covers
    vanished = math.ldexp(float(A.size), -1074)
    smallest, norm = _by_cholesky(B, rows <= columns) if screen else (None, None)
    if norm is None or (smallest is None and rows <= columns):
        lower, upper = singular_value_bounds(B, level)
        smallest = smallest or (float(lower[-1]), float(upper[-1]))
        norm = norm or (float(lower[0]), float(upper[0]))
    norm = _scaled_back(norm, vanished, exponent)
    if rows > columns or smallest is None:
        return (0.0, 0.0), norm
    if smallest[0] < (SHARP if level is FAST else 1.0 / CLOSE) * smallest[1]:
        smallest = max(smallest[0], inverse_bound(B, level)), smallest[1]
    return _scaled_back(smallest, vanished, exponent), norm


def norm_at_most(A: Array, claim: float, level: Level = FAST) -> float:
    """Upper bound of ‖A‖ near ``claim``, from a Cholesky factorisation of claim² I - AᵀA as a witness; ``inf`` where it has none.

    claim² I - G = R Rᵀ + E with computed G and R: λ_max(AᵀA) ≤ claim² + ‖E‖ + ‖G - AᵀA‖. Cheaper than M3, at any level.
    """
    G, error = level.product(np.ascontiguousarray(A.T), A)
    with np.errstate(over="ignore", invalid="ignore"):
        G = 0.5 * (G + G.T)  # no farther from a symmetric matrix; rounded by at most u
        M = claim * claim * np.eye(len(G)) - G
    if not np.isfinite(M).all():
        return math.inf
    try:
        R = np.asarray(np.linalg.cholesky(M), dtype=np.float64)
    except np.linalg.LinAlgError:
        return math.inf
    if not np.isfinite(R).all():
        return math.inf
    # three roundings of at most u each: of G, of claim², of the difference
    rounding = UNIT_ROUNDOFF * (level.frobenius(G) + math.sqrt(len(G)) * claim * claim + level.frobenius(M))
    excess = up(level.residual(M, R, R.T) + error + up(rounding, 6) + 1e-300 * A.size, 3)
    return up(math.sqrt(up(claim * claim + excess, 2)))


# -- M1 ----------------------------------------------------------------------------------------------------------------


def _by_cholesky(B: Array, wants_smallest: bool) -> tuple[Interval | None, Interval | None]:
    """M1 for a scaled B with no more rows than columns: enclosures of σ_min and ‖B‖, ``None`` what it leaves open."""
    G, error = product_with_error(B, B.T)
    # the bound is the norm of an entrywise one that is symmetric, γ|B||Bᵀ|: it holds for either triangle reflected
    G = np.tril(G) + np.tril(G, -1).T
    values = np.linalg.eigvalsh(G)
    norm = _norm(B, G, float(values[-1]), error)
    return _smallest(B, G, float(values[0]), error) if wants_smallest else None, norm


def _norm(B: Array, G: Array, value: float, error: float) -> Interval | None:
    v = B @ B[int(np.argmax((B**2).sum(axis=1)))]
    for _ in range(POWER_STEPS):
        v = G @ (v / np.abs(v).max())
    # ‖Bᵀv‖/‖v‖; a relative error of 1e-6 covers the rounding of any admissible size
    low = max(0.0, float(np.linalg.norm(B.T @ v) / np.linalg.norm(v)) * (1.0 - 1e-6))
    shift = value * (1.0 + 1e-9) + 4.0 * factorisation_error(value * len(G), len(G))
    defect = _indefiniteness(np.diag(np.full(len(G), shift)) - G)
    return None if defect is None else (low, up(math.sqrt(up(shift + defect + error, 2))))


def _smallest(B: Array, G: Array, value: float, error: float) -> Interval | None:
    shift = value * (1.0 - 1e-7) - 4.0 * factorisation_error(float(np.trace(G)), len(G))
    if not shift > 0.0:
        return None
    M = G - np.diag(np.full(len(G), shift))
    defect = _indefiniteness(M)
    if defect is None:
        return None
    low = math.sqrt(max(0.0, down(shift - up(defect + error))))
    return (down(low), _rayleigh(B, M)) if low >= SHARP * math.sqrt(value) else None


def _rayleigh(B: Array, M: Array) -> float:
    """Upper bound of σ_min: ‖Bᵀv‖/‖v‖ for some v, here one that M, nearly singular, makes small; or the shortest row."""
    shortest = up(math.sqrt(up(float((B**2).sum(axis=1).min()), B.shape[1])))
    try:
        v = np.linalg.solve(M, np.where(np.arange(len(M)) % 3 == 0, -1.0, 1.0))[:, None]
    except np.linalg.LinAlgError:
        return shortest
    largest = float(np.abs(v).max())
    if not 0.0 < largest < math.inf:
        return shortest
    v = v / largest
    image = up(frobenius_upper(B.T @ v) + product_error(B.T, v))
    return min(shortest, up(image / down(float(np.linalg.norm(v)), len(v) + 2)))


def factorisation_error(trace: float, n: int) -> float:
    """Bound of ‖E‖ for a matrix of this trace, with the rounding of its diagonal; 1e-300 covers underflow.

    Twice the constant of the module's M1, with n + 2: kernels that multiply by a rounded reciprocal of the diagonal err
    by one more operation an entry.
    """
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
    return up(factorisation_error(up(float(diagonal.sum()), n), n) + rounding)


# -- M4 ----------------------------------------------------------------------------------------------------------------


def inverse_bound(A: Array, level: Level = FAST) -> float:
    """Lower bound of σ_min of A (m, n), m ≤ n, by M4; 0 where the witness is of no use."""
    with np.errstate(all="ignore"):
        try:
            if A.shape[0] == A.shape[1]:
                Y = np.linalg.inv(A)
            else:
                Q, R = np.linalg.qr(A.T)
                Y = Q @ np.linalg.inv(R).T
        except np.linalg.LinAlgError:
            return 0.0
    if not np.isfinite(Y).all():
        return 0.0
    Y, identity = np.asarray(Y, dtype=np.float64), np.eye(len(A))
    defect = level.sharp_residual(identity, A, Y)
    if A.shape[0] == A.shape[1]:
        defect = min(defect, level.sharp_residual(identity, Y, A))
    if not defect < 1.0:
        return 0.0
    norm = min(cheap_norm(Y), float(singular_value_bounds(Y, level)[1][0]))
    return max(0.0, down(down(1.0 - defect) / norm)) if math.isfinite(norm) else 0.0


def _largest_line(A: Array) -> float:
    """Lower bound of the spectral norm: the largest norm of a row or column."""
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    squares = (A / largest) ** 2
    longest = max(float(squares.sum(axis=0).max()), float(squares.sum(axis=1).max()))
    return max(0.0, down(math.sqrt(longest) * largest, max(A.shape) + 8))


def _scaled_back(bounds: Interval, moved: float, exponent: int) -> Interval:
    """Bounds of 2^exponent x for all x within ``moved`` of the bounds."""
    low, high = math.ldexp(down(bounds[0] - moved), exponent), math.ldexp(up(bounds[1] + moved), exponent)
    return max(0.0, down(low, 0)), up(high, 0)
