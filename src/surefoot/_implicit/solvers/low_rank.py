"""A low-rank model of A, corrected by dense evaluations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import up

from ..norms import accumulated, product_roundoff, row_norms_upper
from .base import Solver
from .model import LowRankModel
from .problem import Problem, SolverMemory

INNER_STEPS = 30


class LowRank(Solver):
    """Solves Y = relu(P + γ(Y - Z)(diag(a) + QB)) for A = diag(a) + QB + E between evaluations P = γZA + Φ.

    The inner iteration is the split iteration on the model, whose products cost 2r/m of a dense one. Its point has
    ‖T(Y) - Y‖ ≤ γ‖(Y - V)Q‖‖B‖ + γ‖E‖‖Y - Z‖, V the last but one inner point: a bound of the error without another dense
    evaluation.
    """

    name = "low_rank"

    def __init__(self, problem: Problem, memory: SolverMemory) -> None:
        super().__init__(problem, memory)
        self.model = model = LowRankModel.of(problem, memory)
        self._scaled_B = problem.gamma * model.B * problem.scale
        self._last: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None = None

    def propose(self, Z: Tensor, P: Tensor, T: Tensor, D: Tensor) -> Tensor:
        problem = self.problem
        gamma = problem.gamma
        C = P.addcmul_(Z, problem.diagonal, value=-gamma).mul_(problem.scale)
        Y = torch.clamp_min(C, 0.0, out=T)
        moved = torch.sub(Y, Z, out=D)
        # The product in this order: with few columns on the right, float64 products take several times as long.
        used = torch.zeros(Z.shape[0], self.model.Q.shape[1], dtype=Z.dtype, device=Z.device)
        coefficients = torch.mm(self.model.Q.mT, moved.mT).mT
        step = float(torch.linalg.vector_norm(coefficients))
        # What no inner iteration can remove; a tenth of it is accurate enough for the inner problem.
        floor = (
            self.model.rest * float(torch.linalg.vector_norm(moved)) / self.model.B_norm
            if self.model.B_norm
            else math.inf
        )
        enough = max(0.1 * floor, 0.3 * problem.target / (gamma * self.model.B_norm)) if self.model.B_norm else math.inf
        for _ in range(INNER_STEPS):
            if not step > enough:
                break
            used = coefficients
            torch.addmm(C, used, self._scaled_B, out=Y).clamp_min_(0.0)
            torch.sub(Y, Z, out=moved)
            coefficients = torch.mm(self.model.Q.mT, moved.mT).mT
            previous, step = step, float(torch.linalg.vector_norm(coefficients - used))
            if not step < 0.9 * previous:
                break
        self._last = (Z, Y, used, coefficients, row_norms_upper(moved))
        return Y

    def defects(self) -> Tensor | None:
        if self._last is None:
            return None
        _, _, used, coefficients, moved = self._last
        change = row_norms_upper(coefficients - used)
        return (change * self.model.B_norm + moved * self.model.rest) * (self.problem.gamma * (1.0 + 2.0**-40))

    def defect_rounding(self) -> Tensor:
        assert self._last is not None
        Z, Y, used, _, moved = self._last
        gamma = self.problem.gamma
        m, rank = self.model.Q.shape
        thin = row_norms_upper(used) * up(gamma * self.model.B_norm, 2)
        # fl((y - z)Q): sums of m products of differences that carry one rounding each.
        relative = accumulated(m + 3, product_roundoff(Z.dtype))
        return self.problem.split_rounding(Z, Y, rank, thin) + moved * up(
            gamma * relative * self.model.Q_norm * self.model.B_norm, 6
        )

    def select(self, rows: Tensor) -> None:
        self._last = None
