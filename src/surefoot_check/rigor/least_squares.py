"""Least squares in ball arithmetic, at the precision in use: gradient and gap at exact points, from a witness of a minimiser."""

from __future__ import annotations

from typing import Any

from .balls import arb_matrix, ball, frobenius
from .bounds import Array


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
