"""The singular value decomposition, with derivatives that are finite everywhere and right at ties."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from . import norms
from .arguments import compute_dtype, matrix_argument
from .info import Info
from .operator import apply, batch_first, own_precision, plain_eager, refuse_nested_forward
from .spectral import METHODS, describe, extremes, refuse_non_finite, spectral_factors
from .svd_derivative import gradient, tangent

TIES = ("mask", "raise")


class SVD(NamedTuple):
    """A = U·diag(S)·Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def svd(
    A: Tensor,
    full_matrices: bool = True,
    ties: Literal["mask", "raise"] = "mask",
    method: Literal["auto", "svd"] = "auto",
) -> SVD:
    """A = U·diag(S)·Vh with orthonormal columns of U and rows of Vh, and S descending; called like ``torch.linalg.svd``.

    The derivative is finite for every A. It is the derivative of the loss wherever the loss is a differentiable
    function of A and sees the factors of *tied* singular values through S, projectors, UVh, or U·h(S)·Vh, U·h(S)·Uᴴ,
    Vhᴴ·h(S)·Vh of one h (plus a spectral function where three or more values tie): ``svd_derivative`` derives this. Any
    other loss of the vectors has no derivative at a tie; ``ties`` says what happens then. For the polar factor UVh
    prefer ``polar``: its derivatives exist to any order at ties, those of ``svd`` only to the first. Forward-mode
    derivatives at a tie are right where h′ = 0 and for S summed over the tie.

    Vectors of tied singular values are turned by a fixed reflection, so that the gradient can be read off: the factors
    of the identity are not the identity.

    Args:
        A: (..., m, n). float16 and bfloat16 are computed in float32.
        full_matrices: whether U is (..., m, m) and Vh (..., n, n), else (..., m, k) and (..., k, n), k = min(m, n). The
            null vectors have derivatives too (torch.linalg.svd ignores them).
        ties: ``"mask"``: terms that do not exist are 0; ``"raise"``: ``torch.linalg.LinAlgError`` in the backward pass,
            naming the pair.
        method: ``"auto"``: from the Gram matrix where its measured residual and orthogonality are within
            ten times LAPACK's, else LAPACK; ``"svd"``: always LAPACK (the accuracy of torch.linalg.svd).

    Raises:
        TypeError, ValueError: A is no batch of floating-point matrices; ``ties`` or ``method`` is unknown.
        torch.linalg.LinAlgError: an entry is infinite or NaN (``svd_ex`` does not raise).
    """
    value, _ = _factors(A, full_matrices, ties, method, refuse=True)
    return value


def svd_ex(
    A: Tensor,
    full_matrices: bool = True,
    ties: Literal["mask", "raise"] = "mask",
    method: Literal["auto", "svd"] = "auto",
) -> tuple[SVD, Info]:
    """``svd`` with a record of each matrix; one with non-finite entries has NaN factors and does not fail the others.

    ``residual`` is an upper bound of ‖A − U·diag(S)·Vh‖_F. ``error_bound`` bounds the error of every singular value:
    with δ = max(‖UᴴU − I‖_F, ‖VhVhᴴ − I‖_F), |σ_i(U·diag(S)·Vh) − s_i| ≤ δs_1 (Ostrowski), and Weyl's inequality adds
    the residual. ``rank`` counts singular values above max(m, n)·ε·s_1; ``condition`` is s_1/s_k.

    Raises:
        TypeError, ValueError: as ``svd``.
    """
    value, gram = _factors(A, full_matrices, ties, method, refuse=False)
    return value, _info(A.detach(), SVD(*(factor.detach() for factor in value)), gram)


@own_precision
def _factors(A: Tensor, full_matrices: bool, ties: str, method: str, refuse: bool) -> tuple[SVD, Tensor]:
    if ties not in TIES:
        raise ValueError(f"ties is {ties!r}; choose one of {', '.join(TIES)}")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}")
    work = matrix_argument(A).to(compute_dtype(A.dtype))
    U, S, Vh, gram = apply(_SVD, _CompiledSVD, work, full_matrices, ties, method, refuse)
    return SVD(*(factor if work is A else factor.to(A.dtype) for factor in (U, S, Vh))), gram


def _info(A: Tensor, value: SVD, gram: Tensor) -> Info:
    wide = torch.complex128 if A.is_complex() else torch.float64
    m, n = A.shape[-2:]
    k = min(m, n)
    U, S, Vh = value.U[..., :k].to(wide), value.S.double(), value.Vh[..., :k, :].to(wide)
    A = A.to(wide)
    residual = norms.defect(A, U * S.unsqueeze(-2), Vh)
    identity = torch.eye(k, dtype=wide, device=A.device)
    orthogonality = torch.maximum(norms.defect(identity, U.mH, U), norms.defect(identity, Vh, Vh.mH))
    largest, _ = extremes(S)
    # the product U·diag(S) was rounded, and its columns are no longer than s_1(1 + δ)
    rounding = 2.0**-52 * k * largest * (1 + orthogonality)
    bound = norms.up(residual + rounding + orthogonality * largest)
    return describe(A, value.S, torch.isfinite(S).all(-1), gram, residual, bound)


def _compute(A: Tensor, full_matrices: bool, method: str, refuse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if refuse:
        refuse_non_finite(A, "singular values", "svd_ex")
    return spectral_factors(A, method, full_matrices)


_kernel = torch.library.custom_op("surefoot::svd", mutates_args=())(_compute)


@_kernel.register_fake
def _(A: Tensor, full_matrices: bool, method: str, refuse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *batch, m, n = A.shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    return (
        A.new_empty(*batch, m, rows),
        A.new_empty(*batch, k, dtype=A.real.dtype),
        A.new_empty(*batch, columns, n),
        A.new_empty(batch, dtype=torch.bool),
    )


@torch.library.custom_op("surefoot::refuse_undefined_gradient", mutates_args=())
def _refuse_undefined(undefined: Tensor, S: Tensor) -> Tensor:
    """0, or an error that names the first pair where the gradient is undefined."""
    if bool(undefined.any()):
        *batch, i, j = undefined.nonzero()[0].tolist()
        i, j = sorted((i, j))
        values = S[tuple(batch)]
        matrix = f" of matrix {tuple(batch)}" if batch else ""
        if i == j:
            raise LinAlgError(
                f"the loss depends on the phase of the singular vectors of pair {i}{matrix}, which is arbitrary: its "
                "gradient is not defined. Use a loss that keeps its value when U and Vh turn together, or ties='mask' to "
                "drop the phase"
            )
        raise LinAlgError(
            f"singular values {i} and {j}{matrix} are equal to rounding ({values[i]:.17g} and {values[j]:.17g}) and the "
            "gradient of the loss is not defined there, or cannot be told from its gradients in U, S and Vh. Use a loss "
            "that keeps its value when both pairs of vectors turn together, or ties='mask' to drop the term"
        )
    return S.new_zeros(())


@_refuse_undefined.register_fake
def _(undefined: Tensor, S: Tensor) -> Tensor:
    return S.new_empty(())


@_refuse_undefined.register_vmap
def _(info: Any, in_dims: Any, undefined: Tensor, S: Tensor) -> tuple[Tensor, None]:
    return batch_first(_refuse_undefined, info, in_dims, (undefined, S))[0], None


class _CompiledSVD(torch.autograd.Function):
    """A (..., m, n) -> U, S, Vh, and where the Gram matrix was used (not differentiable)."""

    @staticmethod
    def forward(A: Tensor, full_matrices: bool, ties: str, method: str, refuse: bool) -> Any:
        return (_compute if plain_eager(A) else _kernel)(A, full_matrices, method, refuse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        U, S, Vh, gram = output
        ctx.mark_non_differentiable(gram)
        ctx.set_materialize_grads(False)
        ctx.ties = inputs[2]
        ctx.save_for_backward(U, S, Vh)
        ctx.save_for_forward(U, S, Vh)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gU, gS, gVh, _ = grad_outputs
        if gU is None and gS is None and gVh is None:
            return None, None, None, None, None
        U, S, Vh = ctx.saved_tensors
        gA, undefined = gradient(U, S, Vh, gU, gS, gVh, report=ctx.ties == "raise")
        if undefined is not None:
            gA = gA + _refuse_undefined(undefined, S.detach())
        return gA, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_SVD, _CompiledSVD, *moved), info, in_dims, args)


class _SVD(_CompiledSVD):
    """The same with forward-mode derivatives."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        U, S, Vh = ctx.saved_tensors
        refuse_nested_forward("svd")
        # autograd refuses tangents that are views, or conjugated, where the values are not
        tangents = tangent(U, S, Vh, grad_inputs[0])
        return *(d.resolve_conj().clone(memory_format=torch.contiguous_format) for d in tangents), None
