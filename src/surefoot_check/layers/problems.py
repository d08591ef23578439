"""Objectives, gradients and proximal steps of a batch of problems, enclosed entry by entry.

Points are (N, d, k): k of them for each of the N problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..rigor.bounds import UNIT_ROUNDOFF, Array, Level, array_down, array_up
from ..rigor.intervals import TINY, Interval
from ..step_sizes.batches import Batch, LassoBatch, LeastSquaresBatch, LogisticBatch
from .entrywise import Enclosed, product, total


@dataclass(frozen=True)
class Problems:
    """A batch, the constants beta (N,) that steps are measured in, and the level of the arithmetic."""

    batch: Batch
    beta: Array
    level: Level

    @property
    def lam(self) -> Array:
        """λ (N,); zeros of least squares."""
        return self.batch.lam if isinstance(self.batch, LassoBatch | LogisticBatch) else np.zeros(self.batch.count)

    @property
    def l2(self) -> Array:
        """μ_h (N,); zeros but for logistic regression."""
        return self.batch.l2 if isinstance(self.batch, LogisticBatch) else np.zeros(self.batch.count)

    def image(self, X: Enclosed) -> Enclosed:
        """M X (N, b, k)."""
        return product(self.batch.M, X, self.level)

    def adjoint(self, R: Enclosed) -> Enclosed:
        """Mᵀ R (N, d, k)."""
        return product(self.batch.M.transpose(0, 2, 1), R, self.level)

    def _residual(self, image: Enclosed) -> Enclosed:
        """M X - Y, or the negative margins -s⊙(M X)."""
        if isinstance(self.batch, LogisticBatch):
            return image.signed(-self.batch.labels[:, :, None])
        assert isinstance(self.batch, LeastSquaresBatch | LassoBatch)
        return image - Enclosed.exactly(self.batch.Y[:, :, None])

    def gradient(self, image: Enclosed) -> Enclosed:
        """∇f (N, d, k) of the smooth parts, at the points with this image."""
        residual = self._residual(image)
        if isinstance(self.batch, LogisticBatch):
            residual = residual.function("sigmoid", 0.25, self.level).signed(-self.batch.labels[:, :, None])
        return self.adjoint(residual)

    def objectives(self, X: Enclosed, image: Enclosed) -> list[Interval]:
        """Enclosures (k) of ΣF_p."""
        residual = self._residual(image)
        if isinstance(self.batch, LogisticBatch):
            low, high = residual.function("softplus", 1.0, self.level).magnitudes()
        else:
            low, high = residual.magnitudes()
            low, high = array_down(0.5 * low * low - TINY, 2), array_up(0.5 * high * high + TINY, 3)
        terms_low, terms_high = [np.maximum(low, 0.0)], [high]
        if self.batch.proximal:
            least, most = X.magnitudes()
            lam, half = self.lam[:, None, None], 0.5 * self.l2[:, None, None]
            terms_low.append(np.maximum(array_down(lam * least + half * least * least - TINY, 6), 0.0))
            terms_high.append(array_up(lam * most + half * most * most + TINY, 6))
        return total(np.concatenate(terms_low, axis=1), np.concatenate(terms_high, axis=1))

    def steps(self, x: Array, gradient: Enclosed, P: Array) -> Enclosed:
        """prox_{(P/β)h}(x - (P/β)∇f) (N, d, k): from x (N, d, k or 1) and the gradient there, with P (k,)."""
        lengths = P / self.beta[:, None, None]
        by = Enclosed(lengths, array_up(UNIT_ROUNDOFF * lengths + TINY, 2))
        moved = Enclosed.exactly(x) - by * gradient
        if not self.batch.proximal:
            return moved
        moved = moved.shrunk(by * Enclosed.exactly(self.lam[:, None, None]))
        if not self.l2.any():
            return moved
        growth = Enclosed.exactly(np.ones((1, 1, 1))) + by * Enclosed.exactly(self.l2[:, None, None])
        # 1 + sμ_h is at least 1, as computed and in truth: its error moves the quotient by no more than itself
        quotient = moved.quotient(growth.value)
        return Enclosed(quotient.value, array_up(quotient.radius + np.abs(quotient.value) * growth.radius, 3))
