"""The errors of derivatives that a tie leaves undetermined (``tied_pairs``), under every transform and compiled.

Whether there is one depends on data, so that a custom operator raises it. Its result, 0 for each matrix, is added to the
derivative: what is not used is not run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from .operator import apply, batch_first
from .tied_pairs import Spectrum

_ONE_FUNCTION = "ties='one-function' if the loss is made of the terms of one function h alone"
_REMEDIES = {
    "singular values": "sf.linalg.polar for UVh; singular_value_function, svt, singular_power, svdvals or nuclear_norm for "
    f"functions of the singular values; matrix_function for those of a Hermitian matrix; {_ONE_FUNCTION}",
    "eigenvalues": f"sf.linalg.matrix_function, sqrtm, logm, ... for functions of the matrix; {_ONE_FUNCTION}",
}
_FACTORS = {"singular values": "(U, S, Vh)", "eigenvalues": "(eigenvalues, eigenvectors)"}


def _message(what: str, when: str, matrix: str, i: int, j: int, values: Tensor, zero: bool) -> str:
    factors, instead = _FACTORS[what], f"Use {_REMEDIES[what]}; or ties='mask', which drops the term"
    if zero:
        these = f"{what[:-1]} {i}{matrix} is" if i == j else f"{what} {i} and {j}{matrix} are"
        return (
            f"{these} 0 to rounding. There the gradients of {factors} do not determine the derivative of a loss that sees "
            f"single null vectors, or a function h(S) with a slope at 0. {instead}"
        )
    if i == j:
        return (
            f"the loss depends on the phase of the vectors of {what[:-1]} {i}{matrix}, which is arbitrary: its gradient is "
            "not defined. Use a loss that keeps its value when the phase turns, or ties='mask' to drop it"
        )
    pair = f"{what} {i} and {j}{matrix} are equal to rounding or nearly ({values[i]:.17g} and {values[j]:.17g})"
    reason = {
        "backward": f"There the gradients of {factors} do not determine the derivative of a loss that combines functions of "
        f"the {what} with vectors, or sees a vector or value of the pair without the other",
        "second": "The gradient is a limit there, or near one, and its own derivative is not known",
        "forward": "Their vectors have no derivative along this direction",
    }[when]
    return f"{pair}. {reason}. {instead}"


@torch.library.custom_op("surefoot::refuse_undefined", mutates_args=())
def _refuse(undefined: Tensor, zero: Tensor, values: Tensor, what: str, when: str) -> Tensor:
    """0 for each matrix, or an error that names the first pair where the derivative is undefined."""
    if bool(undefined.any()):
        *batch, i, j = undefined.nonzero()[0].tolist()
        i, j = sorted((i, j))
        at = tuple(batch)
        null = bool(zero[at][i] & zero[at][j])
        matrix = f" of A[{', '.join(map(str, batch))}]" if batch else ""
        raise LinAlgError(_message(what, when, matrix, i, j, values[at], null))
    return values.new_zeros(undefined.shape[:-2])


@_refuse.register_fake
def _(undefined: Tensor, zero: Tensor, values: Tensor, what: str, when: str) -> Tensor:
    return values.new_empty(undefined.shape[:-2])


@_refuse.register_vmap
def _(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
    return batch_first(_refuse, info, in_dims, args)


def refuse(result: Tensor, undefined: Tensor | None, s: Spectrum, what: str, when: str) -> Tensor:
    """``result`` (..., m, n), or a LinAlgError that names the first pair where ``undefined`` (..., k, k)."""
    if undefined is None:
        return result
    return result + _refuse(undefined, s.zero, s.values.detach(), what, when)[..., None, None]


def first_order(gA: Tensor, pairs: Tensor | None, s: Spectrum, what: str) -> Tensor:
    """``gA``, which may be differentiated again only for matrices without ``pairs`` (..., k, k)."""
    if pairs is None:
        return gA
    return apply(_FirstOrder, _CompiledFirstOrder, gA, pairs, s.zero, s.values.detach(), what)


class _CompiledFirstOrder(torch.autograd.Function):
    """The identity, whose derivative is an error where a matrix has pairs."""

    @staticmethod
    def forward(gA: Tensor, pairs: Tensor, zero: Tensor, values: Tensor, what: str) -> Tensor:
        return gA.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:4])
        ctx.save_for_forward(*inputs[1:4])
        ctx.what = inputs[4]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return _unless_seen(grad_outputs[0], ctx), None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_FirstOrder, _CompiledFirstOrder, *moved), info, in_dims, args)


class _FirstOrder(_CompiledFirstOrder):
    """The same with forward-mode derivatives."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        return _unless_seen(grad_inputs[0], ctx)


def _unless_seen(g: Tensor, ctx: Any) -> Tensor:
    """g, or an error if it is not 0 for a matrix with pairs."""
    pairs, zero, values = ctx.saved_tensors
    seen = (g != 0).flatten(-2).any(-1)[..., None, None]
    return g + _refuse(pairs & seen, zero, values, ctx.what, "second")[..., None, None]
