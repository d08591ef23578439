"""The singular value decomposition, with derivatives that are right at ties, or an error where a tie leaves them open."""

from __future__ import annotations

from functools import wraps
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from . import norms
from .arguments import COMPUTED, compute_dtype, double_dtype, isolated, matrix_argument
from .info import Info
from .operator import apply, batch_first, may_differentiate, own_precision, plain_eager, refuse_nested_forward
from .spectral import METHODS, describe, extremes, spectral_factors, values_between
from .svd_derivative import gradient, tangent
from .tied_pairs import Ties, check_ties


class SVD(NamedTuple):
    """A = U·diag(S)·Vh, A (..., m, n) and k = min(m, n)."""

    U: Tensor
    """(..., m, m), or (..., m, k)"""
    S: Tensor
    """(..., k), real, descending"""
    Vh: Tensor
    """(..., n, n), or (..., k, n)"""


def svd(
    A: Tensor,
    full_matrices: bool = True,
    ties: Ties = "raise",
    method: Literal["auto", "svd"] = "auto",
) -> SVD:
    """A = U·diag(S)·Vh with orthonormal columns of U and rows of Vh, S descending; called like ``torch.linalg.svd``.

    **At ties** of singular values (equal to rounding) the gradients of U, S and Vh do not determine the derivative of
    a loss that combines functions of S with vectors: ``tied_pairs`` proves what they do determine. By default such a
    loss is an error in the backward pass, and what passes is right: losses of U and Vh alone that are functions of A
    (UVh, projectors on whole groups), losses of S alone that are symmetric in the tied values, and any loss that does
    not see the tied pair, like a low-rank part with the tie outside. The operators made for functions of a matrix are
    exact at ties: ``polar`` for UVh, ``singular_value_function``, ``svt``, ``singular_power``, ``svdvals``,
    ``nuclear_norm``, and ``matrix_function`` for Hermitian matrices. A kink, like that of S[0] at S[0] = S[1], is an
    error too. Take vectors and values of a loss from one call: across calls nothing can be noticed.

    At singular values 0 the same holds for losses that see single null vectors, or a function h(S) with a slope at 0
    (like the product U·diag(S)·Vh); losses of S alone get a subgradient there. Second derivatives, and forward mode,
    at a tie are errors where they are not determined: in forward mode that is along all directions that turn tied
    vectors. Under ``torch.compile`` an unused output cannot be told from one with gradient 0, so UVh and projectors at
    a tie are errors there as well.

    Vectors of tied singular values are turned by a fixed reflection, so that they are aligned with no coordinates: the
    factors of the identity are not the identity.

    Args:
        A: (..., m, n). float16 and bfloat16 are computed in float32.
        full_matrices: whether U is (..., m, m) and Vh (..., n, n), else (..., m, k) and (..., k, n), k = min(m, n). The
            null vectors have derivatives too (torch.linalg.svd ignores them).
        ties: ``"raise"``: as above; ``"one-function"``: you promise that the loss is made of U·h(S)·Vh, U·h(S)·Uᴴ and
            Vhᴴ·h(S)·Vh of one h (plus a function of S alone where three or more values tie): its derivative is read
            off, an error if no h fits; ``"mask"``: terms that are not determined are 0, so that the gradient is always
            finite, and wrong without a word where they matter.
        method: ``"auto"``: LAPACK, and for matrices at least half as long again as wide the Gram matrix, where its
            measured residual and orthogonality are within ten times LAPACK's; ``"svd"``: always LAPACK (the accuracy of
            torch.linalg.svd).

    Raises:
        TypeError, ValueError: A is no batch of floating-point matrices; ``ties`` or ``method`` is unknown.
        torch.linalg.LinAlgError: an entry is infinite or NaN (``svd_ex`` does not raise); in the derivative, which
            names the pair, where ties leave it undetermined.

    Example:
        >>> A = torch.eye(3).requires_grad_()
        >>> U, S, Vh = sf.linalg.svd(A)
        >>> (U @ Vh)[0, 1].backward()  # with torch.linalg.svd: NaN
        >>> A.grad[0, 1], A.grad[1, 0]
        (tensor(0.5000), tensor(-0.5000))
    """
    value, _ = factors(A, full_matrices, ties, method, refuse="svd")
    return value


def svd_ex(
    A: Tensor,
    full_matrices: bool = True,
    ties: Ties = "raise",
    method: Literal["auto", "svd"] = "auto",
) -> tuple[SVD, Info]:
    """``svd`` with a record of each matrix; one with non-finite entries has NaN factors and does not fail the others.

    ``residual`` is an upper bound of ‖A − U·diag(S)·Vh‖_F. ``error_bound`` bounds the error of every singular value:
    with δ = max(‖UᴴU − I‖_F, ‖VhVhᴴ − I‖_F), |σ_i(U·diag(S)·Vh) − s_i| ≤ δs_1 (Ostrowski), and Weyl's inequality adds
    the residual. ``rank`` counts singular values above max(m, n)·ε·s_1; ``condition`` is s_1/s_k, from
    above where s_k > ``error_bound``.

    Raises:
        TypeError, ValueError: as ``svd``.

    Example:
        >>> A = torch.stack([torch.eye(3, 2), torch.ones(3, 2)]).double()
        >>> (U, S, Vh), info = sf.linalg.svd_ex(A, full_matrices=False)
        >>> info.rank.tolist(), bool((info.error_bound < 1e-12).all())  # of values
        ([2, 1], True)
    """
    value, gram = factors(A, full_matrices, ties, method)
    return value, _info(A.detach(), SVD(*(factor.detach() for factor in value)), gram)


@own_precision
def factors(A: Tensor, full_matrices: bool, ties: str, method: str, refuse: str = "") -> tuple[SVD, Tensor]:
    """The factors of A, and where the Gram matrix was used; ``refuse``: the operator that refuses non-finite entries."""
    check_ties(ties)
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}")
    work = matrix_argument(A)
    if A.dtype not in COMPUTED:
        work = A.to(compute_dtype(A.dtype))
    if not refuse:
        work = isolated(work)
    # the way for all transforms costs as much as a small decomposition
    if may_differentiate(work):
        U, S, Vh, gram = apply(_SVD, _CompiledSVD, work, full_matrices, ties, method, refuse)
    else:
        U, S, Vh, gram = _compute(work, full_matrices, method, refuse)
    return SVD(U, S, Vh) if work.dtype == A.dtype else SVD(*(factor.to(A.dtype) for factor in (U, S, Vh))), gram


def _info(A: Tensor, value: SVD, gram: Tensor) -> Info:
    wide = double_dtype(A.dtype)
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
    return describe(A, value.S, torch.isfinite(S).all(-1), gram, residual, bound, values_between(S, bound))


def _compute(A: Tensor, full_matrices: bool, method: str, refuse: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return spectral_factors(A, method, full_matrices, refuse)


@torch.library.custom_op("surefoot::svd", mutates_args=())
@wraps(_compute)  # whose signature is the operator's
def _kernel(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tuple(output.contiguous() for output in _compute(*args))  # type: ignore[return-value]


@_kernel.register_fake
def _(A: Tensor, full_matrices: bool, method: str, refuse: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *batch, m, n = A.shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    return (
        A.new_empty(*batch, m, rows),
        A.new_empty(*batch, k, dtype=A.real.dtype),
        A.new_empty(*batch, columns, n),
        A.new_empty(batch, dtype=torch.bool),
    )


class _CompiledSVD(torch.autograd.Function):
    """A (..., m, n) -> U, S, Vh, and where the Gram matrix was used (not differentiable)."""

    @staticmethod
    def forward(A: Tensor, full_matrices: bool, ties: str, method: str, refuse: str) -> Any:
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
        return gradient(U, S, Vh, gU, gS, gVh, ctx.ties), None, None, None, None

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
        tangents = tangent(U, S, Vh, grad_inputs[0], ctx.ties)
        return *(d.resolve_conj().clone(memory_format=torch.contiguous_format) for d in tangents), None
