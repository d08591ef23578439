"""The layers of D-SVD as one differentiable operation: the derivative of the decomposition at the factors that they end at.

Autograd through the layers does not give it, however well they converged. Near a stationary point P → 0, the step −f'/f'' is a
quotient of rounding errors, and its derivative has no relation to that of the factors; and the factors of a tie follow the start.
At the result the factors satisfy MV = US and MᵀU = VS, which determines their derivative (``_linalg/svd_derivative.py``). With
r < min(m, n) it needs the other singular triplets too, and they come from the part of M between the complements of U and V.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from .._linalg.arguments import first_place
from .._linalg.operator import apply, batch_first, own_precision, refuse_nested_forward
from .._linalg.svd_derivative import gradient, tangent

Layers = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]
"""M, U_0, V_0 -> U, S, V, residual, orthogonality."""


@torch.library.custom_op("surefoot::refuse_unconverged", mutates_args=())
def _refuse_unconverged(used: Tensor, error: Tensor, tolerance: float) -> Tensor:
    """0, or an error that names the first matrix whose factors did not converge although a derivative of them is ``used``."""
    bad = used & ~(error <= tolerance)
    if bool(bad.any()):
        raise LinAlgError(
            f"{first_place(bad, 'M')} has not converged (residual or orthogonality {float(error[bad][0]):.3g}, tolerance "
            f"{tolerance:.3g}), so that the derivative of its singular value decomposition is not known: use more layers, train "
            "them, leave it out by info.status, take backward='unroll' for the derivative of the layers, or sf.linalg.svd"
        )
    return error.new_zeros(())


@_refuse_unconverged.register_fake
def _(used: Tensor, error: Tensor, tolerance: float) -> Tensor:
    return error.new_empty(())


@_refuse_unconverged.register_vmap
def _(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, None]:
    return batch_first(_refuse_unconverged, info, in_dims, args)[0], None


def _nonzero(*matrices: Tensor | None) -> Tensor:
    """Where one of them (..., a, b) has an entry that is not 0 (...)."""
    return torch.stack([(matrix != 0.0).any(-1).any(-1) for matrix in matrices if matrix is not None]).any(0)


class _CompiledFactors(torch.autograd.Function):
    """M, U_0, V_0 -> all min(m, n) triplets U, S, Vh, S descending; which of them are the network's; residual, orthogonality."""

    @staticmethod
    @own_precision
    def forward(M: Tensor, U0: Tensor, V0: Tensor, layers: Layers, tolerance: float, ties: str) -> Any:
        with torch.no_grad():
            U, S, V, residual, orthogonality = layers(M, U0, V0)
            if S.shape[-1] < min(M.shape[-2:]):
                U, S, V = _completed(M, U, S, V)
            order = S.argsort(dim=-1, descending=True, stable=True)
            U, V = (X.gather(-1, order[..., None, :].expand_as(X)) for X in (U, V))
            place = order.argsort(dim=-1)[..., : U0.shape[-1]]
            return U, S.gather(-1, order), V.mT.contiguous(), place, residual, orthogonality

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        U, S, Vh, place, residual, orthogonality = output
        ctx.mark_non_differentiable(place, residual, orthogonality)
        ctx.set_materialize_grads(False)
        ctx.tolerance, ctx.ties = inputs[4:]
        error = torch.maximum(residual, orthogonality)
        ctx.save_for_backward(U, S, Vh, error)
        ctx.save_for_forward(U, S, Vh, error)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gU, gS, gVh = grad_outputs[:3]
        if gU is None and gS is None and gVh is None:
            return (None,) * 6
        U, S, Vh, error = ctx.saved_tensors
        used = _nonzero(gU, None if gS is None else gS[..., None], gVh)
        refused = _refuse_unconverged(used, error, ctx.tolerance)
        return gradient(U, S, Vh, gU, gS, gVh, ctx.ties) + refused, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(converged_factors, info, in_dims, args)


class _Factors(_CompiledFactors):
    """The same with forward-mode derivatives."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        refuse_nested_forward("LearnedSVD")
        U, S, Vh, error = ctx.saved_tensors
        dM = tangents[0] + _refuse_unconverged(_nonzero(tangents[0]), error, ctx.tolerance)
        changes = tangent(U, S, Vh, dM, ctx.ties)
        return *(d.clone(memory_format=torch.contiguous_format) for d in changes), None, None, None


def converged_factors(
    M: Tensor, U0: Tensor, V0: Tensor, layers: Layers, tolerance: float, ties: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All min(m, n) singular triplets U, S, Vh with the derivative of the decomposition, S descending; the places (..., r) of
    those that the layers computed; their residual and orthogonality.

    A derivative of a matrix whose residual or orthogonality is above the tolerance is an error, raised where it is computed. That
    of the others is off by about their residual times s_1 over the least gap of singular values that the loss tells apart.

    Args:
        M: (..., m, n), finite.
        U0, V0: the start (..., m, r) and (..., n, r), without gradient.
        layers: sees the three without gradient, with the mapped dimensions of ``torch.vmap`` first.
        tolerance: of residual and orthogonality.
        ties: as in ``sf.linalg.svd``.
    """
    return apply(_Factors, _CompiledFactors, M, U0, V0, layers, tolerance, ties)


def _completed(M: Tensor, U: Tensor, S: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V with the triplets of M (..., m, n) that they lack behind them."""
    left, right = (torch.linalg.qr(X, mode="complete")[0][..., X.shape[-1] :] for X in (U, V))
    P, sigma, Qh = torch.linalg.svd(left.mT @ M @ right, full_matrices=False)
    return torch.cat((U, left @ P), -1), torch.cat((S, sigma), -1), torch.cat((V, right @ Qh.mT), -1)
