"""A = diag(a) + QB + E with a bound of ‖E‖: the diagonal and a low-rank part, of which products are cheap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from surefoot_check.rigor.bounds import up

from ..norms import accumulated, matrix_norm_upper, product_roundoff

if TYPE_CHECKING:
    from .problem import Problem, SolverMemory

RANK = 20


@dataclass(frozen=True)
class LowRankModel:
    """Factors of A - diag(A), up to a rest.

    Attributes:
        Q: (m, r).
        B: (r, m).
        Q_norm, B_norm: upper bounds of ‖Q‖ and ‖B‖.
        rest: upper bound of ‖E‖, E = A - diag(A) - QB for the factors as they are stored.
    """

    Q: Tensor
    B: Tensor
    Q_norm: float
    B_norm: float
    rest: float

    @classmethod
    def of(cls, problem: Problem, memory: SolverMemory) -> LowRankModel:
        """By a randomised range finder (Halko, Martinsson, Tropp, SIAM Review 53, 2011).

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
        return cls(Q, B, Q_norm, B_norm, rest)

    @property
    def transposed(self) -> LowRankModel:
        """The model of Aᵀ."""
        return LowRankModel(self.B.mT, self.Q.mT, self.B_norm, self.Q_norm, self.rest)
