"""The kernel of ``pinv`` and ``inv_ex`` with its closed-form derivative."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .arguments import all_finite, power_of_two_scale
from .info import Method, Status
from .operator import apply, batch_first, may_branch, own_precision, plain_eager, refuse_nested_forward
from .pinv_routes import Computed, Tolerances, full, iteration, no_gram, pseudoinverse

# plain integers: Dynamo takes the comparison of a tensor with an enum member for a constant
_DEFICIENT, _SINGULAR = int(Status.RANK_DEFICIENT), int(Status.SINGULAR)
_NON_FINITE, _INACCURATE = int(Status.NON_FINITE), int(Status.INACCURATE)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def compute(
    A: Tensor,
    atol: Tensor,
    rtol: Tensor,
    upper: Tensor,
    hermitian: bool,
    method: str,
    ratio: float,
    order: int,
    limit: int,
) -> Outputs:
    """X, Y = XᴴX (empty for square A), status, rank, iterations, condition, method of A (..., m, n), m ≤ n."""
    batch, (m, n) = A.shape[:-2], A.shape[-2:]
    A = A.resolve_conj()
    flat = A if A.ndim == 3 else A.reshape(math.prod(batch), m, n)
    # a tolerance of every matrix, or one for all
    atol, rtol, upper = (
        value.reshape(()) if value.numel() == 1 else value.expand(batch).reshape(-1) for value in (atol, rtol, upper)
    )

    def computed(part: Tensor, index: Tensor | None) -> Computed:
        if part.numel() == 0:
            return _nothing(part)
        if method == "inverse":
            return _inverse(part)
        tolerances = Tolerances(atol, rtol) if index is None else Tolerances(atol, rtol)[index]
        if method in ("iteration", "chebyshev"):
            bound = upper if index is None or not upper.ndim else upper[index]
            return iteration(part, bound, ratio, order, limit)
        return pseudoinverse(part, tolerances, hermitian, method)

    values = vars(_finite_parts(flat, computed)).values()
    if A.ndim != 3:
        values = (value.reshape((*batch, *value.shape[1:])) for value in values)
    return tuple(values)  # type: ignore[return-value]


@torch.library.custom_op("surefoot::pinv", mutates_args=())
@functools.wraps(compute)  # whose signature is the operator's
def _kernel(*args: Any) -> Outputs:
    return tuple(output.contiguous() for output in compute(*args))  # type: ignore[return-value]


@_kernel.register_fake
def _(A, atol, rtol, upper, hermitian, method, ratio, order, limit):
    batch, (m, n) = A.shape[:-2], A.shape[-2:]
    integers = [A.new_empty(batch, dtype=torch.int64) for _ in range(4)]
    Y = A.new_empty((*batch, m, m) if m < n else (*batch, 0, 0))
    condition = A.new_empty(batch, dtype=torch.float64)
    return (A.new_empty((*batch, n, m)), Y, *integers[:3], condition, integers[3])


def _finite_parts(A: Tensor, compute: Callable[[Tensor, Tensor | None], Computed]) -> Computed:
    """The finite matrices of a flat batch computed, the others left NaN."""
    finite = all_finite(A)
    if bool(finite.all()):
        return compute(A, None)
    result = Computed.empty(A)
    result.status.fill_(Status.NON_FINITE)
    index = finite.nonzero().squeeze(-1)
    if index.numel():
        result.put(index, compute(A[index], index))
    return result


def _nothing(A: Tensor) -> Computed:
    """The result for matrices without entries: zeros, of full rank 0."""
    result = Computed.empty(A)
    for value in (result.X, result.Y, result.condition):
        value.zero_()
    return result


def _inverse(A: Tensor) -> Computed:
    """The inverse as torch computes it, of the matrix scaled if it needs that; a singular matrix is left NaN.

    The condition number is left to the error bound (``describe``), which has the norms.
    """
    scale = power_of_two_scale(A, always=False)
    X, code = torch.linalg.inv_ex(A if scale is None else A * scale)
    if scale is not None:
        X = X * scale
        # entries of very different size vanish beside the largest one, where elimination without scaling may keep them
        again = ((code != 0) | ~all_finite(X)).nonzero().squeeze(-1)
        X[again], code[again] = torch.linalg.inv_ex(A[again])
    unknown = torch.full(A.shape[:-2], torch.inf, dtype=torch.float64, device=A.device)
    result = full(A, X, no_gram(A), Method.LU, unknown)
    singular = code != 0
    if bool(singular.any()):
        result.status[singular] = Status.SINGULAR
        result.X[singular] = torch.nan
        result.rank[singular] = 0
    return result


def _absent(status: Tensor) -> Tensor:
    """Which matrices have no value."""
    return (status == _SINGULAR) | (status == _NON_FINITE) | (status == _INACCURATE)


class ClosedForm(torch.autograd.Function):
    """A function of A and constants with the outputs X = A⁺, Y = XᴴX, status, and further data about them, and its derivative.

    Y = XᴴX is an output with a derivative of its own, so that the cheap gradient, which needs G⁻¹ = (AAᴴ)⁻¹ = Y, can be
    differentiated again.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        A, X, Y, status = inputs[0], *output[:3]
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(A, X, Y, status)
        ctx.save_for_forward(A, X, Y, status)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        A, X, Y, status = ctx.saved_tensors
        return gradient(A, X, Y, status, grads[0], grads[1]), *[None] * (len(ctx.needs_input_grad) - 1)

    @staticmethod
    def tangents(ctx: Any, dA: Tensor) -> tuple[Tensor, Tensor]:
        """Of X and Y, for the ``jvp`` of a subclass."""
        A, X, Y, status = ctx.saved_tensors
        dX = tangent(A, X, status, dA)
        return dX, dX.mH @ X + X.mH @ dX if A.shape[-2] < A.shape[-1] else torch.zeros_like(Y)


class _Pseudoinverse(ClosedForm):
    """The kernel with its derivative."""

    @staticmethod
    def forward(
        A: Tensor,
        atol: Tensor,
        rtol: Tensor,
        upper: Tensor,
        hermitian: bool,
        method: str,
        ratio: float,
        order: int,
        limit: int,
    ) -> Outputs:
        # no *args: without a tensor that requires a gradient, Dynamo would pass the context first
        return (compute if plain_eager(A) else _kernel)(A, atol, rtol, upper, hermitian, method, ratio, order, limit)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(differentiable_pinv, info, in_dims, args)


class _PseudoinverseWithTangent(_Pseudoinverse):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        refuse_nested_forward("pinv")
        return *ClosedForm.tangents(ctx, tangents[0]), *[None] * 5


def differentiable_pinv(*args: Any) -> Outputs:
    """X = A⁺, Y = XᴴX, and their data, from the arguments of ``compute``; X and Y are differentiable in A to any order."""
    return apply(_PseudoinverseWithTangent, _Pseudoinverse, *args)


def unrolled_pinv(A: Tensor, upper: Tensor, ratio: float, order: int, limit: int) -> Outputs:
    """The same outputs from the polynomial iteration, with every step differentiated."""
    result = iteration(A, upper, ratio, order, limit)
    return tuple(vars(result).values())  # type: ignore[return-value]


@own_precision
def gradient(A: Tensor, X: Tensor, Y: Tensor, status: Tensor, gX: Tensor | None, gY: Tensor | None) -> Tensor | None:
    """The gradient at A (..., m, n), m ≤ n, of a loss with gradients gX at X = A⁺ and gY at Y = XᴴX.

    −XᴴgXᴴ + (I − AX)gᴴXXᴴ + XᴴXgᴴ(I − XA), without the terms that vanish: a vanishing term that is kept multiplies the error
    by up to κ (docs/theorems/inverse.md, Theorem 8). With Y the first and third need three products: with T = Ygᴴ and S = TX
    they are T − (S + Sᴴ)A. Zero where there is no value.
    """
    square = A.shape[-2] == A.shape[-1]
    if not square and gY is not None:
        through = X @ (gY + gY.mH)
        gX = through if gX is None else gX + through
    if gX is None:
        return None
    look = may_branch(status)
    # every matrix with its full rank: nothing to mask or to add
    plain = look and (status.numel() == 0 or int(status.amax()) == 0)
    if not plain:
        mask = _absent(status)[..., None, None]
        A, X, gX = A.masked_fill(mask, 0), X.masked_fill(mask, 0), gX.masked_fill(mask, 0)
        Y = Y if square else Y.masked_fill(mask, 0)
    gH = gX.mH
    if square:
        result = -X.mH @ gX @ X.mH
    else:
        T = Y @ gH
        S = T @ X
        result = T - (S + S.mH) @ A
    if not plain:
        lost = (gH - A @ (X @ gH)) @ X @ X.mH
        if square:
            kept = X.mH @ (X @ gH)
            lost = lost + kept - (kept @ X) @ A
        result = result + torch.where((status == _DEFICIENT)[..., None, None], lost, 0)
    return result


@own_precision
def tangent(A: Tensor, X: Tensor, status: Tensor, dA: Tensor) -> Tensor:
    """dA⁺ = −X dA X + (I − XA)dAᴴXᴴX + XXᴴdAᴴ(I − AX), without the terms that vanish at full rank; m ≤ n."""
    mask = _absent(status)[..., None, None]
    A, X, dA = A.masked_fill(mask, 0), X.masked_fill(mask, 0), dA.masked_fill(mask, 0)
    square = A.shape[-2] == A.shape[-1]
    dH = dA.mH
    right = (dH - X @ (A @ dH)) @ X.mH @ X
    left = X @ (X.mH @ (dH - (dH @ A) @ X))
    deficient = (status == _DEFICIENT)[..., None, None]
    return -X @ dA @ X + torch.where(deficient, left, 0) + (torch.where(deficient, right, 0) if square else right)
