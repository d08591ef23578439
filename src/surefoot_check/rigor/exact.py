"""Level ``exact``: the primitives of ``bounds.Level`` in integers.

A float64 is an integer times a power of two. Matrices are brought to a common power; their products are then exact, in
python-flint's ``fmpz_mat``, and so are sums of squares, in Python's integers. What numpy computes of matrices (products,
factorisations, solutions) is a witness: its distance from the truth is measured, not estimated. No BLAS, no LAPACK, no
exponential or logarithm of numpy's and no error model of a product enters.

What is still trusted of floating-point arithmetic, here and in the formulas that combine these primitives:

- single IEEE 754 operations, of Python and of numpy entry by entry (sum, difference, product, quotient, square root, ``ldexp``,
  ``rint``, maximum, comparison): rounded to nearest, as `bounds.self_test` samples; each is rounded outwards where it enters;
- ``math.fsum``, which rounds a sum once;
- numpy's sums of numbers that are not negative, within one unit for each term in any order: squares of the entries of stored
  matrices (``bounds.frobenius_upper``, in parts of 256, which ``math.fsum`` adds), their magnitudes (``gram.cheap_norm``),
  masses of a spectrum; and its cumulated products of norms of layers.

Norms of residuals, which are what a witness is measured by, are sums of squares of integers.

Large matrices are cut off ``BITS`` bits below their largest entry, and the error of that is part of the bound: time and memory
do not depend on the exponents of hostile entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import bounds
from .bounds import Array, Level, NotFiniteError, cholesky_factor, frobenius_upper, up

BITS = 62
"""Magnitudes below 2^62 are shifted as 64-bit integers, and multiplied fastest by FLINT."""
SMALL = 1 << 14
"""Matrices of no more entries are never cut off."""
WITNESS_BITS = 52
"""Witnesses are rounded to this many bits below their largest entry: half the time of a product of full floats."""
FARTHEST = 256
"""Powers of two between large matrices up to which they are subtracted."""
THIN = 32
"""Inner dimension up to which a large product is formed entry by entry."""
PANEL = 256
"""Rows of one part of a symmetric product, of which only parts on and below the diagonal are formed."""

Integers = NDArray[np.int64]


def _parts(A: Array) -> tuple[Integers, Integers]:
    """Odd numbers or zeros n and powers k (int64, of A's shape): A = n 2^k entrywise, exactly; k is 0 where A is.

    Read from the bits of the floats: sign, 11 bits of exponent, 52 of fraction. ``NotFiniteError`` if A is not finite.
    """
    if not np.isfinite(A).all():
        raise NotFiniteError("the matrix contains NaN or infinity; every entry must be finite")
    bits: Integers = np.ascontiguousarray(A, dtype=np.float64).view(np.int64)
    biased = (bits >> 52) & 0x7FF
    magnitude = (bits & ((1 << 52) - 1)) | ((biased > 0).astype(np.int64) << 52)
    # the trailing zeros are the ones below the lowest bit
    zeros = np.where(magnitude != 0, np.bitwise_count((magnitude & -magnitude) - 1), 0).astype(np.int64)
    odd: Integers = magnitude >> zeros
    power: Integers = np.where(magnitude != 0, np.maximum(biased, 1) - 1075 + zeros, 0)
    return np.where(bits < 0, -odd, odd), power


@dataclass(frozen=True)
class Fixed:
    """‖A - ``entries`` 2^``exponent``‖_F ≤ ``error``; entries are int64, or Python's integers (dtype object)."""

    entries: NDArray[Any]
    exponent: int
    error: float

    def matrix(self, rows: slice = slice(None), columns: slice = slice(None)) -> Any:
        """Some rows and columns as an ``fmpz_mat``."""
        from flint import fmpz_mat

        part = self.entries[rows, columns]
        return fmpz_mat(part.shape[0], part.shape[1], part.ravel().tolist())


def fixed(A: Array, exactly: bool = False) -> Fixed:
    """A as integers of one power of two, with the largest possible exponent. Large matrices of a wide range are cut off ``BITS``
    bits below their largest entry, unless ``exactly``."""
    odd, power = _parts(A)
    some = odd != 0
    if not some.any():
        return Fixed(odd, 0, 0.0)
    exponent = int(power[some].min())
    shift = np.where(some, power - exponent, 0)
    # a bound of the bits of the entries of odd << shift
    excess = int((shift + np.frexp(np.abs(odd).astype(np.float64))[1]).max()) - BITS
    if excess <= 0:
        return Fixed(odd << shift, exponent, 0.0)
    if exactly or A.size <= SMALL:
        return Fixed(odd.astype(object) << shift.astype(object), exponent, 0.0)
    # a shift to the right rounds down: by less than a unit
    left, right = np.maximum(shift - excess, 0), np.minimum(np.maximum(excess - shift, 0), 63)
    return Fixed((odd << left) >> right, exponent + excess, root_above(A.size, exponent + excess))


def integers(A: Array) -> tuple[list[int], int]:
    """N and e with A = N 2^e entrywise (in C order), exactly; e is as large as possible."""
    multiples = fixed(A, exactly=True)
    return multiples.entries.ravel().tolist(), multiples.exponent


def root_above(square: int, exponent: int) -> float:
    """The least float, or the next, that is not below sqrt(square) 2^exponent."""
    if square == 0:
        return 0.0
    spare = max(0, 128 - square.bit_length())
    spare += spare % 2
    root = math.isqrt(square << spare) + 1
    return above(root, exponent - spare // 2)


def above(n: int, exponent: int) -> float:
    """A float that is not below n 2^exponent, n ≥ 0, and at most two units of its last place above it."""
    excess = max(0, n.bit_length() - 52)
    short = (n >> excess) + (excess > 0)
    try:
        value = math.ldexp(short, exponent + excess)
    except OverflowError:
        return math.inf
    # only where it is subnormal can ldexp round, to nearest
    return value if value >= 2.0**-1020 or n == 0 else math.nextafter(value, math.inf)


def _square(entries: Iterable[Any]) -> int:
    """Sum of squares of integers."""
    numbers = list(entries)
    return int(sum(map(mul, numbers, numbers)))


@dataclass(frozen=True)
class Operand:
    """A matrix that several products need, converted once: ‖``array`` - ``integers`` 2^``exponent``‖_F ≤ ``error``."""

    array: Array
    integers: Any
    exponent: int
    error: float

    @property
    def T(self) -> Operand:
        """The transpose."""
        return Operand(self.array.T, self.integers.transpose(), self.exponent, self.error)


def operand(A: Array | Operand) -> Operand:
    """A as an ``fmpz_mat``."""
    if isinstance(A, Operand):
        return A
    multiples = fixed(A)
    return Operand(A, multiples.matrix(), multiples.exponent, multiples.error)


def _apart(exponents: tuple[int, int], size: int) -> bool:
    """Whether integers of these two powers are not subtracted: for large matrices that would take much memory."""
    return size > SMALL and abs(exponents[0] - exponents[1]) > FARTHEST


def _difference(target: Any, exponent: int, product: Any, product_exponent: int) -> Any:
    """target 2^exponent - product 2^product_exponent as integers of the smaller of the two powers."""
    if exponent > product_exponent:
        target *= 1 << (exponent - product_exponent)
    if product_exponent > exponent:
        product *= 1 << (product_exponent - exponent)
    return (target - product).entries()


def residual(A: Array, left: Array | Operand, right: Array | Operand) -> float:
    """Upper bound of ‖A - left right‖_F."""
    L, R, M = operand(left), operand(right), operand(A)
    exponent = L.exponent + R.exponent
    if _apart((M.exponent, exponent), A.size):
        return up(frobenius_upper(A) + up(frobenius_upper(L.array) * frobenius_upper(R.array)))
    error = M.error
    if L.error > 0.0 or R.error > 0.0:
        left_norm, right_norm = up(frobenius_upper(L.array) + L.error), up(frobenius_upper(R.array) + R.error)
        error = up(error + up(L.error * right_norm + left_norm * R.error, 3))
    entries = _difference(M.integers, M.exponent, L.integers * R.integers, exponent)
    return up(root_above(_square(entries), min(exponent, M.exponent)) + error)


def symmetric_residual(S: Array, left: Array, right: Array, lower: bool = False) -> float:
    """Upper bound of ‖S - left rightᵀ‖_F where both are symmetric; ``lower``: above the diagonals of the factors stands 0.

    Formed by parts of ``PANEL`` rows and columns, those above the diagonal being the transposes of those below it. Where factors
    were cut off, their product need not be symmetric: what lies below the diagonal then counts twice, which makes √2 of an error.
    """
    L, M = fixed(left), fixed(S)
    R = L if right is left else fixed(right)
    exponent, (size, inner) = L.exponent + R.exponent, left.shape
    if _apart((M.exponent, exponent), S.size):
        return up(frobenius_upper(S) + up(frobenius_upper(left) * frobenius_upper(right)))
    parts = [slice(start, min(start + PANEL, size)) for start in range(0, size, PANEL)]

    @cache
    def panel(part: int, columns: int) -> Any:
        return L.matrix(parts[part], slice(columns))

    square = 0
    for j, columns in enumerate(parts):
        used = columns.stop if lower else inner
        other = (panel(j, used) if R is L else R.matrix(columns, slice(used))).transpose()
        for i, rows in enumerate(parts[j:], j):
            product = panel(i, used) * other
            entries = _difference(M.matrix(rows, columns), M.exponent, product, exponent)
            square += _square(entries) * (1 if i == j else 2)
    error = M.error
    if L.error > 0.0 or R.error > 0.0:
        left_norm = up(frobenius_upper(left) + L.error)
        right_norm = left_norm if R is L else up(frobenius_upper(right) + R.error)
        error = up(error + 1.5 * up(L.error * right_norm + left_norm * R.error, 3), 2)
    return up(root_above(square, min(exponent, M.exponent)) + error)


def sharp_residual(A: Array, left: Array, right: Array) -> float:
    """``residual`` after a scaling by powers of two that brings the columns of ``left`` to one size: what is cut off is relative
    to |left||right|. Infinite where that under- or overflows."""
    exponents = np.frexp(np.abs(left).max(axis=0, initial=0.0))[1]
    with np.errstate(over="ignore", under="ignore"):
        L, R = np.ldexp(left, -exponents), np.ldexp(right, exponents[:, None])
        same = np.array_equal(np.ldexp(L, exponents), left) and np.array_equal(np.ldexp(R, -exponents[:, None]), right)
    return residual(A, L, R) if same and np.isfinite(R).all() else math.inf


def defect(Q: Array | Operand) -> float:
    """Upper bound of ‖QᵀQ - I‖_F."""
    rows = np.ascontiguousarray((Q.array if isinstance(Q, Operand) else Q).T)
    return symmetric_residual(np.eye(len(rows)), rows, rows)


def product(A: Array | Operand, B: Array) -> tuple[Array, float]:
    """C, numpy's product, and e ≥ ‖C - AB‖_F."""
    array = A.array if isinstance(A, Operand) else A
    if len(B) <= THIN and len(array) * B.shape[1] > SMALL:
        return _thin_product(array, B)
    C = array @ B
    return C, residual(C, A, B) if bool(np.isfinite(C).all()) else math.inf


def _thin_product(A: Array, B: Array) -> tuple[Array, float]:
    """``product`` of few columns and rows: a sum of outer products by single operations on entries, which obey the model."""
    C = A[:, :1] * B[:1]
    for k in range(1, len(B)):
        C += A[:, k : k + 1] * B[k]
    norm = up(frobenius_upper(A) * frobenius_upper(B))
    return C, up(up(bounds.gamma(len(B)) * norm) + math.ldexp(2.0 * len(B) * C.size, -1074), 2)


def scaled_columns(A: Array, s: Array) -> tuple[Array, float]:
    """C near A diag(s), of short entries, and e ≥ ‖C - A diag(s)‖_F."""
    C, error = bounds.scaled_columns(A, s)
    short = witness(C)
    moved, rounding = bounds.difference_with_error(short, C)
    return short, up(error + up(frobenius_upper(moved) + rounding))


def signed_gram(X: Array, signs: Array | None = None) -> tuple[Array, float]:
    """Exactly symmetric S and e with ‖S - X diag(signs) Xᵀ‖_F ≤ e, signs +1 or -1 (all 1 where they are not given)."""
    signed = X if signs is None else X * signs
    C = signed @ X.T
    S = 0.5 * (C + C.T)
    return S, symmetric_residual(S, signed, X) if bool(np.isfinite(S).all()) else math.inf


def indefiniteness(M: Array) -> float | None:
    """e ≥ 0 with λ_min(M) ≥ -e for a symmetric M: its distance from R Rᵀ, R numpy's factor; ``None`` where it has none."""
    R = cholesky_factor(M)
    if R is None or np.triu(R, 1).any():
        return None
    R = witness(R)
    return symmetric_residual(M, R, R, lower=True)


def softmax(logits: Array) -> tuple[Array, float]:
    """P and e with ‖P - softmax(logits)‖_F ≤ e, row by row, by FLINT's exponential."""
    from flint import arb

    P, square = np.empty_like(logits), arb(0)
    for i, row in enumerate(logits.tolist()):
        powers = [(arb(z) - max(row)).exp() for z in row]
        total = sum(powers, arb(0))
        for j, power in enumerate(powers):
            p = power / total
            P[i, j] = float(p)
            error = p - float(P[i, j])
            square += error * error
    return P, float_above(square.abs_upper().sqrt())


def cross_entropy(logits: Array, labels: Integers) -> tuple[float, float]:
    """Enclosure of the sum over rows of log Σ_j exp(z_j) - z_label, by FLINT's functions."""
    from flint import arb

    total = arb(0)
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        top = max(row)
        total += sum(((arb(z) - top).exp() for z in row), arb(0)).log() + (arb(top) - row[label])
    return -float_above(-total), float_above(total)


def float_above(x: Any) -> float:
    """The least float, or the next, that is not below any number in the ball x."""
    upper = x.upper()
    value = float(upper)
    return value if upper <= value else math.nextafter(value, math.inf)


def witness(A: Array) -> Array:
    """A rounded to ``WITNESS_BITS`` bits below its largest entry."""
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return A
    exponent = WITNESS_BITS - math.frexp(largest)[1]
    return np.ldexp(np.rint(np.ldexp(A, exponent)), -exponent)


EXACT = Level(
    name="exact",
    product=product,
    scaled_columns=scaled_columns,
    signed_gram=signed_gram,
    indefiniteness=indefiniteness,
    residual=residual,
    sharp_residual=sharp_residual,
    defect=defect,
    softmax=softmax,
    cross_entropy=cross_entropy,
    witness=witness,
    operand=operand,
)
"""Level ``exact``: FLINT and Python's integers."""
