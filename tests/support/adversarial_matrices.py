"""Adversarial matrices, and their singular values and eigenvalues in 60-digit arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

# The package mpmath has no type information: `Real` stands for its numbers, `Any` for its matrices.
Real = Any

# Relative accuracy granted to the 60-digit reference itself.
REFERENCE_ERROR = mpmath.mpf(10) ** -50


def orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def with_condition(rng: np.random.Generator, size: int, condition: float) -> np.ndarray:
    return orthogonal(rng, size) * np.geomspace(1.0, 1.0 / condition, size) @ orthogonal(rng, size)


def near_singular(rng: np.random.Generator) -> np.ndarray:
    A = rng.standard_normal((6, 6))
    A[:, -1] = A[:, :-1] @ rng.standard_normal(5)
    return A


def hadamard(size: int) -> np.ndarray:
    H = np.ones((1, 1))
    while len(H) < size:
        H = np.block([[H, H], [H, -H]])
    return H


FAMILIES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "gaussian square": lambda rng: rng.standard_normal((6, 6)),
    "gaussian tall": lambda rng: rng.standard_normal((8, 4)),
    "gaussian wide": lambda rng: rng.standard_normal((3, 8)),
    "graded rows": lambda rng: rng.standard_normal((5, 5)) * np.geomspace(1.0, 1e-30, 5)[:, None],
    "graded both": lambda rng: (
        np.geomspace(1e40, 1e-40, 5)[:, None] * rng.standard_normal((5, 5)) * np.geomspace(1e40, 1e-40, 5)
    ),
    "graded past underflow": lambda rng: rng.standard_normal((4, 4)) * np.geomspace(1e300, 1e-300, 4),
    "condition 1e13": lambda rng: with_condition(rng, 7, 1e13),
    "condition 1e16": lambda rng: with_condition(rng, 6, 1e16),
    "near singular": near_singular,
    "low rank": lambda rng: rng.integers(-9, 9, (6, 2)).astype(float) @ rng.integers(-9, 9, (2, 7)),
    "repeated values": lambda rng: orthogonal(rng, 6),
    "scale 2^500": lambda rng: np.ldexp(rng.standard_normal((4, 5)), 500),
    "scale 2^-500": lambda rng: np.ldexp(rng.standard_normal((5, 4)), -500),
    "scale 2^1022": lambda rng: np.ldexp(rng.uniform(-1, 1, (4, 4)), 1022),
    "subnormal": lambda rng: np.ldexp(rng.integers(-99, 99, (4, 4)).astype(float), -1074),
    "graded columns": lambda rng: rng.standard_normal((5, 6)) * np.geomspace(1.0, 1e-40, 6),
    "graded rows, wide": lambda rng: rng.standard_normal((4, 7)) * np.geomspace(1e9, 1e-30, 4)[:, None],
    "entries of any size": lambda rng: rng.standard_normal((5, 5)) * 10.0 ** rng.uniform(-140.0, 140.0, (5, 5)),
    "condition 1e6": lambda rng: with_condition(rng, 7, 1e6),
    "condition 1e9, wide": lambda rng: with_condition(rng, 8, 1e9)[:5],
    "condition 1e11, tall": lambda rng: with_condition(rng, 8, 1e11)[:, :5],
    "one small value": lambda rng: orthogonal(rng, 6) * np.array([1.0] * 5 + [1e-12]) @ orthogonal(rng, 6),
    "two close rows": lambda rng: rng.standard_normal((1, 6)) + 1e-14 * rng.standard_normal((2, 6)),
    "one entry": lambda rng: np.eye(5, 6)[:, rng.permutation(6)] * (np.arange(5) == 2)[:, None] * rng.standard_normal(),
    "integers, singular": lambda rng: np.diff(rng.integers(-5, 6, (6, 7)).astype(float), axis=1, append=0.0)[:, :6],
    "vandermonde": lambda rng: np.vander(rng.uniform(-1.0, 1.0, 7)),
    "triangular": lambda rng: np.triu(rng.uniform(-1.0, 1.0, (7, 7))),
    "rank one and noise": lambda rng: (
        np.outer(rng.standard_normal(6), rng.standard_normal(6)) + 1e-9 * rng.random((6, 6))
    ),
    "row": lambda rng: rng.standard_normal((1, 7)),
    "column": lambda rng: rng.standard_normal((7, 1)),
}
SPECIAL = {
    "ones": np.ones((5, 6)),
    "zeros": np.zeros((3, 4)),
    "identity": np.eye(4),
    "one by one": np.array([[-3.0]]),
    "hilbert": 1.0 / (np.arange(8.0)[:, None] + np.arange(8.0) + 1.0),
    "jordan": np.eye(7, k=1),
    "kahan": np.diag(0.6 ** np.arange(7)) @ (np.eye(7) - 0.8 * np.triu(np.ones((7, 7)), 1)),
    "zero column": np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]),
}
MATRICES = [(name, seed) for name in FAMILIES for seed in range(18)] + [(name, 0) for name in SPECIAL]
QUICK = {name: [seed for other, seed in MATRICES if other == name and seed < 3] for name, _ in MATRICES}
"""Seeds of each name for the short tests."""


def matrix(name: str, seed: int) -> np.ndarray:
    return SPECIAL[name] if name in SPECIAL else FAMILIES[name](np.random.default_rng(seed))


def decades(A: np.ndarray) -> int:
    """Decimal digits between the largest and the smallest entries that are not 0."""
    magnitudes = np.abs(A[A != 0.0])
    return 0 if magnitudes.size == 0 else int(np.log10(magnitudes.max()) - np.log10(magnitudes.min())) + 1


def reference_singular_values(A: np.ndarray, digits: int = 60) -> list[Real]:
    with mpmath.workdps(digits):
        B = mpmath.matrix(A.tolist())
        return sorted((abs(s) for s in mpmath.svd_r(B, compute_uv=False)), reverse=True)


def reference_eigenvalues(A: Any) -> list[Real]:
    with mpmath.workdps(60):
        return sorted(mpmath.eigsy(A, eigvals_only=True), reverse=True)


def violations(lower: np.ndarray, upper: np.ndarray, values: list[Real]) -> int:
    """Number of reference values outside [lower, upper], in 60 digits."""
    assert len(lower) == len(upper) == len(values)
    assert not np.isnan(lower).any() and not np.isnan(upper).any()
    with mpmath.workdps(60):
        allowed = REFERENCE_ERROR * max((abs(value) for value in values), default=mpmath.mpf(0))
        return sum(
            not (mpmath.mpf(float(lo)) - allowed <= value <= mpmath.mpf(float(hi)) + allowed)
            for lo, hi, value in zip(lower, upper, values, strict=True)
        )
