"""Cross-entropy with class weights w and label smoothing s, as torch has it: targets of a row that need not sum to 1.

The row of label y has the loss -Σ_c q_c log p_c with q_c = (1-s) w_c [c = y] + s w_c/k and the mass Q = Σ_c q_c: the gradient in
the logits is Qp - q, the Hessian Q(diag p - ppᵀ). A mean divides the sum by the weights of all labels, Σ_i w_{y_i}.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.balls import rational
from ..rigor.bounds import Array, up


class Classes:
    """Of labels (N,) among the classes with these weights (k,).

    Attributes:
        total: what a mean divides by.
    """

    def __init__(self, labels: np.ndarray, weights: Array, smoothing: float) -> None:
        s, exact = Fraction(smoothing), [Fraction(w) for w in weights.tolist()]
        self._labels: list[int] = labels.tolist()
        self._shared = [s * w / len(exact) for w in exact]  # of every class, whatever the label
        self._own = [(1 - s) * w for w in exact]  # of the label's besides
        self._of_all = sum(self._shared, Fraction())
        self.total = sum((exact[label] for label in self._labels), Fraction())

    def _mass(self, label: int) -> Fraction:
        return self._own[label] + self._of_all

    @property
    def targets(self) -> Approximation:
        """q (N, k)."""
        rows = {label: [float(q) for q in self._row(label)] for label in set(self._labels)}
        return _rounded(np.array([rows[label] for label in self._labels]))

    def _row(self, label: int) -> list[Fraction]:
        return [q + self._own[label] if c == label else q for c, q in enumerate(self._shared)]

    @property
    def masses(self) -> Approximation:
        """Q (N, k), the same in every column."""
        column = np.array([float(self._mass(label)) for label in range(len(self._own))])[self._labels]
        return _rounded(np.repeat(column[:, None], len(self._own), axis=1))

    @property
    def largest_mass(self) -> float:
        """Upper bound of Q over the rows."""
        return up(float(max(map(self._mass, set(self._labels)))))

    def exact_slope(self, p: Any) -> Any:
        """Qp - q of the softmax in ball arithmetic."""
        from flint import arb_mat

        labels = set(self._labels)  # those that there are: a few rows may have many classes
        masses = {label: rational(self._mass(label)) for label in labels}
        rows = {label: [rational(q) for q in self._row(label)] for label in labels}
        entries = [
            masses[label] * x - q
            for label, of_row in zip(self._labels, p.tolist(), strict=True)
            for x, q in zip(of_row, rows[label], strict=True)
        ]
        return arb_mat(p.nrows(), p.ncols(), entries)


def _rounded(A: Array) -> Approximation:
    """Of exact numbers rounded once."""
    return Approximation.rounded(A, 0.0, underflow=True)
