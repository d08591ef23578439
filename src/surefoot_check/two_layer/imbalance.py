"""Extreme singular values of the factors of W1 W2ᵀ and the eigenvalues of their imbalance D = W1ᵀW1 - W2ᵀW2 that theorems name.

Of wide and large factors all of it comes from one Gram matrix: with Z = [W1; W2], J = diag(I_n, -I_m) and

    Z Zᵀ = G = [P C; Cᵀ N],   P = W1W1ᵀ,  N = W2W2ᵀ,  C = W1W2ᵀ,

the extremes of W1 and W2 are those of P and N, and for every s > 0

    D has as many eigenvalues > s, and as many = s, as T = P - s I - C (N + s I)⁻¹ Cᵀ has > 0, and = 0.

Proof. The matrix [s I_h, Zᵀ; Z, J] has the Schur complements J - ZZᵀ/s of s I_h and s I - ZᵀJZ = s I - D of J. By Sylvester's law
sJ - G has as many negative, zero and positive eigenvalues as J and s I - D together, but for h positive ones. The block
-(N + s I) of sJ - G is negative definite (m negative ones), and its Schur complement is -T. So s I - D has as many negative and
zero eigenvalues as -T. ∎

The inverse is never formed. For any E (m, n), H = N + s I and ρ = Cᵀ - H E,

    T = P - s I - CE - EᵀCᵀ + EᵀHE - ρᵀH⁻¹ρ,   0 ⪯ ρᵀH⁻¹ρ ⪯ ‖ρ‖²/s I

(expand (E - H⁻¹Cᵀ)ᵀ H (E - H⁻¹Cᵀ), where H E - Cᵀ = -ρ). What precedes the last term is T̃ = F (G - s J) Fᵀ with F = [I, -Eᵀ]. So
-T̃ ⪰ 0 proves λ_1(D) ≤ s, and T̃ ⪰ ‖ρ‖²/s I proves λ_n(D) ≥ s; E is any solution that numpy returns. With W1 and W2 exchanged the
same is true of -D. An error ‖ΔG‖ ≤ e moves T̃ by at most ‖F‖²e ≤ (1 + ‖E‖²) e, and ρ by at most (1 + ‖E‖²)^½ e.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rigor.bounds import (
    FAST,
    UNIT_ROUNDOFF,
    Array,
    Level,
    difference_with_error,
    down,
    frobenius_upper,
    minus_multiple,
    scaled,
    times_power,
    up,
    witnesses,
)
from ..rigor.gram import CLOSE, SMALL, margin, norm_bounds, scaled_back, singular_extremes
from ..rigor.intervals import Interval
from ..rigor.spectra import imbalance_eigenvalue_bounds

OFFSET = 5e-7
"""Relative distance from an eigenvalue at which level ``fast`` proves its bound; level ``exact`` must confirm what that
publishes, and is nearer than ``CLOSE``."""


@dataclass(frozen=True)
class Imbalance:
    """Of W1 (n, h) and W2 (m, h): enclosures of the spectral norms, and of max(λ, 0) for λ_1(D), λ_n(D) (0 if n > h), λ_1(-D),
    λ_m(-D) (0 if m > h)."""

    norms: tuple[Interval, Interval]
    plus: Interval
    nth: Interval
    minus: Interval
    mth: Interval


def measure(W1: Array, W2: Array, level: Level = FAST) -> Imbalance:
    """All from one Gram matrix where the factors are wide and large, and that is sharp; else by ``spectra``."""
    (n, h), m = W1.shape, len(W2)
    from_gram = _of_gram(W1, W2, level) if SMALL < n + m <= h else None
    if isinstance(from_gram, Imbalance):
        return from_gram
    norms = from_gram or (singular_extremes(W1, level)[1], singular_extremes(W2, level)[1])
    lower, upper = imbalance_eigenvalue_bounds(W1, W2, level)

    def positive(low: Any, high: Any) -> Interval:
        return max(0.0, float(low)), max(0.0, float(high))

    return Imbalance(
        norms,
        positive(lower[0], upper[0]),
        positive(lower[n - 1], upper[n - 1]) if n <= h else (0.0, 0.0),
        positive(-upper[-1], -lower[-1]),
        positive(-upper[h - m], -lower[h - m]) if m <= h else (0.0, 0.0),
    )


def _of_gram(W1: Array, W2: Array, level: Level) -> Imbalance | tuple[Interval, Interval] | None:
    """All of it; the norms alone where the eigenvalues are not sharp; ``None`` where there is no Gram matrix."""
    n = len(W1)
    W = np.concatenate([W1, W2])
    Z, exponent = scaled(W)
    if abs(exponent) > 200 or not np.array_equal(times_power(Z, exponent), W):
        return None
    G, error = level.signed_gram(Z)
    if not (np.isfinite(G).all() and math.isfinite(error)):
        return None
    P, N, C = (np.ascontiguousarray(block) for block in (G[:n, :n], G[n:, n:], G[:n, n:]))
    high1, high2 = norm_bounds(Z[:n], level, (P, error)), norm_bounds(Z[n:], level, (N, error))
    norms = scaled_back(high1, 0.0, exponent), scaled_back(high2, 0.0, exponent)
    estimates = _estimates(G, n)
    if estimates is None:
        return norms
    ends: list[Interval] = []
    # from above: λ_n(D) ≤ λ_n(W1ᵀW1), at most the smallest entry of the diagonal; from below: λ_1(D) ≥ λ_1(W1ᵀW1) - ‖W2‖²
    for own, other, cross, (low, high), beyond, (top, last) in (
        (P, N, C, high1, high2[1], estimates[0]),
        (N, P, C.T, high2, high1[1], estimates[1]),
    ):
        block, norm = level.operand(other), high * high
        first = _confirmed(own, other, block, cross, error, norm, top, -1, level)
        nth = _confirmed(own, other, block, cross, error, norm, last, 1, level)
        if first is None or nth is None:
            return norms
        ends.append((max(0.0, down(down(low * low) - up(beyond * beyond))), first))
        ends.append((nth, up(float(np.diag(own).min()) + error)))
    plus, nth, minus, mth = (scaled_back(bounds, 0.0, 2 * exponent) for bounds in ends)
    return Imbalance(norms, plus, nth, minus, mth)


def _of_imbalance(L1: Array, L2: Array) -> Any:
    return np.linalg.eigvalsh(L1.T @ L1 - L2.T @ L2)


def _estimates(G: Array, n: int) -> list[tuple[float, float]] | None:
    """Computed λ_1 and λ_n of D, and λ_1 and λ_m of -D, all positive: those of LᵀJL with G = LLᵀ."""
    factor = witnesses(np.linalg.cholesky, G)
    spectrum = None if factor is None else witnesses(_of_imbalance, factor[0][:n], factor[0][n:])
    if spectrum is None:
        return None
    values, m = spectrum[0], len(G) - n
    extremes = [float(values[-1]), float(values[m]), float(-values[0]), float(-values[m - 1])]
    return [(extremes[0], extremes[1]), (extremes[2], extremes[3])] if min(extremes) > 0.0 else None


def _confirmed(
    own: Array,
    other: Array,
    operand: Any,
    cross: Array,
    error: float,
    norm: float,
    value: float,
    sign: int,
    level: Level,
) -> float | None:
    """A bound near ``value``: from below of the last of the eigenvalues that belong to ``own`` (``sign`` 1), or from above of the
    first (-1); ``None`` where that is not sharp. ``operand``: that of ``other``; ``norm``: of ``own``."""
    s = value * (1.0 - sign * (OFFSET if level is FAST else 0.6 * (CLOSE - 1.0)))
    solution = witnesses(np.linalg.solve, minus_multiple(other, -s), cross.T)
    if solution is None:
        return None
    E = level.witness(solution[0])
    size = frobenius_upper(E)
    NE, product_error = level.product(operand, E)
    minus, scaling_error = level.scaled_columns(E, np.full(E.shape[1], -s))
    HE, rounding = difference_with_error(NE, minus)
    HE_error = up(product_error + scaling_error + rounding, 3)
    K, rounding = difference_with_error(2.0 * cross.T, HE)
    K_error = up(HE_error + rounding)
    EK, EK_error = level.product(np.ascontiguousarray(E.T), K)
    half, half_rounding = difference_with_error(EK, -EK.T)  # twice the symmetric part
    T, T_rounding = difference_with_error(own, 0.5 * half)
    total = EK_error + size * K_error + 0.5 * half_rounding + T_rounding + (1.0 + size * size) * error + 1e-300 * T.size
    if sign > 0:
        rho, rounding = difference_with_error(np.ascontiguousarray(cross.T), HE)
        rho_norm = frobenius_upper(rho) + rounding + HE_error + (1.0 + size) * error
        total += rho_norm * rho_norm / s
    total = up(total, 16)
    diagonal = np.diag(T)
    keep = margin(norm, float(np.abs(diagonal).sum()), len(T), level)
    # sign (T - s I) - keep I, whose diagonal is rounded twice
    M = minus_multiple(sign * minus_multiple(T, s), total + keep)
    rounding = 2.0 * UNIT_ROUNDOFF * (float(np.abs(diagonal).max()) + s + total + keep)
    defect = level.indefiniteness(M)
    return s if defect is not None and up(defect + rounding, 6) <= keep else None
