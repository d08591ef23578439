"""Outward rounding, norms and products of float64 matrices with bounds of their errors, and the two levels of trust.

What level ``fast`` trusts: IEEE 754 double precision, round to nearest with gradual underflow (see `self_test`), and the
a-priori model of a computed sum of k products, in any order, with or without fused multiply-add,

    |fl(A B) - A B| <= gamma_k |A| |B| + k eta   entrywise,   gamma_k = k u / (1 - k u),

with u = 2^-53 and eta = 2^-1074 (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section
3.1), and of a Cholesky factorisation that completes (`factorisation_error`). Otherwise LAPACK is not trusted: its
factors are witnesses, whose residual and loss of orthogonality are bounded (``spectra``). Level ``exact`` (module
``exact``) computes the same primitives in integers, and trusts no product of numpy's.

Every scalar below is rounded outwards with `up` and `down`. Matrices are first scaled by an exact power of
two, so that the largest entry lies in [1/2, 1): nothing overflows, and an entry that underflows in the
scaling moves by at most eta, which the bounds include.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
ETA = 2.0**-1074
EXP_ERROR = 16 * UNIT_ROUNDOFF
"""Relative error granted to numpy's exp, log and tanh at level ``fast`` (they are documented to be within 4 ulp)."""
# Inner dimension of one partial product: summing q blocks of b terms obeys the model with b + q - 1 for k.
BLOCK = 64
# Up to this many multiplications, `product_with_error` forms |A| |B| instead of bounding its norm.
ABSOLUTE_PRODUCT_COST = 1 << 23


class NotFiniteError(ValueError):
    """A number overflowed, or is none: there is no bound."""


def self_test() -> None:
    """Check the arithmetic that every bound relies on; ``RuntimeError`` if the rounding mode is not to nearest (ties to even),
    subnormal numbers are flushed to zero, or float64 arithmetic (scalar, elementwise, matrix product) is not of double precision.
    """
    ones, half_ulp, tiny = np.ones(9), np.full(9, 2.0**-53), np.full(9, ETA)
    nearest = {
        "1 + 2^-53": (ones + half_ulp, 1.0),
        "-1 - 2^-53": (-ones - half_ulp, -1.0),
        "1 + 3*2^-54": (ones + 1.5 * half_ulp, 1.0 + 2.0**-52),
        "1 - 2^-55": (ones - half_ulp / 4, 1.0),
        "-1 + 2^-55": (-ones + half_ulp / 4, -1.0),
        "1 / 3": (ones / (3 * ones), float.fromhex("0x1.5555555555555p-2")),
        "sqrt(2)": (np.sqrt(2 * ones), float.fromhex("0x1.6a09e667f3bcdp+0")),
    }
    for text, (computed, expected) in nearest.items():
        if not bool(np.all(computed == expected)):
            raise RuntimeError(f"self-test: {text} is not rounded to nearest; reset the rounding mode of this process")
    scalar_one, scalar_step = float(ones[0]), float(half_ulp[0])
    if scalar_one + scalar_step != 1.0 or scalar_one - scalar_step / 4 != 1.0:
        raise RuntimeError("self-test: Python floats are not rounded to nearest; reset the rounding mode")
    if math.sqrt(2 * scalar_one) != float.fromhex("0x1.6a09e667f3bcdp+0"):
        raise RuntimeError("self-test: math.sqrt is not correctly rounded; use another Python build")
    if math.fsum([1e100, 1.0, -1e100, 2.0**-60]) != 1.0 + 2.0**-60:
        raise RuntimeError("self-test: math.fsum is not correctly rounded; use another Python build")

    smallest_normal = np.full(9, 2.0**-1022)
    if not (
        bool(np.all(tiny * ones == ETA))
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


def array_up(x: Array, operations: int) -> Array:
    """``up`` of each entry."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = np.nextafter(x + np.abs(x) * (operations * 2 * UNIT_ROUNDOFF), np.inf)
    if np.isnan(result).any():
        raise NotFiniteError("array_up/array_down: an entry is NaN; check that the inputs are finite")
    return result


def array_down(x: Array, operations: int) -> Array:
    """``down`` of each entry."""
    return -array_up(-x, operations)


def up(x: float, operations: int = 1) -> float:
    """Upper bound, the next float above x or more, of a number that was computed as x, finite or infinite and of any sign, by
    at most so many (up to 2^40) rounded operations without cancellation. ``NotFiniteError`` for NaN.

    If x = y (1+d_1)...(1+d_j), |d_i| <= u, then |y - x| <= 2 j u |x| because (1-u)^-j - 1 <= 2 j u for j u <= 1/4. The
    product and the sum below err together by less than the gap to the next float (half a gap, and u times the product or
    eta/2), which the step of one float covers.
    """
    if math.isnan(x):
        raise NotFiniteError("up/down: x is NaN; check that the inputs are finite")
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


def finite(A: np.ndarray, name: str, two_dimensional: bool = True) -> Array:
    """A itself; ``ValueError`` where it is not a finite float64 array (of two dimensions)."""
    if not isinstance(A, np.ndarray) or A.dtype != np.float64:
        kind = A.dtype if isinstance(A, np.ndarray) else type(A).__name__
        raise ValueError(f"{name} is {kind}; it must be a numpy array of dtype float64 (convert it exactly first)")
    if two_dimensional and A.ndim != 2:
        raise ValueError(f"{name} has shape {A.shape}; it must have two dimensions")
    if not bool(np.isfinite(A).all()):
        raise NotFiniteError(f"{name} contains NaN or infinity; every entry must be finite")
    return A


def times_power(A: Array, exponent: int) -> Array:
    """2^exponent A: exact, or rounded once where it underflows."""
    if abs(exponent) < 1000:  # a product takes a tenth of the time of ldexp
        return A * 2.0**exponent
    return np.ldexp(A, exponent)


def scaled(A: Array) -> tuple[Array, int]:
    """B, e with |A - 2^e B| <= 2^e eta entrywise and max |B| in [1/2, 1), or B = A = 0."""
    if A.size == 0:
        return A, 0
    exponent = math.frexp(max(float(A.max()), -float(A.min())))[1]
    return times_power(A, -exponent), exponent


def rescaled(x: Array, exponent: int, towards: float) -> Array:
    """Bounds of 2^exponent x on the side of ``towards``."""
    # ldexp is exact, or errs by at most eta/2 where it underflows; an overflow to infinity is corrected by
    # the step inwards. An exact zero stays zero.
    with np.errstate(over="ignore", under="ignore"):
        return np.where(x == 0.0, 0.0, np.nextafter(np.ldexp(x, exponent), towards))


def frobenius_upper(A: np.ndarray) -> float:
    """Upper bound of the Frobenius norm of a finite float64 array of any shape (Euclidean norm of a vector): 0.0 if and only
    if A is zero or empty; else with a relative slack of about 3e-14."""
    B, exponent = finite(A, "A", two_dimensional=False), 0
    largest = max(float(B.max(initial=0.0)), -float(B.min(initial=0.0)))
    if largest == 0.0:
        return 0.0
    # within this range no square overflows, and what underflows is far below the largest
    if not 2.0**-400 <= largest <= 2.0**400:
        B, exponent = scaled(B)
    squares = np.square(B).ravel(order="K")  # without a copy
    chunk_sums = np.add.reduceat(squares, np.arange(0, squares.size, 256))
    # Each chunk obeys the model with g = gamma_256, fsum rounds once: the sum of squares is at most
    # (total (1 + 2u) + N eta) / (1 - g). Four operations: fsum, sum, difference, quotient.
    underflow = math.ldexp(float(squares.size), -1074)
    square = up((math.fsum(chunk_sums) + underflow) / down(1.0 - gamma(256)), 4)
    # Scaling moved B by at most eta in every entry, so by N eta in norm.
    norm = up(up(math.sqrt(square)) + underflow)
    return float(rescaled(np.array(norm), exponent, np.inf))


def product_with_error(A: Array, B: Array) -> tuple[Array, float]:
    """C and e with ||C - A B||_F <= e.

    Blocks of b columns, q of them: gamma_b |A||B| from the products and gamma_{q-1} (1 + gamma_b) |A||B| from
    their summation, together at most gamma_{b+q-1} |A||B|; the underflow term at most doubles to 2 k eta in
    each entry. || |A||B| ||_F <= ||A||_F ||B||_F, or is formed where the cost allows.
    """
    inner = A.shape[1]
    C = A[:, :BLOCK] @ B[:BLOCK]
    for start in range(BLOCK, inner, BLOCK):
        C += A[:, start : start + BLOCK] @ B[start : start + BLOCK]
    terms = min(inner, BLOCK) + max(math.ceil(inner / BLOCK) - 1, 0)
    norm = up(frobenius_upper(A) * frobenius_upper(B))
    if inner * C.size <= ABSOLUTE_PRODUCT_COST:
        norm = min(norm, _absolute_product(A, B))
    return C, up(up(gamma(terms) * norm) + math.ldexp(2.0 * inner * C.size, -1074), 2)


def residual_upper(A: Array, left: Array, right: Array) -> float:
    """Upper bound of ||A - left right||_F."""
    C, error = product_with_error(left, right)
    # |fl(x - y) - (x - y)| <= u |fl(x - y)|: a factor 1 + u on the norm, then the sum.
    return up(up(frobenius_upper(A - C), 1) + error)


def orthogonality_defect(Q: Array) -> float:
    """Upper bound of ||Q^T Q - I||_F, which bounds the spectral norm."""
    return residual_upper(np.eye(Q.shape[1]), Q.T, Q)


def _absolute_product(A: Array, B: Array) -> float:
    """Upper bound of || |A||B| ||_F, at the cost of a product; infinity where it overflows."""
    (rows, inner), columns = A.shape, B.shape[1]
    with np.errstate(over="ignore"):
        product = np.abs(A) @ np.abs(B)
    if not bool(np.isfinite(product).all()):
        return math.inf
    # |A||B| <= (fl(|A||B|) + k eta) / (1 - gamma_k); k eta in each entry is at most m p k eta in norm.
    computed = up(frobenius_upper(product) + math.ldexp(rows * inner * columns, -1074))
    return up(computed / down(1.0 - gamma(inner)))


def sharp_residual_upper(A: Array, left: Array, right: Array) -> float:
    """``residual_upper`` through |left||right|, which no scaling of the inner dimension changes."""
    norm = _absolute_product(left, right)
    if not norm < 2.0**1000:
        return math.inf
    terms = math.ldexp(left.size * right.shape[1], -1074)
    error = up(up(gamma(left.shape[1]) * norm) + terms)
    return up(up(frobenius_upper(A - left @ right), 1) + error)


def signed_gram(X: Array, signs: Array | None = None) -> tuple[Array, float]:
    """Exactly symmetric S and e with ||S - X diag(signs) X^T||_F <= e, signs +1 or -1 (all 1 where they are not given)."""
    C, error = product_with_error(X if signs is None else X * signs, X.T)  # signs multiply exactly
    # Averaging with the transpose does not increase the distance to a symmetric matrix; it rounds once
    # (u |S|) and may underflow (eta).
    S = 0.5 * (C + C.T)
    rounding = up(UNIT_ROUNDOFF * frobenius_upper(S))
    return S, up(error + rounding + math.ldexp(float(S.size), -1074), 2)


def difference_with_error(A: Array, B: Array) -> tuple[Array, float]:
    """C and e with ||C - (A - B)||_F <= e: each entry is rounded once, by at most u |C|; a difference never underflows."""
    C = A - B
    return C, up(UNIT_ROUNDOFF * frobenius_upper(C))


def scaled_columns(A: Array, s: Array) -> tuple[Array, float]:
    """C and e with ||C - A diag(s)||_F <= e: u |C| and eta/2 in each entry."""
    C = A * s
    return C, up(up(UNIT_ROUNDOFF * frobenius_upper(C)) + math.ldexp(float(C.size), -1074))


def factorisation_error(trace: float, n: int) -> float:
    """How far below 0 an eigenvalue of a symmetric (n, n) matrix of this trace may be if its Cholesky factorisation completes.

    The computed factor satisfies M + E = R Rᵀ with |E_ij| ≤ γ_{k+1} ‖R_i‖ ‖R_j‖, k ≤ n the number of terms of the inner product
    that defines R_ij, in any order of summation, and ‖R_i‖² ≤ M_ii/(1-γ_{n+1}). So |E| ≤ d dᵀ with
    d_i² = γ_{n+1}/(1-γ_{n+1}) M_ii, and ‖E‖ ≤ ‖d‖² = γ_{n+1}/(1-γ_{n+1}) tr M (Rump, BIT 46, 2006). Twice that, with n + 2:
    kernels that multiply by a rounded reciprocal of the diagonal err by one more operation an entry. 1e-300 covers underflow.
    """
    return up(2.0 * gamma(n + 2) / (1.0 - 4.0 * gamma(n + 2)) * trace * (1.0 + 1e-9), 4) + 1e-300 * n * n


def witnesses(routine: Callable[..., Any], *arrays: Array, **options: Any) -> tuple[Array, ...] | None:
    """What a routine of numpy's linear algebra returns; ``None`` where it fails, or returns what is no finite number."""
    try:
        with np.errstate(all="ignore"):
            output = routine(*arrays, **options)
    except np.linalg.LinAlgError:
        return None
    results = tuple(np.asarray(x, dtype=np.float64) for x in (output if isinstance(output, tuple) else (output,)))
    return results if all(np.isfinite(x).all() for x in results) else None


def cholesky_factor(M: Array) -> Array | None:
    """The lower factor that numpy computes of a symmetric matrix; ``None`` where it has none."""
    factors = witnesses(np.linalg.cholesky, M) if np.isfinite(M).all() else None
    return None if factors is None else factors[0]


def minus_multiple(G: Array, s: float) -> Array:
    """G - s I, each entry of the diagonal rounded once."""
    M = G.copy()
    M.flat[:: len(M) + 1] -= s
    return M


def indefiniteness(M: Array) -> float | None:
    """e ≥ 0 with λ_min(M) ≥ -e; ``None`` where the Cholesky factorisation breaks down."""
    trace = up(float(np.abs(np.diag(M)).sum()), len(M))
    return None if cholesky_factor(M) is None else factorisation_error(trace, len(M))


def softmax(logits: Array) -> tuple[Array, float]:
    """P and e with ||P - softmax(logits)||_F <= e, row by row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = shifted / shifted.sum(axis=1, keepdims=True)
    # Relative error of one entry: the shift (rounded, so an absolute error of the exponent of at most u |shift|, bounded by
    # 800 u where exp does not vanish) and exp, above and below; the sum of m terms and a division.
    relative = (logits.shape[1] + 4) * UNIT_ROUNDOFF + 2 * EXP_ERROR + 1600 * UNIT_ROUNDOFF
    return p, up(relative * frobenius_upper(p) + 1e-300 * p.size, 4)


def cross_entropy(logits: Array, labels: NDArray[np.int64]) -> tuple[float, float]:
    """Enclosure of the sum over rows of log sum_j exp(z_j) - z_label."""
    top = logits.max(axis=1)
    logarithms = np.log(np.exp(logits - top[:, None]).sum(axis=1))
    total = math.fsum(logarithms + top - logits[np.arange(len(labels)), labels])
    magnitude = math.fsum(np.abs(logarithms) + 2.0 * np.abs(logits).max(axis=1) + 1.0)
    # As in `softmax`, relative to the magnitude of the terms: shift, exp, sum of m terms, log, and three operations.
    error = up(((logits.shape[1] + 40 + 1600) * UNIT_ROUNDOFF + 2 * EXP_ERROR) * magnitude, 6)
    return down(total - error), up(total + error)


@dataclass(frozen=True)
class Level:
    """What a check trusts: primitives with the same contracts, from which every formula is made once for all levels.

    Each returns float64 matrices that are exactly what they are, with upper bounds of Frobenius norms. Single elementwise
    operations and norms, IEEE 754 rounded outwards, are the same at all levels: `difference_with_error`, `frobenius_upper`.
    """

    name: str
    product: Callable[[Any, Array], tuple[Array, float]]
    """C, and e ≥ ‖C - AB‖_F."""
    scaled_columns: Callable[[Array, Array], tuple[Array, float]]
    """C, and e ≥ ‖C - A diag(s)‖_F."""
    signed_gram: Callable[..., tuple[Array, float]]
    """Of A and s: symmetric S, and e ≥ ‖S - A diag(s) Aᵀ‖_F, entries of s 1 or -1; all 1 if s is left out."""
    indefiniteness: Callable[[Array], float | None]
    """e ≥ 0 with λ_min(M) ≥ -e for a symmetric M; ``None`` where it has no Cholesky factor."""
    residual: Callable[[Array, Any, Any], float]
    """‖A - LR‖_F."""
    sharp_residual: Callable[[Array, Array, Array], float]
    """The same where L and R differ from bounded matrices by a scaling of the columns of L and rows of R. Infinite where no
    such bound is known."""
    defect: Callable[[Any], float]
    """‖QᵀQ - I‖_F, which bounds the spectral norm."""
    softmax: Callable[[Array], tuple[Array, float]]
    """P, and e ≥ ‖P - softmax(logits)‖_F, row by row."""
    cross_entropy: Callable[[Array, NDArray[np.int64]], tuple[float, float]]
    """Enclosure of Σ log Σ_j exp(z_j) - z_label over the rows of logits z."""
    witness: Callable[[Array], Array]
    """A matrix near A with which the other primitives are cheap; A need not be exact."""
    operand: Callable[[Array], Any]
    """A in the form in which ``product`` (on its left), ``residual`` and ``defect`` take it quickest, with its transpose T."""


FAST = Level(
    name="fast",
    product=product_with_error,
    scaled_columns=scaled_columns,
    signed_gram=signed_gram,
    indefiniteness=indefiniteness,
    residual=residual_upper,
    sharp_residual=sharp_residual_upper,
    defect=orthogonality_defect,
    softmax=softmax,
    cross_entropy=cross_entropy,
    witness=lambda A: A,
    operand=lambda A: A,
)
"""Level ``fast``: numpy, within the a-priori errors of its products and elementwise operations."""
