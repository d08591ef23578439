"""The iteration with a stop as one differentiable operation: the closed form of the derivative of A⁺ at the result."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .._linalg import norms
from .._linalg.info import Status
from .._linalg.operator import apply, batch_first, plain_eager, refuse_nested_forward
from .._linalg.pinv_function import ClosedForm
from .._linalg.spectral import adjoint
from . import iteration, starts

Outputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def compute(A: Tensor, start: Tensor | None, scale: Tensor | None, C: Tensor, rule: str, c0: float) -> Outputs:
    """X, Y = XᴴX (empty for square A), status, rank, layers, residual; the arguments are those of ``differentiable``."""
    m, n = A.shape[-2:]
    A, start = A.resolve_conj(), None if start is None else start.resolve_conj()
    one = C.numel() == C.shape[-2] * C.shape[-1]
    found = _run(A, start, scale, C.reshape(C.shape[-2:]), rule, c0) if one else _each(A, start, scale, C, rule, c0)
    status = torch.where(found.rank == m, int(Status.OK), int(Status.RANK_DEFICIENT))
    status = torch.where(found.converged, status, int(Status.NOT_CONVERGED))
    Y = adjoint(found.X) @ found.X if m < n else found.X.new_empty((*A.shape[:-2], 0, 0))
    return found.X.contiguous(), Y, status, found.rank, found.layers, found.residual


def _each(A: Tensor, start: Tensor | None, scale: Tensor | None, C: Tensor, rule: str, c0: float) -> iteration.Iterated:
    """A run for each different table of C; ``vmap`` makes copies of one."""
    batch, sizes = A.shape[:-2], C.shape[-2:]
    tables, which = torch.unique(C.reshape(-1, *sizes), dim=0, return_inverse=True)
    which = which.reshape(C.shape[:-2]).expand(batch).reshape(-1)
    groups = [(which == table).nonzero()[:, 0] for table in range(len(tables))]

    def part(T: Tensor | None, index: Tensor) -> Tensor | None:
        return None if T is None else T.expand(*batch, *T.shape[-2:]).flatten(0, -3)[index]

    found = [
        _run(A.flatten(0, -3)[index], part(start, index), part(scale, index), table, rule, c0)
        for index, table in zip(groups, tables, strict=True)
    ]
    back = torch.cat(groups).argsort()
    joined = {name: torch.cat([getattr(run, name) for run in found])[back] for name in vars(found[0])}
    return iteration.Iterated(**{name: value.reshape((*batch, *value.shape[1:])) for name, value in joined.items()})


@torch.library.custom_op("surefoot::learned_inverse", mutates_args=())
@functools.wraps(compute)  # whose signature is the operator's
def _kernel(*args: Any) -> Outputs:
    return compute(*args)


@_kernel.register_fake
def _(A, start, scale, C, rule, c0):
    batch, (m, n) = A.shape[:-2], A.shape[-2:]
    integers = [A.new_empty(batch, dtype=torch.int64) for _ in range(3)]
    Y = A.new_empty((*batch, m, m) if m < n else (*batch, 0, 0))
    return (A.new_empty((*batch, n, m)), Y, *integers, A.new_empty(batch, dtype=A.real.dtype))


def _run(A: Tensor, start: Tensor | None, scale: Tensor | None, C: Tensor, rule: str, c0: float) -> iteration.Iterated:
    own = C.tolist()

    def cold() -> iteration.Iterated:
        return iteration.stopped(A, starts.initial(A, rule or c0, starts.squared(scale)), own)

    warm_start, usable = (None, None) if start is None else _usable_start(A, start)
    if warm_start is None or usable is None or not bool(usable.any()):
        return cold()
    # a matrix whose start is of no use takes part in the warm run with X_0 = 0, which stays 0
    warm = iteration.stopped(
        A, torch.where(usable[..., None, None], warm_start, 0.0), [[1.0] * max(C.shape[1], 2)] * C.shape[0]
    )
    if bool(usable.all()):
        return warm
    other = cold()
    return iteration.Iterated(
        torch.where(usable[..., None, None], warm.X, other.X),
        *(
            torch.where(usable, getattr(warm, name), getattr(other, name))
            for name in ("layers", "rank", "residual", "converged")
        ),
    )


def _usable_start(A: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """The start within the row space of A, and whether ‖I - A·start‖ is certainly below 1."""
    if A.shape[-2] < A.shape[-1]:
        start = adjoint(A) @ (adjoint(start) @ start)
    identity = torch.eye(A.shape[-2], dtype=A.dtype, device=A.device)
    return start, norms.defect(identity, A, start) < 1.0


class _CompiledInverse(ClosedForm):
    """The kernel with its derivative in reverse mode."""

    @staticmethod
    def forward(A: Tensor, start: Tensor | None, scale: Tensor | None, C: Tensor, rule: str, c0: float) -> Outputs:
        return (compute if plain_eager(A) else _kernel)(A, start, scale, C, rule, c0)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(differentiable, info, in_dims, args)


class _Inverse(_CompiledInverse):
    """The same with forward-mode derivatives."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        refuse_nested_forward("LearnedInverse")
        return *ClosedForm.tangents(ctx, tangents[0]), *[None] * 4


def differentiable(A: Tensor, start: Tensor | None, scale: Tensor | None, C: Tensor, rule: str, c0: float) -> Outputs:
    """X, Y = XᴴX (empty for square A), status, rank, layers and residual of A (..., m, n), m ≤ n.

    X and Y have the derivative of A⁺ at the result, to any order and in both modes; it is that of A⁺ up to the error of X
    (docs/theorems/inverse.md, Theorem 8), and presumes that X has converged.

    Args:
        A: (..., m, n).
        start, scale: (..., n, m) and (..., 1, 1), without gradient, or None.
        C: coefficients (..., K, L), without gradient; as many dimensions as A has, sizes 1 for one table for all (``vmap`` maps
            it like A).
        rule, c0: the name of a rule, or "" and the number.
    """
    return apply(_Inverse, _CompiledInverse, A, start, scale, C, rule, c0)
