"""Extreme singular values: the screen M1, the witnesses M3, the approximate inverse M4, and which to use when.

M1. Let G be symmetric and known up to an error, and let M = G - s I have a Cholesky factorisation: then λ_min(M) ≥ -e, and
λ_min(G) ≥ s - e. At level ``fast`` e is the a-priori error of a factorisation that completes (``bounds.factorisation_error``), at
level ``exact`` the measured distance from the product of the factors. No eigenvalue that LAPACK returns is trusted: it only says
which shift to try. Several times faster than M3; its slack relative to σ_min² is some n u tr(G)/σ_min², so that M3 is the sharper
one for condition numbers above some hundreds at n = 1000.

M3. ``spectra.singular_value_bounds``: singular vectors as witnesses; of a symmetric matrix eigenvectors.

M4. Y with ‖I - AY‖ ≤ e < 1: for every unit x, 1 - e ≤ ‖YᵀAᵀx‖ ≤ ‖Y‖‖Aᵀx‖, so that σ_min ≥ (1-e)/‖Y‖; likewise with YA for
square A. Relative to σ_min, not to ‖A‖: sharp where rows or columns are graded, and still positive near singularity.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .approximation import Approximation
from .bounds import (
    FAST,
    UNIT_ROUNDOFF,
    Array,
    Level,
    array_down,
    array_up,
    down,
    factorisation_error,
    finite,
    frobenius_upper,
    minus_multiple,
    rescaled,
    scaled,
    times_power,
    up,
    witnesses,
)
from .intervals import Interval
from .spectra import singular_value_bounds, symmetric_eigenvalue_bounds

Gram = tuple[Array, float]
"""A symmetric matrix that is A Aᵀ up to an error in Frobenius norm."""
CLOSE = 1.0 + 1e-9
"""Norm bounds that agree up to this factor are not improved."""
SMALL = 128
"""Up to this many singular values or eigenvalues, M3 is used at once."""
NEAR = 1e-10
"""Relative distance from an eigenvalue of a shift beyond it, besides ``margin``."""
ENOUGH = 1e-4
"""Relative width of an enclosure of an extreme eigenvalue by M1 at level ``fast``, at which no eigenvectors are computed: its
a-priori error is far above the true one, and grows with n."""
SHARE = 1.0 - 1e-12
"""The true part of an upper bound of a norm, and more."""


def sharp(level: Level) -> float:
    """A bound of σ_min by M1 that is below its estimate by more than this factor calls for M3, one by M3 that is that far below
    its upper bound for M4. What level ``fast`` published, level ``exact`` must confirm."""
    return 1.0 - 1e-6 if level is FAST else 1.0 / CLOSE


def norm_bounds(A: Array, level: Level = FAST, gram: Gram | None = None) -> Interval:
    """Enclosure of the spectral norm of a finite float64 matrix (m, n).

    ``gram``: A Aᵀ, if it is known already and m ≤ n.
    """
    cheap, low = cheap_norm(A), _largest_line(A)
    if cheap <= CLOSE * low or min(A.shape) == 1:
        return low, cheap
    low, high = _extremes(A, level, level is FAST or min(A.shape) > SMALL, gram, wants_smallest=False)[1]
    return low, min(high, cheap)


def cheap_norm(A: Array) -> float:
    """Upper bound of the spectral norm: the smaller of sqrt(‖A‖₁‖A‖_∞), which bounds that of |A| too, and ‖A‖_F."""
    magnitudes = np.abs(A)
    rows, columns = A.shape
    one_norm = up(float(magnitudes.sum(axis=0).max(initial=0.0)), rows)
    infinity = up(float(magnitudes.sum(axis=1).max(initial=0.0)), columns)
    return min(up(math.sqrt(one_norm) * math.sqrt(infinity), 3), frobenius_upper(A))


def gram_of(A: Approximation, level: Level) -> Approximation:
    """AAᵀ, exactly symmetric."""
    G, error = level.signed_gram(A.value)
    return Approximation(G, up(error + A.error * (2.0 * cheap_norm(A.value) + A.error), 5))


def extreme_bounds(A: Array, level: Level = FAST) -> tuple[Interval, Interval]:
    """Enclosures of σ_min, the square root of λ_min(A Aᵀ) (0 if A has more rows than columns), and of the spectral
    norm."""
    return _extremes(A, level, screen=level is FAST or min(A.shape) > SMALL)


def singular_extremes(A: Array, level: Level = FAST) -> tuple[Interval, Interval]:
    """Enclosures of the last of the min(m, n) singular values, and of the first; sharp to some 1e-12 for small matrices."""
    wide = A if A.shape[0] <= A.shape[1] else np.ascontiguousarray(A.T)
    return _extremes(wide, level, len(wide) > SMALL)


def symmetric_extremes(A: Array, level: Level = FAST, error: float = 0.0) -> tuple[Interval, Interval]:
    """Enclosures of the least and the largest eigenvalue of every symmetric matrix within ``error`` of a finite and exactly
    symmetric A (n, n): by M1 where that is within ``ENOUGH``, or leaves less open than ``error``, else by eigenvectors."""
    B, exponent = scaled(finite(A, "A"))
    values = witnesses(np.linalg.eigvalsh, B) if len(B) > SMALL and np.array_equal(A, A.T) else None
    least = largest = None
    if values is not None:
        enough = float(rescaled(np.array(error), -exponent, 0.0))
        least = _largest_eigenvalue(-B, -float(values[0][0]), enough, level)
        largest = _largest_eigenvalue(B, float(values[0][-1]), enough, level)
    if least is None or largest is None:
        lower, upper = symmetric_eigenvalue_bounds(B, level)
        least = least or (-float(upper[-1]), -float(lower[-1]))
        largest = largest or (float(lower[0]), float(upper[0]))
    vanished = math.ldexp(float(B.size), -1074)
    lows, highs = (np.array([of_least, of_largest]) for of_least, of_largest in zip(least, largest, strict=True))
    lows, highs = rescaled(lows - vanished, exponent, -np.inf), rescaled(highs + vanished, exponent, np.inf)
    (below, low), (above, high) = array_down(lows - error, 2).tolist(), array_up(highs + error, 2).tolist()
    return (-above, -below), (low, high)


def _extremes(
    A: Array, level: Level, screen: bool, gram: Gram | None = None, wants_smallest: bool = True
) -> tuple[Interval, Interval]:
    """``screen``: whether M1 is tried first."""
    rows, columns = A.shape
    wants_smallest = wants_smallest and rows <= columns
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0:
        return (0.0, 0.0), (0.0, 0.0)
    exponent = math.frexp(largest)[1]
    B = times_power(
        A if rows <= columns else A.T, -exponent
    )  # exact but where it underflows, which ``vanished`` covers
    vanished = math.ldexp(float(A.size), -1074)
    smallest, norm = None, None
    if screen:
        if gram is None or abs(exponent) > 200:
            gram = level.signed_gram(B)
        else:  # exact but for an underflow, by at most eta/2 an entry
            G = times_power(gram[0], -2 * exponent)
            gram = G, up(math.ldexp(gram[1], -2 * exponent) + math.ldexp(float(G.size), -1074))
        smallest, norm = _by_cholesky(B, gram, level, wants_smallest)
    if norm is None or (smallest is None and wants_smallest):
        lower, upper = singular_value_bounds(B, level)
        smallest = smallest or (float(lower[-1]), float(upper[-1]))
        norm = norm or (float(lower[0]), float(upper[0]))
    norm = scaled_back(norm, vanished, exponent)
    if not wants_smallest or smallest is None:
        return (0.0, 0.0), norm
    if smallest[0] < sharp(level) * smallest[1]:
        smallest = max(smallest[0], inverse_bound(B, level)), smallest[1]
    return scaled_back(smallest, vanished, exponent), norm


def norm_at_most(A: Array, claim: float, level: Level = FAST) -> float:
    """Upper bound of ‖A‖ near ``claim``, from a Cholesky factorisation of claim² I - AᵀA; ``inf`` where it has none.

    λ_max(AᵀA) ≤ claim² + e + ‖G - AᵀA‖ with the computed G and e ≥ -λ_min(claim² I - G). Cheaper than M3, at any level.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        G, error = level.signed_gram(np.ascontiguousarray(A.T))
        excess = _excess(minus_multiple(G, claim * claim), level)
    if excess is None or not math.isfinite(error):
        return math.inf
    # claim² is rounded, and vanishes where it is small
    return up(math.sqrt(up(claim * claim + excess + error + 1e-300 * A.size, 4)))


# -- M1 ----------------------------------------------------------------------------------------------------------------


def margin(norm: float, trace: float, n: int, level: Level) -> float:
    """By how much a shift keeps away from an extreme eigenvalue of an (n, n) matrix of this norm and trace, so that the
    factorisation completes and its error is covered. This decides what is tried, and has no part in the rigour of a bound."""
    return 4.0 * factorisation_error(trace, n) if level is FAST else 16.0 * math.sqrt(n) * UNIT_ROUNDOFF * norm


def _by_cholesky(B: Array, gram: Gram, level: Level, wants_smallest: bool) -> tuple[Interval | None, Interval | None]:
    """M1 for a scaled B with no more rows than columns: enclosures of σ_min and ‖B‖, ``None`` what it leaves open."""
    G, error = gram
    if not (np.isfinite(G).all() and math.isfinite(error)):
        return None, None
    values = np.asarray(np.linalg.eigvalsh(G), dtype=np.float64)
    # a sharp lower bound of the norm is worth the conversion of B only where σ_min needs that too
    adjoint = level.operand(B.T) if wants_smallest or level is FAST else None
    norm = _norm(B, adjoint, gram, float(values[-1]), level)
    return _smallest(B, adjoint, gram, values, level) if wants_smallest else None, norm


def _norm(B: Array, adjoint: Any, gram: Gram, value: float, level: Level) -> Interval | None:
    G, error = gram
    shift = value * (1.0 + 1e-9) + margin(value, value * len(G), len(G), level)
    M = minus_multiple(G, shift)
    excess = _excess(M, level)
    if excess is None:
        return None
    low = _largest_line(B)
    if adjoint is not None:
        low = max(low, _near_eigenvector(adjoint, M, level)[0])
    return low, up(math.sqrt(up(shift + excess + error, 2)))


def _smallest(B: Array, adjoint: Any, gram: Gram, values: Array, level: Level) -> Interval | None:
    (G, error), value = gram, float(values[0])
    shift = value * (1.0 - (1e-7 if level is FAST else 1e-10))
    shift -= margin(float(values[-1]), float(np.trace(G)), len(G), level)
    if not shift > 0.0:
        return None
    M = minus_multiple(G, shift)
    excess = _excess(-M, level)
    if excess is None:
        return None
    low = math.sqrt(max(0.0, down(shift - up(excess + error))))
    if not low >= sharp(level) * math.sqrt(value):
        return None
    shortest = up(math.sqrt(up(float((B**2).sum(axis=1).min()), B.shape[1])))
    return down(low), min(shortest, _near_eigenvector(adjoint, M, level)[1])


def _excess(M: Array, level: Level) -> float | None:
    """e ≥ 0 with λ_max(G - s I) ≤ e for the G - s I that M is but for the rounding of its diagonal; ``None`` where -M has
    no Cholesky factor."""
    excess = level.indefiniteness(-M)
    return None if excess is None else up(excess + up(float(np.abs(np.diag(M)).max()) * UNIT_ROUNDOFF))


def _largest_eigenvalue(A: Array, value: float, error: float, level: Level) -> Interval | None:
    """Enclosure of the largest eigenvalue of a symmetric A, computed as ``value``; ``None`` where it is wider than ``error`` and
    not sharp."""
    diagonal, size = np.diag(A), abs(value)
    trace = float(np.abs(value - diagonal).sum())
    shift = value + size * NEAR + margin(max(size, float(np.abs(diagonal).max())), trace, len(A), level)
    M = minus_multiple(A, shift)
    excess = _excess(M, level)
    v = None if excess is None else _near_kernel(M, level)
    if excess is None or v is None:
        return None
    low, high = _rayleigh(A, v, level), up(shift + excess)
    enough = ENOUGH if level is FAST else 1.0 - sharp(level)
    return (low, high) if high - low <= max(error, enough * size) else None


def _rayleigh(A: Array, v: Array, level: Level) -> float:
    """Lower bound of vᵀAv/‖v‖²."""
    size = frobenius_upper(v)
    image, error = level.product(A, v)
    form, rounding = level.product(np.ascontiguousarray(v.T), image)
    least = down(float(form[0, 0]) - up(size * error + rounding, 2))
    return down(least / (up(size * size) if least >= 0.0 else down(size * size * SHARE, 2)))


def _near_kernel(M: Array, level: Level) -> Array | None:
    """A vector (n, 1) that M, nearly singular, makes small; its largest entry is 1 or -1, up to rounding."""
    solution = witnesses(np.linalg.solve, M, np.where(np.arange(len(M)) % 3 == 0, -1.0, 1.0))
    if solution is None or not solution[0].any():
        return None
    return level.witness(solution[0][:, None] / float(np.abs(solution[0]).max()))


def _near_eigenvector(adjoint: Any, M: Array, level: Level) -> Interval:
    """Enclosure of ‖Bᵀv‖/‖v‖ for some v that M makes small; ``adjoint``: Bᵀ as an operand."""
    v = _near_kernel(M, level)
    if v is None:
        return 0.0, math.inf
    image, error = level.product(adjoint, v)
    size, norm = frobenius_upper(v), frobenius_upper(image)
    low = down(down(norm * SHARE - error, 2) / size)
    return max(0.0, low), up(up(norm + error) / down(size * SHARE, 2))


# -- M4 ----------------------------------------------------------------------------------------------------------------


def inverse_bound(A: Array, level: Level = FAST) -> float:
    """Lower bound of σ_min of A (m, n), m ≤ n, by M4; 0 where the witness is of no use."""
    inverses = witnesses(np.linalg.inv if A.shape[0] == A.shape[1] else _right_inverse, A)
    if inverses is None:
        return 0.0
    Y, identity = inverses[0], np.eye(len(A))
    defect = level.sharp_residual(identity, A, Y)
    if A.shape[0] == A.shape[1]:
        defect = min(defect, level.sharp_residual(identity, Y, A))
    if not defect < 1.0:
        return 0.0
    norm = min(cheap_norm(Y), float(singular_value_bounds(Y, level)[1][0]))
    return max(0.0, down(down(1.0 - defect) / norm)) if math.isfinite(norm) else 0.0


def _right_inverse(A: Array) -> Array:
    Q, R = np.linalg.qr(A.T)
    return Q @ np.linalg.inv(R).T


def _largest_line(A: Array) -> float:
    """Lower bound of the spectral norm: the largest norm of a row or column."""
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    squares = (A / largest) ** 2
    longest = max(float(squares.sum(axis=0).max()), float(squares.sum(axis=1).max()))
    return max(0.0, down(math.sqrt(longest) * largest, max(A.shape) + 8))


def scaled_back(bounds: Interval, moved: float, exponent: int) -> Interval:
    """Bounds of 2^exponent x for all x within ``moved`` of the bounds."""
    low, high = math.ldexp(down(bounds[0] - moved), exponent), math.ldexp(up(bounds[1] + moved), exponent)
    return max(0.0, down(low, 0)), up(high, 0)
