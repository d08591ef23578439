"""A low-rank model of A, corrected by dense evaluations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import up

from ..._linalg.norms import product_roundoff
from ..norms import accumulated, matrix_norm_upper, row_norms_upper
from .base import Solver
from .model import LowRankModel
from .problem import SolverMemory, SolverProblem

INNER_STEPS = 30
RANK = 20


class LowRank(Solver):
    """Solves Y = relu(P + γ(Y - Z)(diag(a) + QB)) for A = diag(a) + QB + E between evaluations P = γZA + Φ.

    The inner iteration is the split iteration on the model, whose products cost 2r/m of a dense one. Its point has
    ‖T(Y) - Y‖ ≤ γ‖(Y - V)Q‖‖B‖ + γ‖E‖‖Y - Z‖, V the last but one inner point: a bound of the error without another dense
    evaluation.
    """

    name = "low_rank"

    def __init__(self, problem: SolverProblem, memory: SolverMemory) -> None:
        super().__init__(problem, memory)
        self.model = model = low_rank_model(problem, memory)
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


def low_rank_model(problem: SolverProblem, memory: SolverMemory) -> LowRankModel:
    """The model of ``problem.A`` by a randomised range finder (Halko, Martinsson, Tropp, SIAM Review 53, 2011).

    It starts at ``memory.basis``, the factor of the previous call, and leaves the new one there.
    """
    A, m = problem.A, problem.A.shape[0]
    rank = min(RANK, m)
    R = problem.remainder()
    rows = memory.basis
    if rows is None or rows.shape != (rank, m) or rows.dtype != A.dtype or rows.device != A.device:
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(m, rank, generator=generator, dtype=A.dtype).to(A.device)
        rows = torch.linalg.qr(R @ probe).Q.mT @ R
    Q = torch.linalg.qr(R @ rows.mT).Q
    B = memory.basis = Q.mT @ R
    E = R.addmm_(Q, B, alpha=-1.0)
    Q_norm, B_norm = matrix_norm_upper(Q), matrix_norm_upper(B)
    # E is defined by the stored factors; forming it rounded each of its r + 1 terms.
    forming = accumulated(rank + 2, product_roundoff(A.dtype)) * (problem.remainder_frobenius + Q_norm * B_norm)
    underflow = m * (rank + 2) * torch.finfo(A.dtype).tiny
    rest = up(matrix_norm_upper(E) + forming + underflow, 8)
    memory.give(E)
    return LowRankModel(Q, B, Q_norm, B_norm, rest)
