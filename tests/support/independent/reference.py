"""What a published number is compared with, and linear algebra in 100 digits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

Array = np.ndarray
Matrix = Any
"""``mpmath.matrix``."""
DIGITS = 100
NOTHING = mpf(10) ** -60
"""What is smaller than this times the size of its matrix is an exact 0 after rounding."""
UNIT = mpf(2) ** -53


@dataclass(frozen=True)
class Reference:
    """One base quantity from its definition.

    Attributes:
        value: the quantity, or where only a bound of it is known, the bound as documented, from exact numbers.
        slack: how far beyond that, on the safe side, an enclosure in floats may end: what its documented method loses.
        contained: whether an enclosure must contain ``value``; otherwise only meet what lies between it and the slack.
        attained: for a bound, what the quantity certainly takes or exceeds somewhere: the bound must be on its safe side.
    """

    value: mpf
    slack: mpf | int = 0
    contained: bool = True
    attained: mpf | None = None


def exact(A: Array) -> Matrix:
    """The array (rows, columns), or a vector as a column, exactly."""
    return mpmath.matrix((A if A.ndim == 2 else A.reshape(-1, 1)).tolist())


def eigenvalues(S: Matrix) -> list[mpf]:
    """Of a symmetric matrix, descending; those that are 0 up to rounding are 0."""
    size = frobenius(S)
    values = mpmath.eigsy(0.5 * (S + S.T), eigvals_only=True) if S.rows > 1 else [S[0, 0]]
    return sorted((mpf(0) if abs(v) <= NOTHING * size else v for v in values), reverse=True)


def singular_values(A: Matrix) -> list[mpf]:
    """The min(rows, columns) singular values, descending: roots of the eigenvalues of the smaller Gram matrix."""
    G = A * A.T if A.rows <= A.cols else A.T * A
    return [mp.sqrt(max(v, mpf(0))) for v in eigenvalues(G)]


def solve(A: Matrix, B: Matrix) -> Matrix:
    """A⁻¹B for square A, column by column."""
    columns = [mpmath.lu_solve(A, B[:, j]) for j in range(B.cols)]
    return mpmath.matrix([[column[i] for column in columns] for i in range(B.rows)])


def norm(A: Matrix) -> mpf:
    """Spectral norm."""
    return singular_values(A)[0]


def frobenius(A: Matrix) -> mpf:
    """Frobenius norm."""
    return root_of_squares(A)


def root_of_squares(terms: Iterable[mpf]) -> mpf:
    """The Euclidean norm."""
    return mp.sqrt(mpmath.fsum(x * x for x in terms))


def of_norms(value: mpf, size: mpf, relative: float = 2e-6) -> mpf:
    """Slack of a singular value or eigenvalue of a matrix of norm ``size``: a part of itself, or rounding of the matrix."""
    return relative * abs(value) + 4096 * UNIT * size


def largest_seen(A: Matrix) -> mpf:
    """‖Av‖/‖v‖ for a v near the first right singular vector: a lower bound of the norm, and near it."""
    v = exact(np.linalg.svd(np.array(A.tolist(), dtype=np.float64))[2][0])
    return frobenius(A * v) / frobenius(v)
