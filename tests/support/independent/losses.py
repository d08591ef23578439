"""Losses of a linear map W (n, m) on stored arrays, from their formulas."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import mpmath
from mpmath import mp, mpf

from .reference import (
    UNIT,
    Array,
    Matrix,
    Reference,
    eigenvalues,
    exact,
    frobenius,
    norm,
    of_norms,
    singular_values,
    solve,
)

Arrays = Mapping[str, Array]


class Loss(Protocol):
    """What the network's map W (n, m) is measured by."""

    smoothness: Reference
    strong_convexity: Reference
    optimum: Matrix | None
    """W*, where it is unique."""
    optimum_error: mpf
    """Of a witness of W* in floats: ‖∇ℓ(Ŵ)‖_F/μ, where rounding alone is left of the gradient."""

    def gap(self, W: Matrix) -> mpf:
        """ℓ(W) - ℓ*."""
        ...

    def gap_slack(self, gap: mpf, size: mpf) -> mpf:
        """How far above it an upper bound in floats may lie, where W comes from products whose norms are at most ``size``."""
        ...


def half_square(A: Matrix) -> mpf:
    """½‖A‖²_F."""
    return frobenius(A) ** 2 / 2


class LeastSquares:
    """½‖Xw - y‖², w the entries of W, row by row, in one column or, for y of several, W itself."""

    def __init__(self, X: Matrix, Y: Matrix, shape: tuple[int, int]) -> None:
        self.X, self.Y, self._columns = X, Y, shape if Y.cols != shape[1] or X.cols != shape[0] else None
        values = singular_values(X)
        self.smallest, self.largest = values[-1], values[0]
        self.smoothness = _square(self.largest, self.largest)
        self.strong_convexity = _square(self.smallest, self.largest)
        unique = X.rows >= X.cols and self.smallest > 0
        self._minimiser = solve(X.T * X, X.T * Y) if unique else None
        self._least = half_square(X * self._minimiser - Y) if unique else mpf(0)

    def _entries(self, W: Matrix) -> Matrix:
        return W if self._columns is None else mpmath.matrix(list(W))

    @cached_property
    def optimum(self) -> Matrix | None:
        if self._minimiser is None or self._columns is None:
            return self._minimiser
        rows, columns = self._columns
        return mpmath.matrix([[self._minimiser[i * columns + j] for j in range(columns)] for i in range(rows)])

    @property
    def optimum_error(self) -> mpf:
        assert self._minimiser is not None
        size = self.largest * (self.largest * frobenius(self._minimiser) + frobenius(self.Y))
        return 4096 * UNIT * size / self.smallest**2

    def gap(self, W: Matrix) -> mpf:
        return half_square(self.X * self._entries(W) - self.Y) - self._least

    def gap_slack(self, gap: mpf, size: mpf) -> mpf:
        # sqrt(gap) is bounded through ‖X(W - Ŵ)‖/√2 + ‖∇ℓ(Ŵ)‖/√(2μ)
        terms = self.largest * size + frobenius(self.Y)
        error = 4096 * UNIT * terms * (1 + self.largest / self.smallest) if self.smallest > 0 else mp.inf
        return 1e-9 * gap + 2 * mp.sqrt(gap) * error + error**2


class Softmax:
    """(1/N) Σ cross-entropy(softmax(offset + XW), labels) + (l2/2)‖W‖²_F; an offset of 0 is none."""

    def __init__(self, X: Matrix, labels: list[int], l2: mpf, witness: Matrix, offset: Matrix) -> None:
        self.offset = offset
        self.X, self.labels, self.l2, self._shape = X, labels, l2, (witness.rows, witness.cols)
        self._size = norm(X)
        at_zero = self._curvature(witness * 0)
        # ‖diag(p) - ppᵀ‖ ≤ ½ (Gershgorin), with equality at W = 0 for two classes; the constant shift of all logits has no
        # curvature but that of the penalty
        self.smoothness = Reference(
            self._size**2 / (2 * X.rows) + l2, of_norms(self._size**2, self._size**2) / X.rows, attained=max(at_zero)
        )
        self.strong_convexity = Reference(l2, attained=min(at_zero) * (1 + mpf(10) ** -50))
        self.optimum = self._newton(witness) if l2 > 0 else None
        self._least = self.value(self.optimum) if self.optimum is not None else mpf(0)

    def _probabilities(self, W: Matrix) -> list[list[mpf]]:
        logits = self.offset + self.X * W
        rows = []
        for i in range(logits.rows):
            shift = max(logits[i, j] for j in range(logits.cols))
            powers = [mp.exp(logits[i, j] - shift) for j in range(logits.cols)]
            rows.append([p / mpmath.fsum(powers) for p in powers])
        return rows

    def value(self, W: Matrix) -> mpf:
        """ℓ(W)."""
        terms = [-mp.log(p[label]) for p, label in zip(self._probabilities(W), self.labels, strict=True)]
        return mpmath.fsum(terms) / len(terms) + self.l2 * half_square(W)

    def gradient(self, W: Matrix) -> Matrix:
        """∇ℓ(W)."""
        p = self._probabilities(W)
        residual = mpmath.matrix(
            [[x - (j == label) for j, x in enumerate(row)] for row, label in zip(p, self.labels, strict=True)]
        )
        return self.X.T * residual / self.X.rows + self.l2 * W

    def hessian(self, W: Matrix) -> Matrix:
        """∇²ℓ(W) (nm, nm)."""
        (n, m), N = self._shape, self.X.rows
        H = self.l2 * mpmath.eye(n * m)
        for i, p in enumerate(self._probabilities(W)):
            block = [[(p[a] if a == b else 0) - p[a] * p[b] for b in range(m)] for a in range(m)]
            for r in range(n):
                for s in range(n):
                    weight = self.X[i, r] * self.X[i, s] / N
                    for a in range(m):
                        for b in range(m):
                            H[r * m + a, s * m + b] += weight * block[a][b]
        return H

    def _curvature(self, W: Matrix) -> list[mpf]:
        return eigenvalues(self.hessian(W))

    def _newton(self, W: Matrix) -> Matrix:
        """The minimiser, from a point near it."""
        n, m = self._shape
        for _ in range(60):
            step = mpmath.lu_solve(self.hessian(W), mpmath.matrix(list(self.gradient(W))))
            W = W - mpmath.matrix([[step[r * m + a] for a in range(m)] for r in range(n)])
            if frobenius(step) <= mpf(10) ** -70 * (1 + frobenius(W)):
                return W
        raise AssertionError("Newton's iteration has not converged: start it nearer to the minimiser")

    @property
    def optimum_error(self) -> mpf:
        assert self.optimum is not None
        return 4096 * UNIT * (self._size + self.l2 * frobenius(self.optimum)) / self.l2

    def gap(self, W: Matrix) -> mpf:
        return self.value(W) - self._least

    def gap_slack(self, gap: mpf, size: mpf) -> mpf:
        # through the values; rounding of the logits, and of the logarithms
        return 1e-9 * gap + 65536 * UNIT * (1 + self._size * size + gap + self._least)


def _square(value: mpf, size: mpf) -> Reference:
    slack = of_norms(value, size)
    return Reference(value**2, 2 * value * slack + slack**2)


def loss_of(kind: object, problem: Arrays) -> Any:
    """The loss of the stored arrays."""
    if kind == "squared":
        X, Y = exact(problem["X"]), exact(problem["Y"])
        return LeastSquares(X, Y, (X.cols, Y.cols))
    if kind == "fitted":
        X, optimum = exact(problem["X"]), exact(problem["optimum"])
        return LeastSquares(X, X * optimum, (X.cols, optimum.cols))
    if kind == "sensing":
        A = problem["A"]
        return LeastSquares(exact(A.reshape(len(A), -1)), exact(problem["y"]), A.shape[1:])
    if kind == "completion":
        return _completion(problem)
    assert kind in ("softmax", "softmax-offset")
    labels, witness = [int(label) for label in problem["labels"]], exact(problem["optimum"])
    offset = exact(problem["offset"]) if "offset" in problem else mpmath.zeros(len(labels), witness.cols)
    return Softmax(exact(problem["X"]), labels, mpf(float(problem["l2"])), witness, offset)


def _completion(problem: Arrays) -> LeastSquares:
    """Observed entries, as measurements by single entries, scaled by the roots of their counts, which are K and μ."""
    n, m = (int(size) for size in problem["shape"])
    A, y = mpmath.zeros(len(problem["values"]), n * m), exact(problem["values"])
    for e, (row, column, count) in enumerate(zip(problem["rows"], problem["columns"], problem["counts"], strict=True)):
        A[e, int(row) * m + int(column)] = mp.sqrt(int(count))
        y[e] *= mp.sqrt(int(count))
    loss, counts = LeastSquares(A, y, (n, m)), [mpf(int(count)) for count in problem["counts"]]
    loss.smoothness, loss.strong_convexity = Reference(max(counts)), Reference(min(counts))
    return loss
