"""Matrices reduced to what training needs of them: the loss (4) and its gradient are a weighted fit in one variable.

‖AX_kA - A‖_F² = Σ_j σ_j² e_k(σ_j²/c0)², where e_0(y) = 1-y and e_{k+1} = 1 - (1-e_k) Σ_l C_kl e_k^l
(docs/theorems/inverse.md, Proposition 1). Computed in w = 1-e, which keeps the relative accuracy of small singular values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._core.validate import as_tensor, finite
from . import starts


@dataclass(frozen=True)
class Spectra:
    """The nonzero singular values of n matrices.

    Attributes:
        relative: σ²/c0 (P,), float64, of all matrices together.
        squared: σ² (P,), the weights.
        count: n.
    """

    relative: Tensor
    squared: Tensor
    count: int

    @classmethod
    def of(cls, matrices: Tensor, c0: float | str | Tensor, name: str = "matrices") -> Spectra:
        """From matrices (N, m, n), float32 or float64.

        Args:
            matrices: at least one, not all 0.
            c0: as in ``LearnedInverse``, or one for each matrix (N,).
            name: of the argument, for errors.

        Raises:
            TypeError: another dtype.
            ValueError: other than three dimensions, no entries, not finite, all 0, or of an extreme scale.
        """
        A = check_matrices(name, matrices).double()
        scale = c0
        if isinstance(c0, str):
            scale = starts.scale(A if A.shape[-2] <= A.shape[-1] else A.mT, c0)
        squared = torch.linalg.svdvals(A).square()
        relative = squared / torch.as_tensor(scale, dtype=torch.float64, device=A.device).reshape(-1, 1)
        # singular values at the rounding level of the largest are 0 in the matrix that is meant
        kept = squared > (max(A.shape[-2:]) * torch.finfo(torch.float64).eps) ** 2 * squared[:, :1]
        if not bool(kept.any()) or not bool(squared.isfinite().all()):
            raise ValueError(f"{name} are all 0, or the squares of their singular values leave float64; rescale them")
        return cls(relative[kept], squared[kept], len(A))

    def residuals(self, C: Tensor) -> list[Tensor]:
        """e_1 … e_K at each singular value, for C (K, L), without gradient."""
        w, residuals = self.relative, []
        for row in C.detach():
            w = w * (row @ self._powers(1.0 - w, len(row)))
            residuals.append(1.0 - w)
        return residuals

    def loss(self, C: Tensor) -> float:
        """The loss (4), 1/(2nK) Σ_i Σ_k ‖A_iX_{k,i}A_i - A_i‖_F²."""
        total = sum(float((self.squared * e.square()).sum()) for e in self.residuals(C))
        return total / (2 * self.count * len(C))

    def test_loss(self, C: Tensor) -> float:
        """The paper's test loss, 1/n Σ_i ‖A_iX_{K,i}A_i - A_i‖_F²."""
        return float((self.squared * self.residuals(C)[-1].square()).sum()) / self.count

    def worst(self, C: Tensor) -> float:
        """The largest ‖A_iA_i⁺ - A_iX_{K,i}‖, the relative error of an inverse."""
        return float(self.residuals(C)[-1].abs().max())

    def value_and_gradient(self, C: Tensor, last_only: bool = False) -> tuple[float, Tensor]:
        """The loss (4) and its gradient (K, L), by the chain rule through w_{k+1} = w_k p_k(1-w_k).

        Args:
            C: (K, L).
            last_only: of half the test loss in its place: the last layer alone.
        """
        C = C.detach()
        layers, terms = C.shape
        visited: list[tuple[Tensor, Tensor, Tensor]] = []
        w = self.relative
        for row in C:
            powers = self._powers(1.0 - w, terms)
            visited.append((w, powers, row @ powers))
            w = w * visited[-1][2]
        scale = 1.0 / (self.count * (1 if last_only else layers))
        value, slope = 0.0, torch.zeros_like(w)
        gradient = torch.empty_like(C)
        orders = torch.arange(1, terms, dtype=C.dtype, device=C.device)
        for k in reversed(range(layers)):
            before, powers, p = visited[k]
            if k == layers - 1 or not last_only:
                e = 1.0 - before * p
                weighted = self.squared * e
                value += 0.5 * scale * float(weighted @ e)
                slope = slope - scale * weighted
            moved = slope * before
            gradient[k] = powers @ moved
            slope = slope * p - moved * ((orders * C[k, 1:]) @ powers[:-1])
        return value, gradient

    @staticmethod
    def _powers(e: Tensor, terms: int) -> Tensor:
        """e^0 … e^(L-1) (L, P)."""
        powers = torch.empty(terms, len(e), dtype=e.dtype, device=e.device)
        powers[0] = 1.0
        for order in range(1, terms):
            torch.mul(powers[order - 1], e, out=powers[order])
        return powers

    def interval(self) -> tuple[float, float]:
        """The smallest and the largest σ²/c0: of these matrices, and no bound for others."""
        return float(self.relative.min()), float(self.relative.max())


def check_matrices(name: str, value: Any) -> Tensor:
    """A batch (N, m, n) of finite real matrices."""
    A = as_tensor(name, value)
    if A.ndim != 3 or A.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(A.shape)}; pass a batch of matrices (N, m, n), none of it empty")
    finite(name, A)
    return A
