"""Constants of deep linear ResNets on a ball of weights (Lemma 3 of docs/theorems/linear-resnet.md).

Network f(x) = B P_L … P_1 A x, P_l = I + W_l (m, m); data X̃ (d, r) of full column rank; A_l = P_{l-1} … P_1 A X̃,
B_l = B P_L … P_{l+1}, M_ij = P_{j-1} … P_{i+1}. On the joint Frobenius ball of radius ϱ around the measured weights, every
recursion below is a sum of nonnegative terms, so that the relative error of a result in floats is at most the number of
operations times the unit; it is moved outwards by ``SLACK`` once, which covers a depth of some thousand.

The lemma is written once: its arrays hold float64 (to decide, and at level ``fast``) or, of dtype object, ``flint.arb`` balls (at
level ``exact``), whose error is their own; ``SLACK`` then only widens the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..numbers import Number, larger
from ..statement import SLACK

Array = np.ndarray

UNDERFLOW = 1e-150
"""Added outwards to roots of sums of squares and to products of norms, of which some in floats may vanish."""

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # ½‖R‖_F²
    "pl_constant": "lower",  # μ(ϱ) = Σ w_l²: ‖∇‖_F² ≥ 2 μ gap on the ball
    "gauss_newton": "upper",  # Σ z_l²
    "bilinear": "upper",  # λ_max(M)
    "norm_A": "upper",
    "norm_B": "upper",
    "sigma_min_A": "lower",
    "sigma_min_B": "lower",
    "norm_X": "upper",
    "sigma_min_X": "lower",  # σ_r(X)
    "weight_norm": "upper",  # (Σ ‖W_l‖_F²)^½
}
"""Every base quantity and the direction in which its published value must err."""


@dataclass(frozen=True)
class Measured:
    """Rigorous bounds at the centre of the ball; arrays over layers l = 1 … L, ``between`` (L, L) above the diagonal.

    ``a``, ``a_low``: largest and r-th singular value of A_l; ``b``, ``b_low``: largest and k-th of B_l; ``p``, ``p_low``: largest
    and smallest of P_l; ``between``: upper bounds of ‖M_ij‖. All float64, or all balls.
    """

    a: Array
    a_low: Array
    b: Array
    b_low: Array
    p: Array
    p_low: Array
    between: Array


@dataclass(frozen=True)
class Constants:
    """Admissible constants on a ball: μ, Σz², λ_max(M); floats or ``arb`` balls."""

    pl_constant: Number
    gauss_newton: Number
    bilinear: Number


class _Deviations(NamedTuple):
    """δ and ε of Lemma 3, and ā = a + δ, b̄ = b + ε; all (L,). Where δ is small, ā - a would lose it to rounding."""

    delta: Array
    a_bar: Array
    epsilon: Array
    b_bar: Array


def _larger(x: Any, y: Any) -> Any:
    """Entrywise maximum (of balls: balls that contain it)."""
    return np.maximum(x, y) if x.dtype == np.float64 else np.frompyfunc(larger, 2, 1)(x, y)


def _smaller_bound(x: Array, y: Array) -> Array:
    """Entrywise the smaller of two upper bounds, or the one that is a number where the other is not."""
    if x.dtype == np.float64:
        return np.fmin(x, y)
    return np.frompyfunc(lambda a, b: a.min(b) if b.is_finite() else a, 2, 1)(x, y)


def _deviations(measured: Measured, radius: Number) -> _Deviations:
    depth = len(measured.a)
    delta, epsilon = np.zeros_like(measured.a), np.zeros_like(measured.b)
    a_bar, b_bar = measured.a.copy(), measured.b.copy()
    for layer in range(1, depth):
        # the squares of products, not products of squares: those of two small factors vanish beside a large one
        terms = measured.between[:layer, layer] * a_bar[:layer]
        delta[layer] = radius * (np.sqrt(terms @ terms) + UNDERFLOW)
        a_bar[layer] += delta[layer]
    for layer in range(depth - 2, -1, -1):
        terms = measured.between[layer, layer + 1 :] * b_bar[layer + 1 :]
        epsilon[layer] = radius * (np.sqrt(terms @ terms) + UNDERFLOW)
        b_bar[layer] += epsilon[layer]
    return _Deviations(delta, a_bar, epsilon, b_bar)


def pl_constant(measured: Measured, radius: Number) -> Number:
    """μ of ``constants``, alone: in time L² instead of L³."""
    return _pl_constant(measured, radius, _deviations(measured, radius))


def _pl_constant(measured: Measured, radius: Number, moved: _Deviations) -> Number:
    b_low = _larger(measured.b_low - moved.epsilon * (1.0 + SLACK), 0.0)
    w = b_low * _larger(measured.a_low - moved.delta * (1.0 + SLACK), 0.0)
    if (measured.p_low > 1e-150).all():  # its square does not underflow
        log_low, inverse = np.log(measured.p_low), 1.0 / (measured.p_low * measured.p_low)
        share = radius * np.sqrt(_all_but_one(inverse)) * (1.0 + SLACK)
        product = np.exp(_all_but_one(log_low) - _rounding_of_sums(log_low))
        w = _larger(w, measured.b_low[-1] * measured.a_low[0] * product * _larger(1.0 - share - SLACK, 0.0))
    w = _larger(w - UNDERFLOW, 0.0)
    return (w * w).sum() * (1.0 - 4.0 * SLACK)


def constants(measured: Measured, radius: Number) -> Constants:
    """Lemma 3 with ρ_l = ∞ and the joint radius ϱ = ``radius``, rounded outwards."""
    depth = len(measured.a)
    moved = _deviations(measured, radius)
    a_bar, b_bar = moved.a_bar, moved.b_bar
    m2, m_bar = measured.between * measured.between, measured.between.copy()
    m_bar2 = m2.copy()
    for j in range(2, depth):  # m̄_ij = m_ij + d_ij, column by column
        m_bar[: j - 1, j] += radius * (np.sqrt(m_bar2[: j - 1, :j] @ m2[:j, j]) + UNDERFLOW)
        m_bar2[: j - 1, j] = m_bar[: j - 1, j] * m_bar[: j - 1, j]
    # the multiplicative forms, which recover the paper's theorem at W = 0
    scale = measured.b[-1] * measured.a[0]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # p near 0: infinite or NaN, not the minimum
        log_p, inverse = np.log(measured.p), 1.0 / (measured.p * measured.p)
        rounding = _rounding_of_sums(log_p)
        without_one = np.exp(_all_but_one(log_p) + rounding + radius * np.sqrt(_all_but_one(inverse)))
        z = _smaller_bound(a_bar * b_bar, scale * without_one) + UNDERFLOW
        without_two = np.exp(_all_but_two(log_p) + rounding + radius * np.sqrt(_all_but_two(inverse)))
        direct = b_bar[None, :] * a_bar[:, None] * m_bar
        M = np.triu(_smaller_bound(direct, scale * without_two) + UNDERFLOW, 1)
    return Constants(
        pl_constant=_pl_constant(measured, radius, moved),
        gauss_newton=(z * z).sum() * (1.0 + 4.0 * SLACK),
        bilinear=_largest_eigenvalue(M + M.T) * (1.0 + 4.0 * SLACK),
    )


def _all_but_one(terms: Array) -> Array:
    """Σ_{t≠l} for every l (L,). Never total minus own term: that cancels where one layer is nearly singular."""
    before, after = _sums_around(terms)
    return before + after


def _all_but_two(terms: Array) -> Array:
    """Σ_{t≠i,j} for every pair i < j (L, L); what stands below the diagonal has no meaning."""
    before, after = _sums_around(terms)
    behind = np.cumsum(np.triu(np.broadcast_to(terms, (len(terms),) * 2), 1), axis=1)  # Σ_{i<t≤j}
    between = np.hstack([np.zeros((len(terms), 1)), behind[:, :-1]])
    return before[:, None] + between + after[None, :]


def _sums_around(terms: Array) -> tuple[Array, Array]:
    """Σ_{t<l} and Σ_{t>l} for every l (L,)."""
    nothing = type(terms.flat[0])(0)  # of the arithmetic in use: what is sqrt of it for one or two layers
    before, after = np.full(len(terms), nothing, terms.dtype), np.full(len(terms), nothing, terms.dtype)
    before[1:] = np.cumsum(terms[:-1])
    after[:-1] = np.cumsum(terms[:0:-1])[::-1]
    return before, after


def _rounding_of_sums(logarithms: Array) -> float:
    """Bound of the absolute error of any partial sum of logarithms, each of which is within 4 ulp; signs may cancel."""
    return (len(logarithms) + 8) * 2.0**-52 * float(np.abs(logarithms).sum())


def _largest_eigenvalue(M: Array) -> Number:
    """Upper bound of λ_max of a symmetric nonnegative matrix: max (Mv)_i / v_i for a positive v (Collatz-Wielandt)."""
    if len(M) == 1:
        return 0.0
    values = M.astype(np.float64)  # of balls their centres: v is any positive vector
    if not np.isfinite(values).all():
        return float("inf")
    v = np.ones(len(M))
    for _ in range(60):
        image = values @ v
        # positive; near the Perron vector the bound is tight. The shift: -λ_max may be an eigenvalue too (M is bipartite)
        v = image + (0.25 * image.max() + 1e-300) * v
        v /= v.max()
    v = np.maximum(v, 1e-9)
    return reduce(larger, (M @ v) / v)
