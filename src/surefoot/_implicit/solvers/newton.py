"""Active-set (semismooth) Newton."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Solver

BLOCK_ENTRIES = 1 << 22
"""Entries of the (rows, m, m) systems that are formed at a time."""


class Newton(Solver):
    """Solves z = φ + γzA exactly on the active set {j: p_j > 0} of each row, zero elsewhere.

    Ends in a few steps, each of m³ operations for every row: for small m, where γ‖A‖ is close to 1.
    """

    name = "newton"
    patience = 8

    def propose(self, Z: Tensor, P: Tensor, T: Tensor, D: Tensor) -> Tensor:
        problem = self.problem
        m = Z.shape[1]
        block = max(1, BLOCK_ENTRIES // (m * m))
        transposed = problem.gamma * problem.A.mT
        for start in range(0, Z.shape[0], block):
            rows = slice(start, start + block)
            active = (P[rows] > 0.0).to(Z.dtype)
            # z (I - γA diag(active)) = φ∘active, transposed: (I - diag(active) γAᵀ) zᵀ = (φ∘active)ᵀ.
            systems = active[:, :, None] * -transposed
            systems.diagonal(dim1=1, dim2=2).add_(1.0)
            solution, info = torch.linalg.solve_ex(systems, (problem.Phi[rows] * active)[:, :, None])
            solution = solution[:, :, 0]
            usable = (info == 0) & solution.isfinite().all(dim=1)
            T[rows] = torch.where(usable[:, None], solution.clamp_min_(0.0), T[rows])
        return T

    def select(self, rows: Tensor) -> None:
        pass  # nothing is remembered
