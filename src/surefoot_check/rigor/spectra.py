"""Rigorous bounds of singular values and eigenvalues of float64 matrices, at any level of trust.

LAPACK is never trusted: its factors are witnesses, whose residual and loss of orthogonality are bounded by the level's
primitives (Rump, BIT 51, 2011). Every scalar is rounded outwards with `up` and `down`. Matrices are first scaled by an exact
power of two, so that the largest entry lies in [1/2, 1): nothing overflows, and an entry that underflows in the scaling moves
by at most eta, which the bounds include.
"""

from __future__ import annotations

import math

import numpy as np

from .bounds import (
    FAST,
    Array,
    Level,
    array_down,
    array_up,
    down,
    finite,
    frobenius_upper,
    rescaled,
    scaled,
    up,
    witnesses,
)


def singular_value_bounds(A: np.ndarray, level: Level = FAST) -> tuple[Array, Array]:
    """Lower and upper bounds of every singular value, from a computed SVD that is only a witness.

    With A = U S V^T + R, ||U^T U - I|| <= a < 1 and ||V^T V - I|| <= b < 1, the singular values of U and V
    lie in [sqrt(1-a), sqrt(1+a)] and [sqrt(1-b), sqrt(1+b)], so that for every i

        s_i sqrt((1-a)(1-b)) - ||R|| <= sigma_i(A) <= s_i sqrt((1+a)(1+b)) + ||R||

    (sigma_i(XY) between sigma_i(X) sigma_min(Y) and sigma_i(X) sigma_max(Y), then Weyl; Rump, BIT 51, 2011).

    Of a finite float64 matrix (m, n): (lower, upper), each of length min(m, n), descending; lower is clipped at 0. Where LAPACK
    fails, lower is 0 and upper_i = ||A||_F / sqrt(i). The slack is about (64 + k/64) u sqrt(k) ||A||_F.
    """
    B, exponent = scaled(finite(A, "A"))
    count = min(B.shape)
    if count == 0 or not bool(B.any()):
        return np.zeros(count), np.zeros(count)
    bounds = _singular_value_witness(B, level)
    if bounds is None:
        # i sigma_i^2 <= ||A||_F^2; a square root and a quotient.
        norm = frobenius_upper(A)
        return np.zeros(count), array_up(norm / np.sqrt(np.arange(1.0, count + 1.0)), 2)
    lower, upper = bounds
    return np.maximum(rescaled(lower, exponent, -np.inf), 0.0), rescaled(upper, exponent, np.inf)


def _singular_value_witness(B: Array, level: Level) -> tuple[Array, Array] | None:
    # B scaled: its entries stand for a matrix within eta entrywise.
    factors = witnesses(np.linalg.svd, B, full_matrices=False)
    if factors is None:
        return None
    U, s, Vt = factors
    U, Vt = level.witness(U), level.operand(level.witness(Vt))
    left_defect, right_defect = level.defect(U), level.defect(Vt.T)
    if not (left_defect < 0.5 and right_defect < 0.5):
        return None
    # B - U S V^T = (B - T V^T) + (T - U S) V^T with T = fl(U S) and ||V|| <= sqrt(1 + b) < 2; N eta for the scaling of B.
    T, scaling_error = level.scaled_columns(U, s)
    residual = up(level.residual(B, T, Vt) + 2.0 * scaling_error + math.ldexp(float(B.size), -1074), 2)
    # Difference, difference, product under the root.
    shrink = down(math.sqrt(down((1.0 - left_defect) * (1.0 - right_defect), 3)))
    stretch = up(math.sqrt(up((1.0 + left_defect) * (1.0 + right_defect), 3)))
    s = np.sort(np.abs(s))[::-1]
    lower = array_down(array_down(s * shrink, 1) - residual, 1)
    return lower, array_up(array_up(s * stretch, 1) + residual, 1)


def _ostrowski(lower: Array, upper: Array, defect: float) -> tuple[Array, Array]:
    """Bounds of t_i x_i for lower_i <= x_i <= upper_i and t_i in [1 - defect, 1 + defect], defect < 1."""
    shrink, stretch = down(1.0 - defect), up(1.0 + defect)
    below = array_down(lower * np.where(lower >= 0.0, shrink, stretch), 1)
    above = array_up(upper * np.where(upper >= 0.0, stretch, shrink), 1)
    return below, above


def symmetric_eigenvalue_bounds(A: np.ndarray, level: Level = FAST) -> tuple[Array, Array]:
    """Lower and upper bounds of every eigenvalue of a symmetric matrix, from a computed `eigh` as a witness.

    With A = V W V^T + R and ||V^T V - I|| <= a < 1, the eigenvalues of V W V^T are t_i w_i with t_i in
    [1-a, 1+a] (Ostrowski's theorem), and those of A differ from them by at most ||R|| (Weyl).

    Of a finite float64 matrix (n, n), exactly symmetric: (lower, upper), each of length n, descending. Where LAPACK fails,
    -||A||_F and ||A||_F.
    """
    B, exponent = scaled(finite(A, "A"))
    size = B.shape[0]
    if B.shape[1] != size or not np.array_equal(A, A.T):
        raise ValueError(f"A (shape {A.shape}) is not exactly symmetric; average it with its transpose first")
    if size == 0 or not bool(B.any()):
        return np.zeros(size), np.zeros(size)
    bounds = _eigenvalue_witness(B, level)
    if bounds is None:
        norm = frobenius_upper(A)
        return np.full(size, -norm), np.full(size, norm)
    return rescaled(bounds[0], exponent, -np.inf), rescaled(bounds[1], exponent, np.inf)


def _eigenvalue_witness(B: Array, level: Level) -> tuple[Array, Array] | None:
    factors = witnesses(np.linalg.eigh, B)
    if factors is None:
        return None
    w, V = factors
    V = level.witness(V)
    columns = level.operand(V)
    defect = level.defect(columns)
    if not defect < 0.5:
        return None
    # As for the SVD: T = fl(V W), ||V|| < 2, and eta for the scaling of B.
    T, scaling_error = level.scaled_columns(V, w)
    residual = up(level.residual(B, T, columns.T) + 2.0 * scaling_error + math.ldexp(float(B.size), -1074), 2)
    w = np.sort(w)[::-1]
    lower, upper = _ostrowski(w, w, defect)
    return array_down(lower - residual, 1), array_up(upper + residual, 1)


def imbalance_eigenvalue_bounds(W1: np.ndarray, W2: np.ndarray, level: Level = FAST) -> tuple[Array, Array]:
    """Lower and upper bounds of every eigenvalue of the imbalance D = W1^T W1 - W2^T W2.

    With Z = [W1; W2] (p = n + m rows) and J = diag(I_n, -I_m), D = Z^T J Z. If h <= p, D is formed, and the
    rounding of forming it is added (Weyl). If h > p, with Z^T = Q R + E from a computed thin QR factorisation
    (a witness):

        D = (Q R + E) J (Q R + E)^T = Q M Q^T + F,   M = R J R^T,   ||F|| <= 2 ||E|| ||Q R|| + ||E||^2.

    Let ||Q^T Q - I|| <= a < 1 and Q = P H its polar decomposition. Q M Q^T = P (H M H) P^T has h - p
    eigenvalues 0 and those of H M H, which are t_i lambda_i(M) with t_i in [1-a, 1+a] (Ostrowski). Order
    statistics are monotone in each entry: sorting the lower bounds together with the zeros gives lower bounds
    of the sorted eigenvalues, likewise the upper bounds. Then Weyl with F. Lastly D has at most n positive
    and m negative eigenvalues, because lambda_{n+1}(D) <= lambda_{n+1}(W1^T W1) = 0; so h - p of them are
    exactly 0.

    Of finite float64 matrices W1 (n, h) and W2 (m, h): (lower, upper), each of length h, descending. No h-by-h matrix is
    formed when h > n + m, unless LAPACK fails.
    """
    n, h = finite(W1, "W1").shape
    m = finite(W2, "W2").shape[0]
    if W2.shape[1] != h:
        raise ValueError(f"W1 has shape {W1.shape} and W2 has shape {W2.shape}; the widths (columns) must agree")
    Z, exponent = scaled(np.concatenate([W1, W2]))
    if not bool(Z.any()):
        return np.zeros(h), np.zeros(h)
    signs = np.concatenate([np.ones(n), -np.ones(m)])
    bounds = _low_rank_imbalance(Z, signs, level) if h > n + m else None
    if bounds is None:
        D, error = level.signed_gram(np.ascontiguousarray(Z.T), signs)
        lower, upper = symmetric_eigenvalue_bounds(D, level)
    else:
        lower, upper, error = bounds
    # Scaling moved Z by X, |X| <= eta, so D by 2 ||Z|| ||X|| + ||X||^2 <= 3 N^2 eta, as |Z| < 1 (entrywise).
    error = up(error + math.ldexp(3.0 * Z.size, -1074) * Z.size, 3)
    lower = rescaled(array_down(lower - error, 1), 2 * exponent, -np.inf)
    upper = rescaled(array_up(upper + error, 1), 2 * exponent, np.inf)
    lower[: max(h - m, 0)] = np.maximum(lower[: max(h - m, 0)], 0.0)
    upper[n:] = np.minimum(upper[n:], 0.0)
    return lower, upper


def _low_rank_imbalance(Z: Array, signs: Array, level: Level) -> tuple[Array, Array, float] | None:
    # Bounds of the eigenvalues of Q M Q^T and of ||F|| (notation of `imbalance_eigenvalue_bounds`).
    p, h = Z.shape
    factors = witnesses(np.linalg.qr, Z.T)
    if factors is None:
        return None
    Q, R = factors
    Q, R = level.operand(level.witness(Q)), level.witness(R)
    defect = level.defect(Q)
    if not defect < 0.5:
        return None
    residual = level.residual(Z.T, Q, R)
    # ||Q R|| <= sqrt(1 + a) ||R||_F: sum and root, then the product. ||F||: two products and a sum.
    norm = up(up(math.sqrt(1.0 + defect), 2) * frobenius_upper(R))
    perturbation = up(2.0 * residual * norm + residual * residual, 3)
    M, forming_error = level.signed_gram(R, signs)
    lower, upper = symmetric_eigenvalue_bounds(M, level)
    lower, upper = array_down(lower - forming_error, 1), array_up(upper + forming_error, 1)
    lower, upper = _ostrowski(lower, upper, defect)
    zeros = np.zeros(h - p)
    lower = np.sort(np.concatenate([lower, zeros]))[::-1]
    upper = np.sort(np.concatenate([upper, zeros]))[::-1]
    return lower, upper, perturbation
