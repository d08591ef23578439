"""The softmax loss in ball arithmetic, at the precision in use, for the replay."""

from __future__ import annotations

from typing import Any

from .balls import arb_matrix, ball, frobenius
from .bounds import Array


class ExactSoftmax:
    """Mean cross-entropy of softmax(offset + XV), of no offset by default, plus (l2/2)‖V‖²."""

    def __init__(self, X: Array, labels: Array, l2: float, witness: Array, offset: Array | None = None) -> None:
        self.offset = None if offset is None else arb_matrix(offset)
        self.X, self.XT, self.labels, self.l2 = arb_matrix(X), arb_matrix(X.T), labels.tolist(), ball(l2)
        gradient, self.least = self._evaluate(arb_matrix(witness))
        size = frobenius(gradient)[1]
        self.excess = (size * size / (2 * self.l2)).upper()

    def _evaluate(self, V: Any) -> tuple[Any, Any]:
        """∇ℓ(V) and ℓ(V)."""
        from flint import arb_mat

        logits, rows = self.X * V, len(self.labels)
        if self.offset is not None:
            logits += self.offset
        value, residual = ball(0.0), arb_mat(rows, V.ncols())
        for i, label in enumerate(self.labels):
            scores = [logits[i, j] for j in range(V.ncols())]
            weights = [(score - scores[label]).exp() for score in scores]
            total: Any = sum(weights, ball(0.0))
            value += total.log()
            for j, weight in enumerate(weights):
                residual[i, j] = weight / total - (j == label)
        penalty = sum((x * x for x in V.entries()), ball(0.0)) * self.l2 / 2
        return self.XT * residual / rows + V * self.l2, value / rows + penalty

    def at(self, V: Any) -> tuple[Any, Any, Any]:
        """∇ℓ(V), and bounds of the gap: ℓ(V) - ℓ(Ŵ) and that of Ŵ, at most ‖∇ℓ(Ŵ)‖²/(2 l2)."""
        gradient, value = self._evaluate(V)
        gap = value - self.least
        return gradient, gap.lower(), (gap + self.excess).upper()
