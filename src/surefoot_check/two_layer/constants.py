"""Quantities shared by the theorems on two-layer linear networks f(X) = X W1 W2ᵀ, W1 (n, h), W2 (m, h).

Base quantities are measured on the arrays (``surefoot_check.problems``) and published with slack in the safe
direction; everything here derives from them, in floats or in balls. Symbols: K smoothness, mu strong
convexity, L the gap ``loss - optimal value``, s- = λ_min(W1W1ᵀ) + λ_min(W2W2ᵀ), s+ = ‖W1‖² + ‖W2‖²,
D = W1ᵀW1 - W2ᵀW2 with eigenvalues λ_1 ≥ … ≥ λ_h.
"""

from __future__ import annotations

from ..numbers import Number, Quantities, larger, sqrt

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


def sharp_gain(eta: Number, k: tuple) -> Number:
    """h(η) = η - η²K'(η)/2: the gap falls by at least h(η)‖∇L‖² (Corollary of Theorem I)."""
    return eta - 0.5 * eta * eta * (k[0] + eta * (k[1] + eta * k[2]))


def sigma_max_squared_along(q: Quantities, beta2: Number, drift: Number) -> Number:
    """S: upper bound of s+ along a run whose imbalance drifted by at most ``drift`` (Theorem 4 of the proofs)."""
    plus, minus = q["lambda_plus"], q["lambda_minus"]
    return larger(
        upper_root(plus + drift, beta2) + upper_root(minus, beta2),
        upper_root(plus, beta2) + upper_root(minus + drift, beta2),
    )
