"""The checker's problems: every enclosure contains the value in 60-digit arithmetic, also near convergence.

The same values show that the gaps of the losses keep their relative accuracy near the optimum.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot._core.problems import loss_of
from surefoot_check.problems import LinearMapProblem
from surefoot_check.rigor.bounds import FAST
from surefoot_check.rigor.intervals import Interval
from surefoot_check.two_layer.enclosures import ENCLOSURES, end_to_end

Array = np.ndarray
Arrays = dict[str, Array]
Matrix = Any
"""A matrix of mpmath, which has no type stubs."""
Number = Any
"""A number of mpmath."""
DIGITS = 60


class Exact:
    """A problem in multiple precision: the singular values of its design, W* and the gap."""

    K: Number
    mu: Number
    optimum: Matrix

    def gap(self, W: Matrix) -> Number:
        raise NotImplementedError


def matrix(array: Array) -> Matrix:
    return mpmath.matrix(np.atleast_2d(array).tolist())


def squares(M: Matrix) -> Number:
    return mpmath.fsum(v * v for v in M)


def eigenvalues(M: Matrix) -> list[Number]:
    return sorted(mpmath.eigsy(M, eigvals_only=True))


class ExactLeastSquares(Exact):
    """½‖XV - Y‖², V the reshaped W; the smaller of XᵀX and XXᵀ has no zero eigenvalue."""

    def __init__(self, X: Array, Y: Array, shape: tuple[int, int]) -> None:
        x, y = matrix(X), matrix(Y)
        tall = x.rows >= x.cols
        values = eigenvalues(x.T * x if tall else x * x.T)
        self.mu, self.K = values[0], values[-1]
        self._x, self._columns = x, y.cols
        V = mpmath.inverse(x.T * x) * (x.T * y) if tall else x.T * (mpmath.inverse(x * x.T) * y)
        self.optimum = self.reshaped(V, *shape)

    @staticmethod
    def reshaped(M: Matrix, rows: int, columns: int) -> Matrix:
        entries = list(M)
        return mpmath.matrix([entries[i * columns : (i + 1) * columns] for i in range(rows)])

    def gap(self, W: Matrix) -> Number:
        difference = self.reshaped(W - self.optimum, self._x.cols, self._columns)
        return squares(self._x * difference) / 2


class ExactSoftmax(Exact):
    """Cross-entropy with the penalty; W* by Newton's method from the witness."""

    def __init__(self, X: Array, labels: Array, l2: float, start: Array) -> None:
        self._x, self._labels, self._l2 = matrix(X), labels, mpmath.mpf(l2)
        self.mu = self._l2
        self.K = eigenvalues(self._x.T * self._x)[-1] / (2 * len(X)) + self._l2
        self.optimum = matrix(start)
        for _ in range(4):
            _, gradient, hessian = self.terms(self.optimum)
            step = mpmath.lu_solve(hessian, mpmath.matrix(list(gradient)))
            self.optimum -= ExactLeastSquares.reshaped(step, *start.shape)
        self._best, gradient, _ = self.terms(self.optimum)
        assert mpmath.norm(gradient) < mpmath.mpf(10) ** -45

    def terms(self, W: Matrix) -> tuple[Number, Matrix, Matrix]:
        n, m, rows = W.rows, W.cols, self._x.rows
        logits = self._x * W
        value, gradient, hessian = self._l2 * squares(W) / 2, self._l2 * W, self._l2 * mpmath.eye(n * m)
        for k in range(rows):
            weights = [mpmath.exp(logits[k, j]) for j in range(m)]
            total = mpmath.fsum(weights)
            p = [w / total for w in weights]
            label = int(self._labels[k])
            value += (mpmath.log(total) - logits[k, label]) / rows
            for i in range(n):
                for j in range(m):
                    gradient[i, j] += self._x[k, i] * (p[j] - (j == label)) / rows
                    for r in range(n):
                        for c in range(m):
                            curvature = p[j] * ((j == c) - p[c]) / rows
                            hessian[i * m + j, r * m + c] += self._x[k, i] * self._x[k, r] * curvature
        return value, gradient, hessian

    def gap(self, W: Matrix) -> Number:
        return self.terms(W)[0] - self._best


def exact_of(kind: str, arrays: Arrays) -> Exact:
    shape = (arrays["optimum"].shape[0], arrays["optimum"].shape[1])
    if kind == "squared":
        return ExactLeastSquares(arrays["X"], arrays["Y"], shape)
    if kind == "sensing":
        return ExactLeastSquares(arrays["A"].reshape(len(arrays["A"]), -1), arrays["y"][:, None], shape)
    return ExactSoftmax(arrays["X"], arrays["labels"], float(arrays["l2"]), arrays["optimum"])


def drawn(kind: str, seed: int, scale: float, condition: float) -> tuple[Exact, LinearMapProblem, Arrays]:
    """A random problem: in multiple precision, in the checker, and as arrays with the rounded minimiser as witness."""
    g = np.random.default_rng(seed)
    n, m = 3, 2
    columns = condition ** -np.linspace(0.0, 1.0, n)
    start = np.zeros((n, m))
    arrays: Arrays
    if kind == "squared":
        arrays = {"X": scale * g.standard_normal((7, n)) * columns, "Y": g.standard_normal((7, m))}
    elif kind.startswith("sensing"):
        count = 4 if kind == "sensing, 4 of 6" else 9
        arrays = {
            "A": scale * g.standard_normal((count, n, m)) * columns[:, None],
            "y": g.standard_normal(count),
        }
    else:
        arrays = {
            "X": scale * g.standard_normal((6, n)) * columns,
            "labels": g.integers(0, m, 6),
            "l2": np.array(0.05 * scale),
        }
    kind = kind.split(",")[0]
    if kind == "softmax":
        start = sf.SoftmaxRegression(arrays["X"], arrays["labels"], float(arrays["l2"]), m).optimum.numpy()
    exact = exact_of(kind, {**arrays, "optimum": start})
    witness = np.array(exact.optimum.tolist(), dtype=np.float64)
    arrays["optimum"] = witness
    return exact, ENCLOSURES.load_problem(kind, arrays), arrays


def contains(interval: Interval, value: Number) -> bool:
    return bool(mpmath.mpf(interval[0]) <= value <= mpmath.mpf(interval[1]))


KINDS = ["squared", "sensing", "sensing, 4 of 6", "softmax"]
kinds = pytest.mark.parametrize("kind", KINDS)


def check_constants(kind: str, seed: int, scale: float, condition: float) -> None:
    with mpmath.workdps(DIGITS):
        exact, problem, _ = drawn(kind, seed, scale, condition)
        assert contains(problem.smoothness(), exact.K)
        assert contains(problem.strong_convexity(), exact.mu)
        low, high = problem.smoothness()
        assert high - low <= 1e-12 * high
        if problem.unique_optimum:
            W = exact.optimum
            singular = eigenvalues(W.T * W)
            smallest, largest = problem.optimum_singular_values()
            assert contains(smallest, mpmath.sqrt(max(singular[0], 0)))
            assert contains(largest, mpmath.sqrt(max(singular[-1], 0)))
            assert largest[1] - largest[0] <= (1e-6 if kind == "softmax" else 1e-9) * condition**2 * largest[1]


def check_gaps(kind: str, seed: int, scale: float, condition: float) -> None:
    g = np.random.default_rng(seed + 1)
    with mpmath.workdps(DIGITS):
        exact, problem, arrays = drawn(kind, seed, scale, condition)
        witness = arrays["optimum"]
        loss = loss_of(problem.kind, {name: torch.from_numpy(array) for name, array in arrays.items()})
        size = np.linalg.norm(witness)
        for distance in (10.0, 1.0, 1e-3, 1e-6, 1e-9, 1e-12, 0.0):
            # the network's own product, with its rounding error
            W1 = np.concatenate([witness + distance * size * g.standard_normal(witness.shape), np.zeros((3, 1))], 1)
            W2 = np.concatenate([np.eye(2), np.zeros((2, 1))], 1)
            W = matrix(W1) * matrix(W2).T
            true = exact.gap(W)
            product = end_to_end({"W1": W1, "W2": W2}, FAST)
            assert problem.gap_upper(product) >= true
            if problem.unique_optimum:
                assert contains(problem.distance(product), mpmath.sqrt(squares(W - exact.optimum)))
            if 1e-9 <= distance <= 1.0 and condition == 1.0:
                # at relative gaps of 1e-18 the bound may lose the condition number of a softmax loss, never all meaning
                factor = exact.K / exact.mu if kind == "softmax" else 1.0
                assert problem.gap_upper(product) <= 1.01 * factor * true
                rounding = max(1e-13, 1e-14 / distance)
                assert loss.gap(torch.from_numpy(product.value)) == pytest.approx(float(true), rel=rounding)


@kinds
@pytest.mark.parametrize(("scale", "condition"), [(1.0, 1.0), (1e-6, 1.0), (1e6, 10.0), (1.0, 1e4)])
def test_constants_are_enclosed(kind: str, scale: float, condition: float) -> None:
    check_constants(kind, 0, scale, condition)


@kinds
@pytest.mark.parametrize(("scale", "condition"), [(1.0, 1.0), (1e-6, 1.0), (1e3, 10.0), (1.0, 1e4)])
def test_gaps_are_bounded_from_above(kind: str, scale: float, condition: float) -> None:
    check_gaps(kind, 3, scale, condition)


@kinds
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), exponent=st.floats(-4, 4), condition=st.floats(1.0, 1e3))
def test_random_problems_are_enclosed(kind: str, seed: int, exponent: float, condition: float) -> None:
    check_constants(kind, seed, 10.0**exponent if kind != "softmax" else 1.0, condition)
    check_gaps(kind, seed, 10.0**exponent if kind != "softmax" else 1.0, condition)
