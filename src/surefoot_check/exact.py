"""Level ``exact``: the primitives of ``bounds.Level`` in integers.

A float64 is an integer times a power of two. Matrices are brought to a common power; products, differences and sums of squares
are then exact, in python-flint's ``fmpz_mat`` and Python's integers. What numpy computes (products, factorisations) is a
witness: its distance from the truth is measured, not estimated. No rounding mode, BLAS or error model enters; the few scalars
and elementwise operations that combine these norms are rounded outwards, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bounds import Array, Level, up

BITS = 62
"""Magnitudes below 2^62 are shifted as 64-bit integers, and multiplied fastest by FLINT."""
SMALL = 1 << 14
"""Matrices of no more entries are never cut off."""
WITNESS_BITS = 52
"""Witnesses are rounded to this many bits below their largest entry: half the time of a product of full floats."""


Integers = NDArray[np.int64]


def _parts(A: Array) -> tuple[Integers, Integers, int]:
    """Odd numbers or zeros n and shifts k (int64, flat), and e: A = n 2^(k+e) entrywise, exactly; the least k is 0.

    Read from the bits of the floats: sign, 11 bits of exponent, 52 of fraction. ``ValueError`` if A is not finite.
    """
    if not np.isfinite(A).all():
        raise ValueError("the matrix contains NaN or infinity; every entry must be finite")
    bits: Integers = np.ascontiguousarray(A, dtype=np.float64).reshape(-1).view(np.int64)
    biased = (bits >> 52) & 0x7FF
    magnitude = (bits & ((1 << 52) - 1)) | ((biased > 0).astype(np.int64) << 52)
    some = magnitude != 0
    if not some.any():
        return magnitude, magnitude, 0
    # the trailing zeros are the ones below the lowest bit
    zeros = np.where(some, np.bitwise_count((magnitude & -magnitude) - 1), 0).astype(np.int64)
    odd: Integers = magnitude >> zeros
    exponent: Integers = np.maximum(biased, 1) - 1075 + zeros
    lowest = int(exponent[some].min())
    return np.where(bits < 0, -odd, odd), np.where(some, exponent - lowest, 0), lowest


def integers(A: Array) -> tuple[list[int], int]:
    """N and e with A = N 2^e entrywise (in C order), exactly; e is as large as possible."""
    odd, shift, exponent = _parts(A)
    return _shifted(odd, shift), exponent


def _shifted(odd: Integers, shift: Integers) -> list[int]:
    """``odd << shift`` in as many bits as it takes."""
    if _length(odd, shift) <= BITS:
        return (odd << shift).tolist()
    return [n << k for n, k in zip(odd.tolist(), shift.tolist(), strict=True)]


def _length(odd: Integers, shift: Integers) -> int:
    """A bound of the bits of the entries of ``odd << shift``."""
    return 0 if odd.size == 0 else int((shift + np.frexp(np.abs(odd).astype(np.float64))[1]).max())


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


def _norm(entries: Iterable[Any], exponent: int) -> float:
    """Upper bound of the Euclidean norm of integers times 2^exponent."""
    found = list(entries)
    return root_above(int(sum(map(mul, found, found))), exponent)


def frobenius(A: Array) -> float:
    """Upper bound of the Frobenius norm of an array of any shape; 0.0 if and only if A is zero."""
    return _norm(*integers(A))


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


def operand(A: Array | Operand, exactly: bool = False) -> Operand:
    """A as an ``fmpz_mat``; large matrices of a wide range are cut off ``BITS`` bits below their largest entry, unless
    ``exactly``."""
    from flint import fmpz_mat

    if isinstance(A, Operand):
        return A
    rows, columns = A.shape
    odd, shift, exponent = _parts(A)
    excess = _length(odd, shift) - BITS
    if exactly or excess <= 0 or A.size <= SMALL:
        return Operand(A, fmpz_mat(rows, columns, _shifted(odd, shift)), exponent, 0.0)
    # a shift to the right rounds down: by less than a unit
    left, right = np.maximum(shift - excess, 0), np.minimum(np.maximum(excess - shift, 0), 63)
    entries = ((odd << left) >> right).tolist()
    return Operand(A, fmpz_mat(rows, columns, entries), exponent + excess, root_above(A.size, exponent + excess))


def residual(A: Array, left: Array | Operand, right: Array | Operand, exactly: bool = False) -> float:
    """Upper bound of ‖A - left right‖_F; ``exactly``: nothing is cut off."""
    (L, R, M), cut = [operand(X, exactly) for X in (left, right, A)], 0.0
    product, target, exponent = L.integers * R.integers, M.integers, L.exponent + R.exponent
    common = min(exponent, M.exponent)
    if exponent > common:
        product *= 1 << (exponent - common)
    if M.exponent > common:
        target *= 1 << (M.exponent - common)
    if L.error > 0.0 or R.error > 0.0:
        cut = up(L.error * up(frobenius(R.array) + R.error) + up(frobenius(L.array) + L.error) * R.error, 3)
    return up(_norm((target - product).entries(), common) + M.error + cut, 2)


def sharp_residual(A: Array, left: Array, right: Array) -> float:
    """``residual`` with nothing cut off: its error is relative to it, whatever the sizes of the entries."""
    return residual(A, left, right, exactly=True)


def defect(Q: Array | Operand) -> float:
    """Upper bound of ‖QᵀQ - I‖_F."""
    from flint import fmpz_mat

    M = operand(Q)
    exponent, product = M.exponent, M.integers.transpose() * M.integers
    common = min(2 * exponent, 0)
    if exponent > 0:
        product *= 1 << (2 * exponent)
    size, one = product.ncols(), 1 << -common
    identity = [0] * (size * size)
    identity[:: size + 1] = [one] * size
    cut = up(M.error * (2.0 * up(frobenius(M.array) + M.error)), 3) if M.error > 0.0 else 0.0
    return up(_norm((product - fmpz_mat(size, size, identity)).entries(), common) + cut)


def product(A: Array | Operand, B: Array) -> tuple[Array, float]:
    """C, numpy's product, and e ≥ ‖C - AB‖_F."""
    C = (A.array if isinstance(A, Operand) else A) @ B
    return C, residual(C, A, B) if bool(np.isfinite(C).all()) else math.inf


def difference(A: Array, B: Array) -> tuple[Array, float]:
    """C, numpy's difference, and e ≥ ‖C - (A - B)‖_F."""
    C = A - B
    (a, a_exponent), (b, b_exponent), (c, c_exponent) = integers(A), integers(B), integers(C)
    common = min(a_exponent, b_exponent, c_exponent)
    x, y, z = a_exponent - common, b_exponent - common, c_exponent - common
    errors = [(p << x) - (q << y) - (r << z) for p, q, r in zip(a, b, c, strict=True)]
    return C, _norm(errors, common)


def scaled_columns(A: Array, s: Array) -> tuple[Array, float]:
    """C near A diag(s), of short entries, and e ≥ ‖C - A diag(s)‖_F."""
    C = witness(A * s)
    (a, a_exponent), (b, b_exponent), (c, c_exponent) = integers(A), integers(s), integers(C)
    common = min(a_exponent + b_exponent, c_exponent)
    x, y = a_exponent + b_exponent - common, c_exponent - common
    errors = [p * q - (r << y) for p, q, r in zip(a, cycle([n << x for n in b]), c, strict=False)]
    return C, _norm(errors, common)


def signed_gram(X: Array, signs: Array) -> tuple[Array, float]:
    """Exactly symmetric S and e with ‖S - X diag(signs) Xᵀ‖_F ≤ e, signs +1 or -1."""
    signed = X * signs
    C = signed @ X.T
    S = 0.5 * (C + C.T)
    return S, residual(S, signed, X.T)


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
    """A float that is not below any number in the ball x."""
    return math.nextafter(float(x.upper()), math.inf)


def witness(A: Array) -> Array:
    """A rounded to ``WITNESS_BITS`` bits below its largest entry."""
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return A
    exponent = WITNESS_BITS - math.frexp(largest)[1]
    return np.ldexp(np.rint(np.ldexp(A, exponent)), -exponent)


EXACT = Level(
    name="exact",
    frobenius=frobenius,
    product=product,
    difference=difference,
    scaled_columns=scaled_columns,
    signed_gram=signed_gram,
    residual=residual,
    sharp_residual=sharp_residual,
    defect=defect,
    softmax=softmax,
    cross_entropy=cross_entropy,
    witness=witness,
    operand=operand,
)
"""Level ``exact``: FLINT and Python's integers."""
