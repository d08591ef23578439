"""The logarithm of the determinant of a Hermitian positive definite matrix, by its Cholesky factor.

**Error bound.** With LLᴴ = A + E, ‖E‖_F measured, X computed for A⁻¹ and ρ ≥ ‖I − AX‖: ‖A⁻¹‖ ≤ ‖X‖/(1 − ρ), so that the
eigenvalues of A⁻¹E, which are those of a Hermitian matrix, have t = ‖A⁻¹‖‖E‖_F as a bound of their norm, and

    |log det(A + E) − log det A| = |Σ log(1 + μ_i)| ≤ Σ|μ_i|/(1 − t) ≤ √n·t/(1 − t).

What is left is the rounding of 2Σ log L_ii: four units of each term and of their sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from . import norms
from .arguments import (
    all_finite,
    compute_dtype,
    double_dtype,
    first_place,
    hermitian_part,
    matrix_argument,
    refuse_non_finite,
    sums_are_finite,
)
from .info import Info, Method, Status
from .operator import apply, batch_first, may_branch, may_differentiate, own_precision, refuse_nested_forward
from .tied_pairs import herm


def logdet(A: Tensor) -> Tensor:
    """log det A (...) of Hermitian positive definite A (..., n, n), with derivatives of every order in both modes.

    Of a general square matrix torch.linalg.slogdet gives sign and logarithm; its gradient has no ties to mend.

    Args:
        A: (..., n, n); the lower triangle is read, and the gradient A⁻¹ is Hermitian. float16 and bfloat16 are computed
            in float32.

    Raises:
        TypeError, ValueError: A is no batch of square floating-point matrices.
        torch.linalg.LinAlgError: an entry is infinite or NaN, or A is not positive definite (``logdet_ex`` does not
            raise). Where a transform hides the values, the value is NaN instead.

    Example:
        >>> C = torch.tensor([[2.0, 1.0], [1.0, 2.0]], requires_grad=True)  # a covariance
        >>> sf.linalg.logdet(C).backward()
        >>> C.grad
        tensor([[ 0.6667, -0.3333],
                [-0.3333,  0.6667]])
    """
    value, *_ = _logdet(A)
    lost = value.isnan()
    if may_branch(lost) and bool(lost.any()):
        refuse_non_finite(A.tril(), "logdet")
        raise LinAlgError(
            f"logdet: {first_place(lost)} is not positive definite: shift it, take torch.linalg.slogdet, or use "
            "logdet_ex, which marks such matrices and returns the others"
        )
    return value


def logdet_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``logdet`` with a record of each matrix; one that is not positive definite is NaN, has gradient 0 and fails no other.

    ``status`` is ``OUTSIDE_DOMAIN`` there. ``residual`` is an upper bound of ‖A − LLᴴ‖_F, ``error_bound`` of the error
    of the value, √n·t/(1 − t) with t ≥ ‖A⁻¹‖‖A − LLᴴ‖_F and the rounding of the sum, infinite with status ``INACCURATE``
    where positive definiteness is not certain. ``rank`` is n where there is a factor, else 0; ``condition`` ≥ ‖A‖‖A⁻¹‖,
    infinite where no bound of ‖A⁻¹‖ is certain.

    Raises:
        TypeError, ValueError: as ``logdet``.

    Example:
        >>> A = torch.stack([torch.eye(2), -torch.eye(2)])
        >>> value, info = sf.linalg.logdet_ex(A)  # torch.logdet is 0 of both
        >>> info, value.isnan().tolist()
        (Info(1 ok, 1 outside_domain, ...), [False, True])
    """
    value, matrix, X, L = _logdet(A, inverse=True)
    return value, _describe(value.detach(), hermitian_part(matrix.detach()), X.detach(), L)


@own_precision
def _logdet(A: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The value, the matrix whose lower triangle counts, its inverse (empty if nobody needs it) and its Cholesky factor."""
    matrix = matrix_argument(A, square=True).to(compute_dtype(A.dtype))
    needed = inverse or may_differentiate(matrix)
    value, X, L = apply(_LogDet, _CompiledLogDet, matrix, needed)
    return value.to(A.real.dtype), matrix, X, L


class _CompiledLogDet(torch.autograd.Function):
    """Lower triangle of A -> log det A and A⁻¹, NaN and 0 where A is not positive definite; and the Cholesky factor, I there.

    The inverse is an output, so that the gradient, which is the inverse, can be differentiated again.
    """

    @staticmethod
    def forward(A: Tensor, inverse: bool) -> tuple[Tensor, Tensor, Tensor]:
        L, code = torch.linalg.cholesky_ex(A)
        value = 2 * L.diagonal(dim1=-2, dim2=-1).real.log().sum(-1)
        clean = sums_are_finite(value) and not bool(code.any())
        if not clean:
            lost = (code != 0) | ~value.isfinite()
            identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
            L = torch.where(lost[..., None, None], identity, L)
            value = value.masked_fill(lost, torch.nan)
        X = torch.cholesky_inverse(L) if inverse else A.new_zeros(*A.shape[:-2], 0, 0)
        if not clean:
            X = X.masked_fill(lost[..., None, None], 0)  # pyright: ignore[reportPossiblyUnboundVariable]
        return value, X, L

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, X, L = output
        ctx.mark_non_differentiable(L)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(X)
        ctx.save_for_forward(X)

    @staticmethod
    @own_precision
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (X,) = ctx.saved_tensors
        g, gX, _ = grad_outputs
        gA = None if g is None else g[..., None, None] * X
        if gX is not None:
            through = -herm(X @ gX @ X)
            gA = through if gA is None else gA + through
        return gA, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_LogDet, _CompiledLogDet, *moved), info, in_dims, args)


class _LogDet(_CompiledLogDet):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        refuse_nested_forward("logdet")
        (X,) = ctx.saved_tensors
        dA = herm(grad_inputs[0])
        return (X.conj() * dA).sum((-2, -1)).real, -X @ dA @ X, None


def _describe(value: Tensor, A: Tensor, X: Tensor, L: Tensor) -> Info:
    wide = double_dtype(A.dtype)
    n = A.shape[-1]
    finite, found = all_finite(A), ~value.isnan()
    residual = norms.defect(A, L, L.mH)
    rho = norms.defect(torch.eye(n, dtype=wide, device=A.device), A, X)
    # of A⁻¹
    size = norms.up(norms.frobenius(X) / (1 - rho))
    t = norms.up(size * residual)
    terms = 2 * L.diagonal(dim1=-2, dim2=-1).real.double().log().abs().sum(-1)
    rounding = terms * (n + 8) * torch.finfo(L.dtype).eps + value.double().abs() * torch.finfo(value.dtype).eps
    bound = norms.up(n**0.5 * t / (1 - t) + rounding)
    certain = found & (rho < 1) & (t < 1) & bound.isfinite()
    status = torch.where(certain, int(Status.OK), int(Status.INACCURATE))
    status = torch.where(found, status, int(Status.OUTSIDE_DOMAIN))
    return Info(
        status=torch.where(finite, status, int(Status.NON_FINITE)),
        rank=torch.where(found, n, 0),
        iterations=torch.zeros_like(status),
        residual=torch.where(found, residual, torch.inf),
        error_bound=torch.where(certain, bound, torch.inf),
        condition=torch.where(found & (rho < 1), norms.up(norms.frobenius(A) * size), torch.inf),
        method_code=torch.where(found, int(Method.CHOLESKY), int(Method.NONE)),
    )
