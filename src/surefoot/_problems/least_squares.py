"""Batches of least-squares problems."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import torch
from torch import Tensor

from .batch import EPS, Problems
from .draws import generator_of, matrices, spread


@dataclass(frozen=True)
class Spans:
    """Orthonormal bases U (b, r) of the ranges of some of the matrices of a batch: F - F* = ½‖Uᵀ(Mx - Y)‖², with no minimiser.

    Attributes:
        problems: which ones.
        bases: U, one a problem.
        left: ‖Y - UUᵀY‖; 0 where M has full row rank.
        rounding: what rounding moves sqrt(2 gap) by.
    """

    problems: list[int]
    bases: list[Tensor]
    left: list[float]
    rounding: list[float]


class LeastSquares(Problems):
    """min ½‖M_p x - Y_p‖², for p = 1 … N.

    Args:
        M: (N, b, d) float64 or float32; wide, square or tall, of any rank; of one problem ``M[None]``.
        Y: (N, b), of one problem ``Y[None]``.
        target: what errors call Y.

    Raises:
        TypeError, ValueError: as ``Problems``.

    Example:
        >>> M, y = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), torch.tensor([1.0, 2.0, 3.0])
        >>> problems = sf.learned.LeastSquares(M[None], y[None])  # a batch of one
        >>> problems, problems.optimum()[0].round(decimals=4).tolist()
        (LeastSquares(...), [1.0, 1.0])
    """

    kind = "least-squares-batch"

    @classmethod
    def random(
        cls, count: int, rows: int, columns: int, kind: Literal["authors", "paper"] = "authors", seed: int = 0
    ) -> Self:
        """``count`` problems of rows x columns, float64, with Y = M x̂ for Gaussian x̂.

        Args:
            count, rows, columns: N, b and d.
            kind: ``authors``: Gaussian M with columns scaled to norm 1, as in the published code; ``paper``: Gaussian M.
            seed: of all draws.

        Raises:
            TypeError, ValueError: bad arguments.
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

        The problems are of the dtype of the matrix.

        Args:
            matrix: (b, d) float64 or float32.
            targets: (b,), or (b, N), of which each column is a problem; without them Y = M x̂ for ``count`` Gaussian x̂.
            count: N, where there are no targets.
            seed: of the x̂.

        Raises:
            TypeError, ValueError: bad arguments.
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
        return self._smallest_eigenvalue

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
        p, x = self.double, x.double()
        gaps = 0.5 * p._image(x - self.optimum()).square().sum(1)
        spans = self._spans
        for k, U in zip(spans.problems, spans.bases, strict=True):
            residual = p.M[k] @ x[k] - p.Y[k]
            gaps[k] = 0.5 * (U.T @ residual).square().sum()
        return gaps

    @cached_property
    def optimal_value(self) -> Tensor:
        """F_p at the reference minimiser (N,) float64, or ½‖Y - UUᵀY‖² where that minimiser is too large to evaluate it."""
        values, spans = super().optimal_value.clone(), self._spans
        for k, left in zip(spans.problems, spans.left, strict=True):
            values[k] = 0.5 * left**2
        return values

    @cached_property
    def _witness_rounding(self) -> Tensor:
        """What the rounding of M x̂ moves sqrt(2 gap) by (N,)."""
        return EPS * self.double._frobenius * self.optimum().norm(dim=1)

    @cached_property
    def _spans(self) -> Spans:
        """Bases for the problems whose reference minimiser is so large that the rounding of M x̂ shows in their first gap.

        The rank is that which the reference minimiser is of: singular values below eps max(b, d) σ_1 count as 0.
        """
        p = self.double
        useless = self._witness_rounding > EPS**0.5 * p.Y.norm(dim=1)
        spans = Spans([], [], [], [])
        for k in useless.nonzero().flatten().tolist():
            U, s, _ = torch.linalg.svd(p.M[k], full_matrices=False)
            kept = s > EPS * max(self.rows, self.columns) * s[0]
            U, s = U[:, kept], s[kept]
            size = float(p.Y[k].norm())
            left = float((p.Y[k] - U @ (U.T @ p.Y[k])).norm()) if U.shape[1] < self.rows else 0.0
            spans.problems.append(k)
            spans.bases.append(U)
            spans.left.append(left)
            # rounding turns the last vectors by eps σ_1/σ_r, towards what the range leaves out
            spans.rounding.append(EPS * (size + float(s[0] / s[-1]) * left))
        return spans

    @property
    def gap_resolution(self) -> Tensor:
        error, spans = self._witness_rounding.clone(), self._spans
        for k, rounding in zip(spans.problems, spans.rounding, strict=True):
            error[k] = rounding
        return 0.5 * error.square()

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
