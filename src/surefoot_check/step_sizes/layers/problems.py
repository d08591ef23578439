"""Objectives, gradients and proximal steps of a batch of problems, enclosed entry by entry.

Points are (N, d, k), k of them for each of the N problems; a residual is M X - Y, or of logistic regression -s⊙(M X), (N, b, k).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...rigor.bounds import UNIT_ROUNDOFF, Array, Level, array_down, array_up
from ...rigor.intervals import TINY, Interval
from ..batches import Batch, LassoBatch, LeastSquaresBatch, LogisticBatch
from .entrywise import Enclosed, product, total


@dataclass(frozen=True)
class Carried:
    """Residuals (N, b, k) of least squares as computed, and bounds (N, 1, k) of their distance from what they stand for."""

    value: Array
    off: Array

    def column(self, k: int) -> Carried:
        """One of them."""
        return Carried(self.value[..., k, None], self.off[..., k, None])


@dataclass(frozen=True)
class Problems:
    """A batch, the constants beta (N,) that steps are measured in, and the level of the arithmetic."""

    batch: Batch
    beta: Array
    level: Level

    @property
    def lam(self) -> Array:
        """λ (N, 1, 1); zeros of least squares."""
        lam = self.batch.lam if isinstance(self.batch, LassoBatch | LogisticBatch) else np.zeros(self.batch.count)
        return lam[:, None, None]

    @property
    def l2(self) -> Array:
        """μ_h (N, 1, 1); zeros but for logistic regression."""
        l2 = self.batch.l2 if isinstance(self.batch, LogisticBatch) else np.zeros(self.batch.count)
        return l2[:, None, None]

    def residual(self, X: Enclosed) -> Enclosed:
        """At these points."""
        image = product(self.batch.M, X, self.level)
        if isinstance(self.batch, LogisticBatch):
            return image.signed(-self.batch.labels[:, :, None])
        assert isinstance(self.batch, LeastSquaresBatch | LassoBatch)
        return image - Enclosed.exactly(self.batch.Y[:, :, None])

    def gradient(self, residual: Enclosed) -> Enclosed:
        """∇f (N, d, k) of the smooth parts, where the residual is this."""
        if isinstance(self.batch, LogisticBatch):
            residual = residual.function("sigmoid", 0.25, self.level).signed(-self.batch.labels[:, :, None])
        return product(self.batch.M.transpose(0, 2, 1), residual, self.level)

    def objectives(self, X: Enclosed, residual: Enclosed) -> list[Interval]:
        """Enclosures (k) of ΣF_p."""
        if isinstance(self.batch, LogisticBatch):
            low, high = residual.function("softplus", 1.0, self.level).magnitudes()
        else:
            low, high = residual.magnitudes()
            low, high = array_down(0.5 * low * low - TINY, 2), array_up(0.5 * high * high + TINY, 3)
        terms_low, terms_high = [np.maximum(low, 0.0)], [high]
        if self.batch.proximal:
            least, most = X.magnitudes()
            low, high = (self.lam * size + 0.5 * self.l2 * size * size for size in (least, most))
            terms_low.append(np.maximum(array_down(low - TINY, 6), 0.0))
            terms_high.append(array_up(high + TINY, 6))
        return total(np.concatenate(terms_low, axis=1), np.concatenate(terms_high, axis=1))

    def penalties(self, X: Enclosed) -> Enclosed:
        """λ|x| + (μ_h/2)x² of each entry."""
        penalties = Enclosed.exactly(self.lam) * X.magnitude()
        return penalties + Enclosed.exactly(0.5 * self.l2) * X * X if self.l2.any() else penalties

    def steps(self, x: Array, gradient: Enclosed, P: Array) -> Enclosed:
        """prox_{(P/β)h}(x - (P/β)∇f) (N, d, k): from x (N, d, k or 1) and the gradient there, with P (k,)."""
        by = self.lengths(P)
        moved = Enclosed.exactly(x) - by * gradient
        if not self.batch.proximal:
            return moved
        moved = moved.shrunk(by * Enclosed.exactly(self.lam))
        if not self.l2.any():
            return moved
        growth = Enclosed.exactly(np.ones((1, 1, 1))) + by * Enclosed.exactly(self.l2)
        # 1 + sμ_h is at least 1, as computed and in truth: its error moves the quotient by no more than itself
        quotient = moved.quotient(growth.value)
        return Enclosed(quotient.value, array_up(quotient.radius + np.abs(quotient.value) * growth.radius, 3))

    def lengths(self, P: Array) -> Enclosed:
        """P/β (N, 1, k)."""
        lengths = P / self.beta[:, None, None]
        return Enclosed(lengths, array_up(UNIT_ROUNDOFF * lengths + TINY, 2))

    def carried(self, residual: Enclosed | Carried, rest: Array) -> Carried:
        """The residual of least squares after the steps P (T, k or 1) of ``rest``.

        r⁺ = r - (P/β)M Mᵀr does not expand where Pβ1 ≤ 2β, so that the errors of the steps add up.
        """
        r, off = (
            (residual.value, residual.off) if isinstance(residual, Carried) else (residual.value, residual.spread())
        )
        for P in rest:
            back = product(self.batch.M, self.gradient(Enclosed.exactly(r)), self.level)
            moved = Enclosed.exactly(r) - self.lengths(P) * back
            off, r = array_up(off + moved.spread(), 1), moved.value
        return Carried(r, off)

    def squares(self, carried: Carried) -> list[Interval]:
        """Enclosures (k) of the objective of least squares."""
        squares, terms = np.square(carried.value).sum(axis=1, keepdims=True), self.batch.rows
        low = array_down(np.sqrt(np.maximum(array_down(squares - terms * TINY, terms + 2), 0.0)), 1) - carried.off
        high = array_up(np.sqrt(array_up(squares + terms * TINY, terms + 2)), 1) + carried.off
        low = np.maximum(array_down(low, 1), 0.0)
        return total(array_down(0.5 * low * low, 2), array_up(0.5 * high * high + TINY, 5))

    def pulled(self, carried: Carried) -> Enclosed:
        """Mᵀr (N, d, k); by Cauchy's inequality an entry moves by the norm of its column times that of the error."""
        image = self.gradient(Enclosed.exactly(carried.value))
        moved = array_up(self._columns[:, :, None] * carried.off, 1)
        return Enclosed(image.value, array_up(image.radius + moved, 1))

    @cached_property
    def _columns(self) -> Array:
        """Upper bounds (N, d) of the norms of the columns of M."""
        squares = np.square(self.batch.M).sum(axis=1)
        return array_up(np.sqrt(array_up(squares + TINY * self.batch.rows, self.batch.rows + 2)), 1)
