"""Rigorous bounds on norms, singular values and eigenvalues of float64 matrices.

What is trusted: IEEE 754 double precision, round to nearest with gradual underflow (see `self_test`), and the
a-priori model of a computed sum of k products, in any order, with or without fused multiply-add,

    |fl(A B) - A B| <= gamma_k |A| |B| + k eta   entrywise,   gamma_k = k u / (1 - k u),

with u = 2^-53 and eta = 2^-1074 (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section
3.1). LAPACK is not trusted: its factors are witnesses, whose residual and loss of orthogonality are bounded
here (Rump, BIT 51, 2011).

Every scalar below is rounded outwards with `up` and `down`. Matrices are first scaled by an exact power of
two, so that the largest entry lies in [1/2, 1): nothing overflows, and an entry that underflows in the
scaling moves by at most eta, which the bounds include.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
ETA = 2.0**-1074
# Inner dimension of one partial product: summing q blocks of b terms obeys the model with b + q - 1 for k.
BLOCK = 64
# Up to this many multiplications, `product_error` forms |A| |B| instead of bounding its norm.
ABSOLUTE_PRODUCT_COST = 1 << 23


def self_test() -> None:
    """Check the arithmetic that every bound relies on.

    Raises:
        RuntimeError: the rounding mode is not to nearest (ties to even), subnormal numbers are flushed to
            zero, or float64 arithmetic (scalar, elementwise or matrix product) is not IEEE 754 double
            precision.
    """
    one, half_ulp, tiny = np.ones(9), np.full(9, 2.0**-53), np.full(9, ETA)
    nearest = {
        "1 + 2^-53": (one + half_ulp, 1.0),
        "-1 - 2^-53": (-one - half_ulp, -1.0),
        "1 + 3*2^-54": (one + 1.5 * half_ulp, 1.0 + 2.0**-52),
        "1 - 2^-55": (one - half_ulp / 4, 1.0),
        "-1 + 2^-55": (-one + half_ulp / 4, -1.0),
        "1 / 3": (one / (3 * one), float.fromhex("0x1.5555555555555p-2")),
        "sqrt(2)": (np.sqrt(2 * one), float.fromhex("0x1.6a09e667f3bcdp+0")),
    }
    for text, (computed, expected) in nearest.items():
        if not bool(np.all(computed == expected)):
            raise RuntimeError(f"self-test: {text} is not rounded to nearest; reset the rounding mode of this process")
    scalar_one, scalar_step = float(one[0]), float(half_ulp[0])
    if scalar_one + scalar_step != 1.0 or scalar_one - scalar_step / 4 != 1.0:
        raise RuntimeError("self-test: Python floats are not rounded to nearest; reset the rounding mode")
    if math.sqrt(2 * scalar_one) != float.fromhex("0x1.6a09e667f3bcdp+0"):
        raise RuntimeError("self-test: math.sqrt is not correctly rounded; use another Python build")
    if math.fsum([1e100, 1.0, -1e100, 2.0**-60]) != 1.0 + 2.0**-60:
        raise RuntimeError("self-test: math.fsum is not correctly rounded; use another Python build")

    smallest_normal = np.full(9, 2.0**-1022)
    if not (
        bool(np.all(tiny * one == ETA))
        and bool(np.all(tiny + tiny == 2.0**-1073))
        and bool(np.all(smallest_normal / 4 == 2.0**-1024))
        and float(tiny[0]) > 0.0
        and float(smallest_normal[0]) / 4 > 0.0
        and bool(np.all(np.eye(9) @ tiny == ETA))
    ):
        raise RuntimeError(
            "self-test: subnormal numbers are flushed to zero; run in a fresh process, or switch that off "
            "(torch.set_flush_denormal(False))"
        )

    # Integer matrices whose products fit 53 bits but not the 24 or fewer of a lower-precision matrix product.
    left = (np.arange(80 * 80, dtype=np.int64).reshape(80, 80) * 7919) % (1 << 22)
    right = (np.arange(80 * 80, dtype=np.int64).reshape(80, 80) * 104729) % (1 << 22)
    if not np.array_equal(left.astype(np.float64) @ right.astype(np.float64), (left @ right).astype(np.float64)):
        raise RuntimeError("self-test: a float64 matrix product is not computed in double precision; use another BLAS")


def _array_up(x: Array, operations: int) -> Array:
    # Proof in `up`; elementwise.
    with np.errstate(over="ignore", under="ignore"):
        return np.nextafter(x + np.abs(x) * (operations * 2 * UNIT_ROUNDOFF), np.inf)


def _array_down(x: Array, operations: int) -> Array:
    return -_array_up(-x, operations)


def up(x: float, operations: int = 1) -> float:
    """Upper bound of a real number that was computed as `x` by rounded operations without cancellation.

    If x = y (1+d_1)...(1+d_j), |d_i| <= u, j <= `operations`, then |y - x| <= 2 j u |x| because
    (1-u)^-j - 1 <= 2 j u for j u <= 1/4. The product and the sum below err together by less than the gap to
    the next float (half a gap, and u times the product or eta/2), which the step of one float covers.

    Args:
        x: a finite or infinite float of any sign.
        operations: number of rounded operations, from 0 to 2^40.

    Returns:
        A float not below y; the next float above x or more.

    Raises:
        ValueError: x is NaN, or `operations` is out of range.
    """
    if math.isnan(x):
        raise ValueError("up/down: x is NaN; check that the inputs are finite")
    if not 0 <= operations <= 1 << 40:
        raise ValueError(f"up/down: operations is {operations}; it must lie between 0 and 2^40")
    if math.isinf(x):  # an overflowed negative value lies below -max: the bound above it is -max
        return math.nextafter(x, math.inf)
    return math.nextafter(x + abs(x) * (operations * 2 * UNIT_ROUNDOFF), math.inf)


def down(x: float, operations: int = 1) -> float:
    """Lower bound of a real number that was computed as `x`: the mirror image of `up`."""
    return -up(-x, operations)


def gamma(terms: int) -> float:
    """Upper bound of γ_k = ku/(1 - ku) for k = ``terms``."""
    # k u is exact for k < 2^53; 1 - k u, the quotient: two operations.
    if terms >= 1 << 50:
        raise ValueError(f"matrix product with inner dimension {terms}: the error model needs less than 2^50")
    product = terms * UNIT_ROUNDOFF
    return up(product / (1.0 - product), 2) if terms else 0.0


def _finite(A: np.ndarray, name: str, two_dimensional: bool = True) -> Array:
    if not isinstance(A, np.ndarray) or A.dtype != np.float64:
        kind = A.dtype if isinstance(A, np.ndarray) else type(A).__name__
        raise ValueError(f"{name} is {kind}; it must be a numpy array of dtype float64 (convert it exactly first)")
    if two_dimensional and A.ndim != 2:
        raise ValueError(f"{name} has shape {A.shape}; it must have two dimensions")
    if not bool(np.isfinite(A).all()):
        raise ValueError(f"{name} contains NaN or infinity; every entry must be finite")
    return A


def _scaled(A: Array) -> tuple[Array, int]:
    """B, e with |A - 2^e B| <= 2^e eta entrywise and max |B| in [1/2, 1), or B = A = 0."""
    if A.size == 0:
        return A, 0
    exponent = math.frexp(max(float(A.max()), -float(A.min())))[1]
    return np.ldexp(A, -exponent), exponent


def _rescaled(x: Array, exponent: int, towards: float) -> Array:
    # ldexp is exact, or errs by at most eta/2 where it underflows; an overflow to infinity is corrected by
    # the step inwards. An exact zero stays zero.
    with np.errstate(over="ignore", under="ignore"):
        return np.where(x == 0.0, 0.0, np.nextafter(np.ldexp(x, exponent), towards))


def frobenius_upper(A: np.ndarray) -> float:
    """Upper bound of the Frobenius norm of an array of any shape (Euclidean norm of a vector).

    Args:
        A: float64 array, finite, any number of dimensions.

    Returns:
        A float not below ||A||_F; 0.0 if and only if A is zero or empty. Relative slack about 3e-14.

    Raises:
        ValueError: A is not a float64 array or not finite.
    """
    B, exponent = _scaled(_finite(A, "A", two_dimensional=False))
    if not bool(B.any()):
        return 0.0
    squares = np.square(B).ravel()
    chunk_sums = np.add.reduceat(squares, np.arange(0, squares.size, 256))
    # Each chunk obeys the model with g = gamma_256, fsum rounds once: the sum of squares is at most
    # (total (1 + 2u) + N eta) / (1 - g). Four operations: fsum, sum, difference, quotient.
    underflow = math.ldexp(float(squares.size), -1074)
    square = up((math.fsum(chunk_sums) + underflow) / down(1.0 - gamma(256)), 4)
    # Scaling moved B by at most eta in every entry, so by N eta in norm.
    norm = up(up(math.sqrt(square)) + underflow)
    return float(_rescaled(np.array(norm), exponent, np.inf))


def product_with_error(A: Array, B: Array) -> tuple[Array, float]:
    """C and e with ||C - A B||_F <= e.

    Blocks of b columns, q of them: gamma_b |A||B| from the products and gamma_{q-1} (1 + gamma_b) |A||B| from
    their summation, together at most gamma_{b+q-1} |A||B|; the underflow term at most doubles to 2 k eta in
    each entry. || |A||B| ||_F <= ||A||_F ||B||_F.
    """
    inner = A.shape[1]
    C = A[:, :BLOCK] @ B[:BLOCK]
    for start in range(BLOCK, inner, BLOCK):
        C += A[:, start : start + BLOCK] @ B[start : start + BLOCK]
    terms = min(inner, BLOCK) + max(math.ceil(inner / BLOCK) - 1, 0)
    relative = up(gamma(terms) * up(frobenius_upper(A) * frobenius_upper(B)))
    return C, up(relative + math.ldexp(2.0 * inner * C.size, -1074), 2)


def residual_upper(A: Array, left: Array, right: Array) -> float:
    """Upper bound of ||A - left right||_F."""
    C, error = product_with_error(left, right)
    # |fl(x - y) - (x - y)| <= u |fl(x - y)|: a factor 1 + u on the norm, then the sum.
    return up(up(frobenius_upper(A - C), 1) + error)


def orthogonality_defect(Q: Array) -> float:
    """Upper bound of ||Q^T Q - I||_F, which bounds the spectral norm."""
    return residual_upper(np.eye(Q.shape[1]), Q.T, Q)


def product_error(A: np.ndarray, B: np.ndarray) -> float:
    """Upper bound of ||fl(A @ B) - A B||_F for numpy's product of the very arrays given.

    The smaller of gamma_k ||A||_F ||B||_F and, where the cost allows, gamma_k || |A||B| ||_F, plus k eta in
    each entry for underflow.

    Args:
        A: (m, k) float64, finite.
        B: (k, p) float64, finite.

    Returns:
        The bound; infinity where the product may overflow.

    Raises:
        ValueError: wrong dtype or shape, or not finite.
    """
    rows, inner = _finite(A, "A").shape
    columns = _finite(B, "B").shape[1]
    if B.shape[0] != inner:
        raise ValueError(f"A has shape {A.shape} and B has shape {B.shape}; the inner dimensions must agree")
    norm = up(frobenius_upper(A) * frobenius_upper(B))
    # Every partial sum is at most (1 + gamma_k) ||A||_F ||B||_F: below max/2, nothing overflows.
    if norm >= 2.0**1023:
        return math.inf
    if rows * inner * columns <= ABSOLUTE_PRODUCT_COST:
        # |A||B| <= (fl(|A||B|) + k eta) / (1 - gamma_k); k eta in each entry is at most m p k eta in norm.
        computed = up(frobenius_upper(np.abs(A) @ np.abs(B)) + math.ldexp(rows * inner * columns, -1074))
        norm = min(norm, up(computed / down(1.0 - gamma(inner))))
    return up(up(gamma(inner) * norm) + math.ldexp(rows * inner * columns, -1074))


def singular_value_bounds(A: np.ndarray) -> tuple[Array, Array]:
    """Lower and upper bounds of every singular value, from a computed SVD that is only a witness.

    With A = U S V^T + R, ||U^T U - I|| <= a < 1 and ||V^T V - I|| <= b < 1, the singular values of U and V
    lie in [sqrt(1-a), sqrt(1+a)] and [sqrt(1-b), sqrt(1+b)], so that for every i

        s_i sqrt((1-a)(1-b)) - ||R|| <= sigma_i(A) <= s_i sqrt((1+a)(1+b)) + ||R||

    (sigma_i(XY) between sigma_i(X) sigma_min(Y) and sigma_i(X) sigma_max(Y), then Weyl; Rump, BIT 51, 2011).

    Args:
        A: (m, n) float64, finite.

    Returns:
        (lower, upper), each of length min(m, n), descending; lower is clipped at 0. Where LAPACK fails, lower
        is 0 and upper_i = ||A||_F / sqrt(i). The slack is about (64 + k/64) u sqrt(k) ||A||_F.

    Raises:
        ValueError: A is not a finite two-dimensional float64 array.
    """
    B, exponent = _scaled(_finite(A, "A"))
    count = min(B.shape)
    if count == 0 or not bool(B.any()):
        return np.zeros(count), np.zeros(count)
    bounds = _singular_value_witness(B)
    if bounds is None:
        # i sigma_i^2 <= ||A||_F^2; a square root and a quotient.
        norm = frobenius_upper(A)
        return np.zeros(count), _array_up(norm / np.sqrt(np.arange(1.0, count + 1.0)), 2)
    lower, upper = bounds
    return np.maximum(_rescaled(lower, exponent, -np.inf), 0.0), _rescaled(upper, exponent, np.inf)


def _singular_value_witness(B: Array) -> tuple[Array, Array] | None:
    # B scaled: its entries stand for a matrix within eta entrywise.
    try:
        U, s, Vt = np.linalg.svd(B, full_matrices=False)
    except np.linalg.LinAlgError:
        return None
    if not bool(np.isfinite(U).all() and np.isfinite(s).all() and np.isfinite(Vt).all()):
        return None
    left_defect, right_defect = orthogonality_defect(U), orthogonality_defect(Vt.T)
    if not (left_defect < 0.5 and right_defect < 0.5):
        return None
    # B - U S V^T = (B - T V^T) + (T - U S) V^T with T = fl(U S), |T - U S| <= u |T| + eta and
    # ||V|| <= sqrt(1 + b) < 2. The scaling of B adds N eta, that of T 2 N' eta.
    T = U * s
    scaling_error = 2.0 * up(UNIT_ROUNDOFF * frobenius_upper(T))
    underflow = math.ldexp(B.size + 2.0 * T.size, -1074)
    residual = up(residual_upper(B, T, Vt) + scaling_error + underflow, 2)
    # Difference, difference, product under the root.
    shrink = down(math.sqrt(down((1.0 - left_defect) * (1.0 - right_defect), 3)))
    stretch = up(math.sqrt(up((1.0 + left_defect) * (1.0 + right_defect), 3)))
    s = np.sort(np.abs(s))[::-1]
    lower = _array_down(_array_down(s * shrink, 1) - residual, 1)
    return lower, _array_up(_array_up(s * stretch, 1) + residual, 1)


def spectral_upper(A: np.ndarray) -> float:
    """Upper bound of the spectral norm: the smallest of the SVD bound, sqrt(||A||_1 ||A||_inf) and ||A||_F.

    Args:
        A: (m, n) float64, finite.

    Returns:
        A float not below ||A||; 0.0 for a zero or empty matrix.

    Raises:
        ValueError: A is not a finite two-dimensional float64 array.
    """
    frobenius = frobenius_upper(_finite(A, "A"))
    if frobenius == 0.0 or min(A.shape) == 1:
        return frobenius
    B, exponent = _scaled(A)
    magnitudes = np.abs(B)
    # Sums of m and n nonnegative terms: m - 1 and n - 1 operations; N eta for the scaling.
    underflow = math.ldexp(float(B.size), -1074)
    one_norm = up(float(magnitudes.sum(axis=0).max()) + underflow, B.shape[0])
    infinity_norm = up(float(magnitudes.sum(axis=1).max()) + underflow, B.shape[1])
    mixed = np.array(up(math.sqrt(up(one_norm * infinity_norm))))
    _, upper = singular_value_bounds(A)
    return min(frobenius, float(_rescaled(mixed, exponent, np.inf)), float(upper[0]))


def _ostrowski(lower: Array, upper: Array, defect: float) -> tuple[Array, Array]:
    """Bounds of t_i x_i for lower_i <= x_i <= upper_i and t_i in [1 - defect, 1 + defect], defect < 1."""
    shrink, stretch = down(1.0 - defect), up(1.0 + defect)
    below = _array_down(lower * np.where(lower >= 0.0, shrink, stretch), 1)
    above = _array_up(upper * np.where(upper >= 0.0, stretch, shrink), 1)
    return below, above


def symmetric_eigenvalue_bounds(A: np.ndarray) -> tuple[Array, Array]:
    """Lower and upper bounds of every eigenvalue of a symmetric matrix, from a computed `eigh` as a witness.

    With A = V W V^T + R and ||V^T V - I|| <= a < 1, the eigenvalues of V W V^T are t_i w_i with t_i in
    [1-a, 1+a] (Ostrowski's theorem), and those of A differ from them by at most ||R|| (Weyl).

    Args:
        A: (n, n) float64, finite, exactly symmetric.

    Returns:
        (lower, upper), each of length n, descending. Where LAPACK fails, -||A||_F and ||A||_F.

    Raises:
        ValueError: A is not finite, not float64, not square or not exactly symmetric.
    """
    B, exponent = _scaled(_finite(A, "A"))
    size = B.shape[0]
    if B.shape[1] != size or not np.array_equal(A, A.T):
        raise ValueError(f"A (shape {A.shape}) is not exactly symmetric; average it with its transpose first")
    if size == 0 or not bool(B.any()):
        return np.zeros(size), np.zeros(size)
    bounds = _eigenvalue_witness(B)
    if bounds is None:
        norm = frobenius_upper(A)
        return np.full(size, -norm), np.full(size, norm)
    return _rescaled(bounds[0], exponent, -np.inf), _rescaled(bounds[1], exponent, np.inf)


def _eigenvalue_witness(B: Array) -> tuple[Array, Array] | None:
    try:
        w, V = np.linalg.eigh(B)
    except np.linalg.LinAlgError:
        return None
    if not bool(np.isfinite(w).all() and np.isfinite(V).all()):
        return None
    defect = orthogonality_defect(V)
    if not defect < 0.5:
        return None
    # As for the SVD: T = fl(V W), |T - V W| <= u |T| + eta, ||V|| < 2, and eta for the scaling of B.
    T = V * w
    scaling_error = 2.0 * up(UNIT_ROUNDOFF * frobenius_upper(T))
    residual = up(residual_upper(B, T, V.T) + scaling_error + math.ldexp(3.0 * B.size, -1074), 2)
    w = np.sort(w)[::-1]
    lower, upper = _ostrowski(w, w, defect)
    return _array_down(lower - residual, 1), _array_up(upper + residual, 1)


def _signed_gram(X: Array, signs: Array) -> tuple[Array, float]:
    """Exactly symmetric S and e with ||S - X diag(signs) X^T||_F <= e, signs +1 or -1."""
    C, error = product_with_error(X * signs, X.T)
    # Averaging with the transpose does not increase the distance to a symmetric matrix; it rounds once
    # (u |S|) and may underflow (eta).
    S = 0.5 * (C + C.T)
    rounding = up(UNIT_ROUNDOFF * frobenius_upper(S))
    return S, up(error + rounding + math.ldexp(float(S.size), -1074), 2)


def imbalance_eigenvalue_bounds(W1: np.ndarray, W2: np.ndarray) -> tuple[Array, Array]:
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

    Args:
        W1: (n, h) float64, finite.
        W2: (m, h) float64, finite.

    Returns:
        (lower, upper), each of length h, descending. No h-by-h matrix is formed when h > n + m,
        unless LAPACK fails.

    Raises:
        ValueError: wrong dtype or shape, or not finite.
    """
    n, h = _finite(W1, "W1").shape
    m = _finite(W2, "W2").shape[0]
    if W2.shape[1] != h:
        raise ValueError(f"W1 has shape {W1.shape} and W2 has shape {W2.shape}; the widths (columns) must agree")
    Z, exponent = _scaled(np.concatenate([W1, W2]))
    if not bool(Z.any()):
        return np.zeros(h), np.zeros(h)
    signs = np.concatenate([np.ones(n), -np.ones(m)])
    bounds = _low_rank_imbalance(Z, signs) if h > n + m else None
    if bounds is None:
        D, error = _signed_gram(np.ascontiguousarray(Z.T), signs)
        lower, upper = symmetric_eigenvalue_bounds(D)
    else:
        lower, upper, error = bounds
    # Scaling moved Z by X, |X| <= eta, so D by 2 ||Z|| ||X|| + ||X||^2 <= 3 N^2 eta, as |Z| < 1 (entrywise).
    error = up(error + math.ldexp(3.0 * Z.size, -1074) * Z.size, 3)
    lower = _rescaled(_array_down(lower - error, 1), 2 * exponent, -np.inf)
    upper = _rescaled(_array_up(upper + error, 1), 2 * exponent, np.inf)
    lower[: max(h - m, 0)] = np.maximum(lower[: max(h - m, 0)], 0.0)
    upper[n:] = np.minimum(upper[n:], 0.0)
    return lower, upper


def _low_rank_imbalance(Z: Array, signs: Array) -> tuple[Array, Array, float] | None:
    # Bounds of the eigenvalues of Q M Q^T and of ||F|| (notation of `imbalance_eigenvalue_bounds`).
    p, h = Z.shape
    try:
        Q, R = np.linalg.qr(Z.T)
    except np.linalg.LinAlgError:
        return None
    if not bool(np.isfinite(Q).all() and np.isfinite(R).all()):
        return None
    defect = orthogonality_defect(Q)
    if not defect < 0.5:
        return None
    residual = residual_upper(Z.T, Q, R)
    # ||Q R|| <= sqrt(1 + a) ||R||: sum and root, then the product. ||F||: two products and a sum.
    norm = up(up(math.sqrt(1.0 + defect), 2) * spectral_upper(R))
    perturbation = up(2.0 * residual * norm + residual * residual, 3)
    M, forming_error = _signed_gram(R, signs)
    lower, upper = symmetric_eigenvalue_bounds(M)
    lower, upper = _array_down(lower - forming_error, 1), _array_up(upper + forming_error, 1)
    lower, upper = _ostrowski(lower, upper, defect)
    zeros = np.zeros(h - p)
    lower = np.sort(np.concatenate([lower, zeros]))[::-1]
    upper = np.sort(np.concatenate([upper, zeros]))[::-1]
    return lower, upper, perturbation
