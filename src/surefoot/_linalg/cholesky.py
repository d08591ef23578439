"""``cholesky`` and ``cholesky_ex``: the triangular factor, of the matrix or of it plus the least shift with which it factors.

The factor is torch's, and so is its derivative, to any order. What a shift had to be is decided by a kernel without derivative.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from . import norms
from .arguments import (
    COMPUTED,
    all_finite,
    compute_dtype,
    double_dtype,
    first_place,
    hermitian_part,
    matrix_argument,
    power_of_two_scale,
    refuse_non_finite,
    tolerance,
)
from .info import Info, Method, Status
from .operator import apply, batch_first, may_branch, own_precision, plain_eager
from .spectral import adjoint

_OK, _SHIFTED, _NON_FINITE = int(Status.OK), int(Status.SHIFTED), int(Status.NON_FINITE)
_OUTSIDE = int(Status.OUTSIDE_DOMAIN)
# Up to so many rows the residual is formed at once and in twice the precision.
_BLOCK = 64


class Cholesky(NamedTuple):
    """A + shift·I = LLᴴ, or UᴴU."""

    factor: Tensor
    """(..., n, n), lower triangular (upper triangular for ``upper=True``)"""
    shift: Tensor
    """(...), float64, without gradient: 0, or a power of two"""


@own_precision
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L with A = LLᴴ (U with A = UᴴU for ``upper``): ``torch.linalg.cholesky``, also for float16 and bfloat16 (in float32).

    Args:
        A: (..., n, n), Hermitian positive definite; only its lower triangle (upper for ``upper``) is read.
        upper: whether to return U = Lᴴ.

    Returns:
        (..., n, n), of the dtype of A.

    Raises:
        torch.linalg.LinAlgError: A is not positive definite; the message names the matrix and the shift that would do
            (``cholesky_ex`` applies it, and does not raise).
        TypeError, ValueError: A is no batch of square matrices of a supported dtype.

    Example:
        >>> A = torch.tensor([[4.0, 2.0], [2.0, 5.0]], dtype=torch.bfloat16)
        >>> sf.linalg.cholesky(A)  # of torch.linalg.cholesky an error
        tensor([[2., 0.],
                [1., 2.]], dtype=torch.bfloat16)
    """
    if isinstance(A, Tensor) and A.dtype in COMPUTED and plain_eager(A):
        try:
            # what torch takes is checked by torch; errors find their words below
            return torch.linalg.cholesky(A, upper=upper)
        except RuntimeError:
            pass
    work = matrix_argument(A, square=True).to(compute_dtype(A.dtype))
    if may_branch(work):
        code = torch.linalg.cholesky_ex(work.detach(), upper=upper)[1]
        if bool((code != 0).any()):
            raise LinAlgError(_refusal(work.detach(), code, upper))
    return torch.linalg.cholesky(work, upper=upper).to(A.dtype)


@own_precision
def cholesky_ex(A: Tensor, *, upper: bool = False, max_shift: float | Tensor | None = None) -> tuple[Cholesky, Info]:
    """The factor of A + shift·I and the shift, with an ``Info``, and without exceptions for the values of A.

    The shift is 0 where A factors (``Status.OK``), and elsewhere (``SHIFTED``) the smallest eps·2ʲ‖A‖, j = 0, 1, …, with which it
    does, ‖A‖ being ‖A‖_F rounded down to a power of two (eps·2ʲ where A = 0). A matrix that needs more than ``max_shift``
    (``OUTSIDE_DOMAIN``), or is not finite (``NON_FINITE``), has the factor NaN, with gradient 0, and fails no other.

    In ``info``: ``error_bound`` ≥ ‖A + shift·I − LLᴴ‖_F of the returned factor, rounding included: since LLᴴ is positive
    semidefinite, this proves λ_min(A) ≥ −(shift + error_bound). ``residual`` is the measured norm of that difference over ‖A‖_F.
    ``condition`` is not known, infinite. The gradient is that of the factor of A + shift·I with the shift held constant.

    Args:
        A: (..., n, n), Hermitian; only its lower triangle (upper for ``upper``) is read. float16 and bfloat16 are computed
            in float32.
        upper: whether to return U = Lᴴ.
        max_shift: the largest shift allowed, a number or a real tensor that broadcasts to the batch dimensions; None: any.

    Raises:
        TypeError, ValueError: for other arguments.

    Source:
        The shift of a failed factorisation by trial is usual in Gaussian processes and quasi-Newton methods (Nocedal and
        Wright, Numerical Optimization, algorithm 3.3); here it is reported.

    Example:
        >>> K = torch.ones(2, 2, dtype=torch.float64)  # of a kernel, with a point twice
        >>> (L, shift), info = sf.linalg.cholesky_ex(K)
        >>> info
        Info(shifted, ...)
        >>> bool(shift < 1e-15), torch.allclose(L @ L.T, K)
        (True, True)
    """
    work = matrix_argument(A, square=True).to(compute_dtype(A.dtype))
    limit = tolerance(max_shift, math.inf, A, "max_shift").expand(A.shape[:-2])
    work = hermitian_part(work.mH if upper else work)
    if may_branch(work):
        L, code = torch.linalg.cholesky_ex(work)
        if not bool((code != 0).any()) and bool(all_finite(L.detach()).all()):
            L, zero = L.to(A.dtype), torch.zeros_like(code, dtype=torch.float64)
            return Cholesky(adjoint(L) if upper else L, zero), _describe(work.detach(), L.detach(), zero, zero.long())
    shift, status = apply(_Shift, _CompiledShift, work.detach(), limit)
    absent = ((status == _NON_FINITE) | (status == _OUTSIDE))[..., None, None]
    identity = torch.eye(A.shape[-1], dtype=work.dtype, device=A.device)
    regular = torch.where(absent, identity, work + shift.to(work.real.dtype)[..., None, None] * identity)
    L = torch.linalg.cholesky_ex(regular)[0].masked_fill(absent, torch.nan).to(A.dtype)
    return Cholesky(adjoint(L) if upper else L, shift), _describe(work.detach(), L.detach(), shift, status)


def _describe(A: Tensor, L: Tensor, shift: Tensor, status: Tensor) -> Info:
    known = (status == _OK) | (status == _SHIFTED)
    wide = double_dtype(A.dtype)
    L = L.to(A.dtype)
    scale = power_of_two_scale(A, always=not may_branch(A))
    if scale is None:
        factor = torch.ones_like(shift)
    else:
        # A by an even power of two, L by its root
        root = torch.exp2((scale.log2() / 2).floor())
        A, L, factor = A * root * root, L * root, (root.double() * root.double())[..., 0, 0]
    # not in place: under vmap the shift may have a mapped dimension that A has not
    identity = torch.eye(A.shape[-1], dtype=wide, device=A.device)
    shifted = A.to(wide) + (shift * factor)[..., None, None] * identity
    size, rounding = _product_defect(shifted, L)
    bound = norms.up(size + rounding + 2.0**-52 * norms.frobenius(shifted))
    total = norms.frobenius(A)
    residual = torch.where(size > 0, size / torch.where(total > 0, total, 1.0), 0.0)
    bound = norms.unscaled(bound, factor)
    bound, residual = (torch.where(known & value.isfinite(), value, torch.inf) for value in (bound, residual))
    return Info(
        status=status,
        rank=torch.where(known, A.shape[-1], 0),
        iterations=torch.zeros_like(status),
        residual=residual,
        error_bound=bound,
        condition=torch.full_like(bound, torch.inf),
        method_code=torch.where(known, int(Method.CHOLESKY), int(Method.NONE)),
    )


def _product_defect(A: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """Near ‖A − LLᴴ‖_F of Hermitian A in float64 or complex128, and a bound of what rounding may add to it."""
    n = L.shape[-1]
    if n <= _BLOCK:
        block, rounding = norms.residual(A, L, L.mH)
        return norms.frobenius(block), rounding
    # below the diagonal alone, which is a quarter of the product, in blocks of columns
    width, L = max(_BLOCK, -(-n // 8)), L.to(A.dtype)
    squares = torch.zeros(A.shape[:-2], dtype=torch.float64, device=A.device)
    for start in range(0, n, width):
        end = min(start + width, n)
        block = A[..., start:, start:end] - L[..., start:, :end] @ L[..., start:end, :end].mH
        inside, below = (norms.frobenius(part) for part in (block[..., : end - start, :], block[..., end - start :, :]))
        squares = norms.up(squares + inside.square() + 2.0 * below.square())
    lost = 8.0 * n**3 * torch.finfo(A.dtype).tiny
    rounding = norms.product_rounding(n, A.dtype) * (norms.frobenius(A) + norms.frobenius(L).square()) + lost
    return norms.up(squares.sqrt()), norms.up(rounding)


def _refusal(A: Tensor, code: Tensor, upper: bool) -> str:
    refuse_non_finite((A.mH if upper else A).tril(), "cholesky")
    matrix, place = A[code != 0][0], first_place(code)
    shift, _ = compute(hermitian_part(matrix.mH if upper else matrix), torch.full((), torch.inf))
    return (
        f"cholesky: {place} is not positive definite, but it is with {float(shift):.3g} added to its diagonal; "
        "cholesky_ex adds that and says so"
    )


def compute(A: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """The shift and the status of each Hermitian matrix (..., n, n); ``limit`` (...): the largest shift allowed."""
    batch, n = A.shape[:-2], A.shape[-1]
    A = A.resolve_conj().reshape(math.prod(batch), n, n)
    code = torch.linalg.cholesky_ex(A)[1] if A.numel() else torch.zeros(len(A), dtype=torch.int32, device=A.device)
    shift = torch.zeros(len(A), dtype=torch.float64, device=A.device)
    status = torch.zeros(len(A), dtype=torch.int64, device=A.device)
    finite = all_finite(A)
    failed = ((code != 0) & finite).nonzero()[:, 0]
    if failed.numel():
        shift[failed] = _least_shift(A[failed])
        status[failed] = _SHIFTED
    status[shift > limit.to(shift.device).reshape(-1).expand_as(shift)] = _OUTSIDE
    status[~finite] = _NON_FINITE
    shift[~finite | (status == _OUTSIDE)] = 0.0
    return shift.reshape(batch), status.reshape(batch)


def _least_shift(A: Tensor) -> Tensor:
    """The least eps·2ʲ‖A‖ with which each of the finite matrices (N, n, n) factors, by bisection of j."""
    eps = torch.finfo(A.dtype).eps
    size = torch.linalg.vector_norm(A.to(double_dtype(A.dtype)), dim=(-2, -1))
    unit = torch.exp2(torch.where(size > 0, size, 1.0).log2().floor()) * eps
    # ‖A‖_F is less than twice the power of two, so that four times it makes every matrix positive definite
    low, high = torch.full_like(unit, -1.0), torch.full_like(unit, 2.0 - math.log2(eps))
    for _ in range(math.ceil(math.log2(3.0 - math.log2(eps)))):
        middle = ((low + high) / 2).floor()
        step = (unit * torch.exp2(middle)).to(A.real.dtype)[:, None, None]
        factors = torch.linalg.cholesky_ex(A + step * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device))[1] == 0
        # where low and high are neighbours already, middle is low, which failed
        factors &= middle > low
        low, high = torch.where(factors, low, middle), torch.where(factors, middle, high)
    return unit * torch.exp2(high)


@torch.library.custom_op("surefoot::cholesky_shift", mutates_args=())
def _kernel(A: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    return compute(A, limit)


@_kernel.register_fake
def _(A: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    batch = A.shape[:-2]
    return A.new_empty(batch, dtype=torch.float64), A.new_empty(batch, dtype=torch.int64)


class _CompiledShift(torch.autograd.Function):
    """The kernel, of which nothing has a derivative."""

    @staticmethod
    def forward(A: Tensor, limit: Tensor) -> Any:
        return (compute if plain_eager(A) else _kernel)(A, limit)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(lambda *moved: apply(_Shift, _CompiledShift, *moved), info, in_dims, args)


class _Shift(_CompiledShift):
    """The same in forward mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return None, None
