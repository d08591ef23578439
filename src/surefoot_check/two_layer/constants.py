"""Quantities shared by the theorems on two-layer linear networks f(X) = X W1 W2ᵀ, W1 (n, h), W2 (m, h).

Base quantities are measured on the arrays (``surefoot_check.problems``) and published with slack in the safe
direction; everything here derives from them, in floats or in balls. Symbols: K smoothness, mu strong
convexity, L the gap ``loss - optimal value``, s- = λ_min(W1W1ᵀ) + λ_min(W2W2ᵀ), s+ = ‖W1‖² + ‖W2‖²,
D = W1ᵀW1 - W2ᵀW2 with eigenvalues λ_1 ≥ … ≥ λ_h.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, larger, sqrt
from ..statement import Inequality

DIRECTIONS: dict[str, str] = {
    "smoothness": "upper",  # K
    "strong_convexity": "lower",  # mu
    "lambda_plus": "upper",  # max(λ_1(D), 0)
    "lambda_minus": "upper",  # max(-λ_h(D), 0)
    "lambda_n": "lower",  # max(λ_n(D), 0), 0 if n > h
    "lambda_m": "lower",  # max(-λ_{h+1-m}(D), 0), 0 if m > h
    "initial_gap": "upper",  # L(0)
    "optimum_sigma_min": "lower",  # σ_{min(n,m)}(W*)
    "optimum_sigma_max": "upper",  # ‖W*‖
    "initial_distance": "upper",  # ‖W(0) - W*‖_F
    "sigma_min_squared": "lower",  # s-(0)
    "sigma_max_squared": "upper",  # s+(0)
}
"""Every base quantity and the direction in which its published value must err."""


TINY = 1e-300
"""Least divisor in ``lower_root``, where 0 may be divided by 0; a larger divisor leaves a lower bound."""


def lower_root(a: Number, lam: Number, beta: Number) -> Number:
    """F(a, λ, β), from below: the root p ≥ a of (p - a)(p + λ) = β², in the form that does not cancel (proofs, Theorem 3)."""
    total = a + lam
    return a + 2.0 * beta * beta / larger(total + sqrt(total * total + 4.0 * beta * beta), TINY)


def upper_root(lam: Number, beta: Number) -> Number:
    """H(λ, β): the root p ≥ λ of p(p - λ) = β²."""
    return 0.5 * (lam + sqrt(lam * lam + 4.0 * beta * beta))


def margin_below(q: Quantities, radius: Number) -> Number:
    """β1 = max(0, σ_{min(n,m)}(W*) - radius); 0 where no unique minimiser is known."""
    if "optimum_sigma_min" not in q:
        return 0.0
    return larger(q["optimum_sigma_min"] - radius, 0.0)


def margin_above(q: Quantities, radius: Number) -> Number:
    """β2 = ‖W*‖ + radius."""
    return q["optimum_sigma_max"] + radius


def gap_radius(q: Quantities, gap: Number) -> Number:
    """sqrt(2L/μ) ≥ ‖W - W*‖_F at every point whose gap is at most L."""
    return sqrt(2.0 * gap / q["strong_convexity"])


def distance_radius(q: Quantities) -> Number:
    """sqrt(K/μ)‖W(0) - W*‖_F, the radius of the printed theorem; never smaller than ``gap_radius``."""
    return sqrt(q["smoothness"] / q["strong_convexity"]) * q["initial_distance"]


def alpha1(q: Quantities, beta1: Number) -> Number:
    """Lower bound of s- from imbalance and margin, correct for every n and m (Theorem 3 of the proofs; erratum E.3)."""
    n, m = int(q["n"]), int(q["m"])
    return lower_root(q["lambda_n"], q["lambda_minus"], beta1 if n <= m else 0.0) + lower_root(
        q["lambda_m"], q["lambda_plus"], beta1 if m <= n else 0.0
    )


def alpha2(q: Quantities, beta2: Number) -> Number:
    """Upper bound of s+ (Theorem 3 of the proofs)."""
    return upper_root(q["lambda_plus"], beta2) + upper_root(q["lambda_minus"], beta2)


def sharp_coefficients(K: Number, s_plus: Number, g_norm: Number, g_frobenius: Number, w_norm: Number) -> tuple:
    """k0, k1, k2 of K'(η) = k0 + k1 η + k2 η² (Theorem I of the proofs)."""
    return K * s_plus + g_norm, K * s_plus * g_frobenius, 0.5 * K * w_norm * g_norm * g_frobenius


def printed_coefficients(K: Number, s_plus: Number, gap: Number, w_norm: Number) -> tuple:
    """k0, k1, k2 of the paper's local smoothness K_t(η)."""
    r = sqrt(2.0 * K * gap)
    return K * s_plus + r, 3.0 * K * s_plus * r, 6.0 * K * K * w_norm * gap


def sharp_gain(eta: Number, k: tuple) -> Number:
    """h(η) = η - η²K'(η)/2: the gap falls by at least h(η)‖∇L‖² (Corollary of Theorem I)."""
    return eta - 0.5 * eta * eta * (k[0] + eta * (k[1] + eta * k[2]))


def sharp_floor(where: str, eta: Number, k: tuple, cap: Number) -> Iterator[Inequality]:
    """That η is a floor step of Theorem I: h increases up to η, and the budget is kept."""
    best = eta * (k[0] + eta * (1.5 * k[1] + eta * 2.0 * k[2]))
    yield Inequality(f"{where}: the gain increases up to the floor step", best, "<=", 1.0)
    spent = eta * (1.0 / cap + 0.5 * k[0] + eta * (0.5 * k[1] + eta * 0.5 * k[2]))
    yield Inequality(f"{where}: the floor step keeps the budget", spent, "<=", 1.0)


def contraction_factor(eta: Number, lower: Number, upper: Number, curvature: Number) -> Number:
    """r(η) = max(|1 - η l|, |1 - η u|) + η² s of Theorem III; sqrt(L) contracts by it."""
    return larger(larger(1.0 - eta * lower, eta * upper - 1.0), 0.0) + eta * eta * curvature


def contraction_floor(
    where: str, eta: Number, lower: Number, upper: Number, curvature: Number, cap: Number
) -> Iterator[Inequality]:
    """That η is a floor step of Theorem III: r(η) = 1 - η l + η² s decreases up to η, and the budget is kept."""
    loss = eta * (lower - eta * curvature)
    yield Inequality(f"{where}: the floor step is at most 2/(l+u)", eta * (lower + upper), "<=", 2.0)
    yield Inequality(f"{where}: the factor decreases up to the floor step", 2.0 * eta * curvature, "<=", lower)
    spent = 2.0 * upper * eta * eta
    yield Inequality(f"{where}: the floor step keeps the budget", spent, "<=", cap * loss * (2.0 - loss))


def sigma_max_squared_along(q: Quantities, beta2: Number, drift: Number) -> Number:
    """S: upper bound of s+ along a run whose imbalance drifted by at most ``drift`` (Theorem 4 of the proofs)."""
    plus, minus = q["lambda_plus"], q["lambda_minus"]
    return larger(
        upper_root(plus + drift, beta2) + upper_root(minus, beta2),
        upper_root(plus, beta2) + upper_root(minus + drift, beta2),
    )
