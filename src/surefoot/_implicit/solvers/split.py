"""Splitting off the diagonal of A."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import up

from ..norms import row_norms_upper
from .base import Solver
from .problem import SolverMemory, SolverProblem


class Split(Solver):
    """Z ← relu(γZR + Φ)/(1 - γa), R = A - diag(a): the solution for given off-diagonal terms (nonlinear Jacobi).

    Its point y satisfies y = relu(γ(zR + y diag(a)) + φ), so that T(y) - y is at most γ‖(y - z)R‖ (relu is 1-Lipschitz): a
    bound of the error at y from one product at z, and an exact solution where A is diagonal. It can cycle while γ‖A‖ < 1.
    """

    name = "split"

    def __init__(self, problem: SolverProblem, memory: SolverMemory) -> None:
        super().__init__(problem, memory)
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def propose(self, Z: Tensor, P: Tensor, T: Tensor, D: Tensor) -> Tensor:
        problem = self.problem
        P.addcmul_(Z, problem.diagonal, value=-problem.gamma).mul_(problem.scale).clamp_min_(0.0)
        torch.sub(P, Z, out=D)
        self._last = (Z, P, row_norms_upper(D))
        return P

    def defects(self) -> Tensor | None:
        if self._last is None:
            return None
        return self._last[2] * up(self.problem.gamma * self.problem.off_diagonal, 2)

    def defect_rounding(self) -> Tensor:
        assert self._last is not None
        Z, Y, moved = self._last
        return self.problem.split_rounding(Z, Y, 0, torch.zeros_like(moved))

    def select(self, rows: Tensor) -> None:
        self._last = None
