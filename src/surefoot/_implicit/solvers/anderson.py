"""Anderson acceleration, row by row."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Solver
from .problem import SolverMemory, SolverProblem

DEPTH = 5


class Anderson(Solver):
    """Anderson(5): the combination of the last images T(Z_k) whose residual is least, for every row by itself.

    The rows are independent fixed-point problems, so each has its own coefficients (Walker and Ni, SIAM J. Numer. Anal. 49,
    2011, in the form with differences). Safeguarded by the plain steps of ``solve``.
    """

    name = "anderson"
    patience = 8

    def __init__(self, problem: SolverProblem, memory: SolverMemory) -> None:
        super().__init__(problem, memory)
        self._previous: tuple[Tensor, Tensor] | None = None
        self._residuals: list[Tensor] = []
        self._images: list[Tensor] = []

    def propose(self, Z: Tensor, P: Tensor, T: Tensor, D: Tensor) -> Tensor:
        if self._previous is not None:
            self._residuals.append(D - self._previous[0])
            self._images.append(T - self._previous[1])
            del self._residuals[:-DEPTH], self._images[:-DEPTH]
        self._previous = (D.clone(), T.clone())
        if not self._residuals:
            return T
        depth = len(self._residuals)
        gram = D.new_empty(D.shape[0], depth, depth, dtype=torch.float64)
        right = D.new_empty(D.shape[0], depth, dtype=torch.float64)
        for i, left in enumerate(self._residuals):
            right[:, i] = torch.linalg.vecdot(left, D)
            for j in range(i + 1):
                gram[:, i, j] = gram[:, j, i] = torch.linalg.vecdot(left, self._residuals[j])
        # Columns scaled to unit norm and a ridge at rounding level: rows that stand still would give a singular system.
        size = gram.diagonal(dim1=1, dim2=2).clamp_min(1e-300).sqrt()
        scaled = gram / (size[:, :, None] * size[:, None, :])
        scaled.diagonal(dim1=1, dim2=2).add_(10.0 * torch.finfo(D.dtype).eps)
        coefficients, info = torch.linalg.solve_ex(scaled, (right / size)[:, :, None])
        usable = (info == 0) & coefficients.isfinite().all(dim=(1, 2))
        weights = torch.where(usable[:, None], coefficients[:, :, 0] / size, 0.0).to(D.dtype)
        for i, image in enumerate(self._images):
            T.addcmul_(image, weights[:, i : i + 1], value=-1.0)
        return T

    def select(self, rows: Tensor) -> None:
        if self._previous is not None:
            self._previous = (self._previous[0][rows], self._previous[1][rows])
        self._residuals = [entry[rows] for entry in self._residuals]
        self._images = [entry[rows] for entry in self._images]
