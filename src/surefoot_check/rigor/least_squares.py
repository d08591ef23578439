"""Least squares in ball arithmetic, at the precision in use: gradient and gap at exact points, from a witness of a minimiser."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .balls import arb_matrix, ball, frobenius
from .bounds import Array

Integers = NDArray[np.int64]


class ExactLeastSquares:
    """½‖XV - Y‖² of V (columns, k); ``mu``: a lower bound of the smallest nonzero eigenvalue of XᵀX."""

    def __init__(self, X: Array, Y: Array, witness: Array, mu: float) -> None:
        self.X, self.XT, self.witness = arb_matrix(X), arb_matrix(X.T), arb_matrix(witness)
        residual = self.X * self.witness - arb_matrix(Y)
        self.slope = self.XT * residual
        # of what the gap of the witness is: the smaller of ‖∇ℓ(Ŵ)‖²/(2μ) and the loss itself
        size, gradient = frobenius(residual)[1], frobenius(self.slope)[1]
        excess = size * size / 2
        self.excess = (excess.min(gradient * gradient / (2 * ball(mu))) if mu > 0.0 else excess).upper()

    def at(self, V: Any) -> tuple[Any, Any, Any]:
        """∇ℓ(V), and bounds of the gap: ½‖XD‖² + ⟨∇ℓ(Ŵ), D⟩ and the gap of Ŵ, D = V - Ŵ."""
        D = V - self.witness
        image = self.X * D
        gap: Any = sum((x * x for x in image.entries()), ball(0.0)) / 2
        gap += sum((x * y for x, y in zip(self.slope.entries(), D.entries(), strict=True)), ball(0.0))
        return self.XT * image + self.slope, gap.lower(), (gap + self.excess).upper()


class ExactSensing(ExactLeastSquares):
    """The same of the entries of a matrix (n, m) as one column."""

    def at(self, V: Any) -> tuple[Any, Any, Any]:
        """∇ℓ(V), and bounds of the gap."""
        from flint import arb_mat

        gradient, low, high = super().at(arb_mat(V.nrows() * V.ncols(), 1, V.entries()))
        return arb_mat(V.nrows(), V.ncols(), gradient.entries()), low, high


class ExactEntries:
    """½ Σ_e c_e (V[r_e, s_e] - v_e)², of distinct entries: the optimal value is 0."""

    def __init__(self, rows: Integers, columns: Integers, values: Array, counts: Integers) -> None:
        targets, weights = map(ball, values.tolist()), map(ball, counts.tolist())
        self._entries = list(zip(rows.tolist(), columns.tolist(), targets, weights, strict=True))

    def at(self, V: Any) -> tuple[Any, Any, Any]:
        """∇ℓ(V), and bounds of the gap."""
        from flint import arb_mat

        gradient, twice = arb_mat(V.nrows(), V.ncols()), ball(0.0)
        for row, column, target, weight in self._entries:
            residual = V[row, column] - target
            gradient[row, column] = residual * weight
            twice += residual * residual * weight
        return gradient, (twice / 2).lower(), (twice / 2).upper()
