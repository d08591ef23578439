"""The iteration with a stop as one differentiable operation: the closed form of the derivative of A⁺ at the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._linalg.info import Status
from .._linalg.operator import batch_first, refuse_nested_forward
from .._linalg.pinv_function import ClosedForm
from .iteration import Iterated

Outputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Run = Callable[[Tensor, Tensor | None, Tensor | None], Iterated]


class _Inverse(ClosedForm):
    """X, Y = XᴴX (empty for square A), status, rank, layers, residual of A (..., m, n), m ≤ n."""

    @staticmethod
    def forward(A: Tensor, start: Tensor | None, scale: Tensor | None, run: Run) -> Outputs:
        iterated = run(A, start, scale)
        m, n = A.shape[-2:]
        status = torch.where(iterated.rank == m, Status.OK, Status.RANK_DEFICIENT)
        status = torch.where(iterated.converged, status, Status.NOT_CONVERGED)
        Y = iterated.X.mH @ iterated.X if m < n else iterated.X.new_empty((*A.shape[:-2], 0, 0))
        return iterated.X, Y, status, iterated.rank, iterated.layers, iterated.residual

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        refuse_nested_forward("LearnedInverse")
        return *ClosedForm.tangents(ctx, tangents[0]), *[None] * 4

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(differentiable, info, in_dims, args)


def differentiable(A: Tensor, start: Tensor | None, scale: Tensor | None, run: Run) -> Outputs:
    """X, Y = XᴴX (empty for square A), status, rank, layers and residual of A (..., m, n), m ≤ n.

    X and Y have the derivative of A⁺ at the result, to any order and in both modes; it is that of A⁺ up to the error of X
    (docs/theorems/inverse.md, Theorem 8), and presumes that X has converged.

    Args:
        A: (..., m, n).
        start, scale: (..., n, m) and (..., 1, 1), without gradient, or None.
        run: the iteration of the three; sees them without gradient, with the mapped dimensions of ``torch.vmap`` first.
    """
    return _Inverse.apply(A, start, scale, run)  # type: ignore[return-value]
