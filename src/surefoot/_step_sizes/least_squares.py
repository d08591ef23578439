"""Batches of least-squares problems."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from .batch import EPS, Problems
from .draws import generator_of, matrices, spread


class LeastSquares(Problems):
    """min ½‖M_p x - Y_p‖², for p = 1 … N.

    Args:
        M: (N, b, d) float64 or float32; wide, square or tall, of any rank.
        Y: (N, b).

    Raises:
        TypeError, ValueError: as ``Problems``.
    """

    kind: ClassVar[str] = "least-squares-batch"

    @classmethod
    def random(
        cls, count: int, rows: int, columns: int, kind: Literal["authors", "paper"] = "authors", seed: int = 0
    ) -> Self:
        """``count`` problems of rows x columns, float64, with Y = M x̂ for Gaussian x̂.

        ``authors``: Gaussian M with columns scaled to norm 1, as in the published code; ``paper``: Gaussian M.
        """
        if kind not in ("authors", "paper"):
            raise ValueError(f"kind is {kind!r}; it must be 'authors' or 'paper'")
        generator = generator_of(seed)
        M = matrices(count, rows, columns, generator, unit_columns=kind == "authors")
        x = torch.randn(count, columns, generator=generator, dtype=torch.float64)
        return cls(M, torch.bmm(M, x.unsqueeze(2)).squeeze(2))

    @classmethod
    def from_matrix(cls, matrix: Any, targets: Any = None, *, count: int = 1, seed: int = 0) -> Self:
        """One matrix (b, d), as ``sf.data.load`` reads from a .mtx file or a table, for all problems.

        Each column of ``targets`` (b,) or (b, N) is a problem; without targets Y = M x̂ for ``count`` Gaussian x̂.
        """
        return cls(*spread(matrix, targets, count, seed))

    def smooth_value(self, product: Tensor) -> Tensor:
        return 0.5 * (product - self.Y).square().sum(1)

    def outer_gradient(self, product: Tensor) -> Tensor:
        return product - self.Y

    @property
    def strong_convexity(self) -> Tensor:
        """β0 (N,) float64: lower bounds of the smallest nonzero eigenvalue of MᵀM, with which Theorem 2.1 gives a rate; 0 where M
        is, or may be within rounding, of deficient rank: only monotone decrease is known there."""
        return self._smallest_eigenvalue()

    def gap_bound(self, x: Tensor) -> Tensor:
        """½‖M(x-x̂) + Π r̂‖² for the reference minimiser x̂, with ‖Π r̂‖ ≤ ‖Mᵀr̂‖/√β0; F itself where β0 is not certified or F is
        smaller."""
        p, x, reference = self.double, x.double(), self.optimum()
        rounding = 4.0 * (self.rows + self.columns) * EPS

        def residual(x: Tensor) -> tuple[Tensor, Tensor]:
            """M x - Y (N, b), and a bound (N,) of its norm."""
            value = p._image(x) - p.Y
            return value, value.norm(dim=1) + rounding * (p._frobenius * x.norm(dim=1) + p.Y.norm(dim=1))

        offset, offset_norm = residual(reference)
        normal = p._pullback(offset).norm(dim=1) + rounding * p._frobenius * offset_norm
        projected = torch.where(p.strong_convexity > 0.0, normal / p.strong_convexity.sqrt(), torch.inf)
        difference = x - reference
        distance = p._image(difference).norm(dim=1) + rounding * p._frobenius * difference.norm(dim=1)
        return 0.5 * torch.minimum(distance + projected, residual(x)[1]).square() * (1.0 + rounding)

    def gap(self, x: Tensor) -> Tensor:
        # without the cancellation of F - F*
        p, reference = self.double, self.optimum()
        return 0.5 * p._image(x.double() - reference).square().sum(1)

    def optimum(self, tolerance: float | None = None, max_iterations: int = 200_000) -> Tensor:
        """The minimisers of least norm (N, d) float64, by a direct method; the arguments do not matter."""
        return self._least_norm

    @cached_property
    def _least_norm(self) -> Tensor:
        # gelsd, which admits any rank, runs on the CPU only; the second solve is one step of refinement
        M, Y = self.M.double().cpu(), self.Y.double().cpu().unsqueeze(2)
        x = torch.linalg.lstsq(M, Y, driver="gelsd").solution
        x = x + torch.linalg.lstsq(M, Y - M @ x, driver="gelsd").solution
        return x.squeeze(2).to(self.M.device)

    def _with(self, M: Tensor, parts: dict[str, Tensor]) -> Self:
        return type(self)(M, parts["Y"])

    def _parts(self) -> dict[str, Tensor]:
        return {"Y": self.Y}
