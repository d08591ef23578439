"""``solve`` and ``solve_ex``: linear systems with a square matrix.

With an approximate inverse R and ρ ≥ ‖I − RA‖, ρ < 1, every X has ‖X − A⁻¹B‖_F ≤ ‖R(B − AX)‖_F/(1 − ρ): R(B − AX) = RA(A⁻¹B − X)
and ‖(RA)⁻¹‖ ≤ 1/(1 − ρ). The residual is formed in twice the precision, so that the bound is close to the error.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from . import norms
from .arguments import (
    COMPUTED,
    all_finite,
    compute_dtype,
    first_place,
    matrix_argument,
    power_of_two_scale,
)
from .info import Info, Method, Status
from .linear_systems import applied, common_batch, is_zero, magnitude, right_side, rounded, unscaled, unscaled_bound
from .operator import apply, batch_first, may_branch, own_precision, plain_eager, refuse_nested_forward

# plain integers: Dynamo takes the comparison of a tensor with an enum member for a constant
_OK, _SINGULAR, _NON_FINITE = int(Status.OK), int(Status.SINGULAR), int(Status.NON_FINITE)
_INACCURATE, _OUT_OF_RANGE = int(Status.INACCURATE), int(Status.OUT_OF_RANGE)
# ‖I − RA‖ to which a product of working precision is enough: the bound is then within twice the best.
_ENOUGH = 0.5
# Rows of a part of a long product in single precision.
_PART = 64


@own_precision
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with AX = B, or XA = B for ``left=False``: ``torch.linalg.solve``, also for float16 and bfloat16 (computed in float32).

    The value is torch's, and nothing is checked beyond what torch checks: NaN or infinite entries give such a result. The
    gradient is gB = A⁻ᴴgX, gA = −gB Xᴴ, to any order.

    Args:
        A: (..., n, n).
        B: (..., n, k), for ``left=False`` (..., k, n), or a vector: (n,), or of the shape of A without its last size. Batch
            dimensions broadcast. Of the dtype of A.

    Raises:
        torch.linalg.LinAlgError: A is exactly singular; the message names the matrix (``solve_ex`` does not raise).
        TypeError: a dtype is not supported, or A and B have different ones.
        ValueError: A is not square, or B does not fit.

    Example:
        >>> A = torch.tensor([[2.0, 1.0], [1.0, 1.0]], dtype=torch.float16)
        >>> b = torch.tensor([3.0, 2.0], dtype=torch.float16)
        >>> sf.linalg.solve(A, b)  # of torch.linalg.solve an error
        tensor([1., 1.], dtype=torch.float16)
    """
    if isinstance(A, Tensor) and isinstance(B, Tensor) and A.dtype in COMPUTED and plain_eager(A) and plain_eager(B):
        try:
            # what torch takes is checked by torch; errors find their words below
            return torch.linalg.solve(A, B, left=left)
        except RuntimeError:
            pass
    B, vector = right_side(matrix_argument(A, square=True), B, left)
    wide = compute_dtype(A.dtype)
    work = A.to(wide)
    if may_branch(work):
        try:
            X = torch.linalg.solve(work, B.to(wide), left=left)
        except LinAlgError as error:
            raise LinAlgError(_singular(work)) from error
    else:
        X = torch.linalg.solve(work, B.to(wide), left=left)
    return (X.squeeze(-1) if vector else X).to(A.dtype)


@own_precision
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True) -> tuple[Tensor, Info]:
    """``solve`` with an ``Info``, and without exceptions for the values of A and B: a bad matrix spoils no other.

    A system without a value (``Status.SINGULAR``, ``NON_FINITE``) is NaN, with gradient 0. In ``info``, over the batch of X:
    ``residual`` = ‖B − AX‖_F/‖B‖_F; ``error_bound`` ≥ ‖X − A⁻¹B‖_F, rounding included: ‖R(B − AX)‖_F/(1 − ρ) with an
    approximate inverse R and ρ ≥ ‖I − RA‖ (docs/theorems/inverse.md, Theorem 9), infinite with status ``INACCURATE`` where
    ρ < 1 is not certain, and ``INACCURATE`` also where it exceeds ‖X‖_F; ``condition`` = ‖A‖_F‖R‖_F/(1 − ρ), above ‖A‖‖A⁻¹‖.

    Raises:
        TypeError, ValueError: as ``solve``.

    Example:
        >>> i = torch.arange(1.0, 21.0, dtype=torch.float64)
        >>> hilbert = 1.0 / (i[:, None] + i - 1.0)
        >>> infos = [sf.linalg.solve_ex(hilbert[:n, :n], i[:n])[1] for n in (5, 20)]
        >>> infos, bool(infos[0].error_bound < 1e-6)
        ([Info(ok, ...), Info(inaccurate, ...)], True)
    """
    B, vector = right_side(matrix_argument(A, square=True), B, left)
    wide = compute_dtype(A.dtype)
    work, right = A.to(wide), B.to(wide)
    if not left:
        work, right = work.mT, right.mT
    batch = common_batch(work, right)
    work, right = work.expand(*batch, *work.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    X, status, residual, bound, condition = _solution(work, right)
    value = (X if left else X.mT).to(A.dtype)
    status, bound = rounded(value if left else value.mT, X, status, bound)
    whole = torch.zeros_like(status)
    info = Info(
        status=status,
        rank=torch.where((status == _SINGULAR) | (status == _NON_FINITE), 0, A.shape[-1]),
        iterations=whole,
        residual=residual,
        error_bound=bound,
        condition=condition,
        method_code=torch.where(status == _NON_FINITE, int(Method.NONE), int(Method.LU)),
    )
    return (value.squeeze(-1) if vector else value), info


def _singular(A: Tensor) -> str:
    return (
        f"solve: {first_place(torch.linalg.lu_factor_ex(A.detach())[2])} is exactly singular, so that not every B "
        "has a solution; lstsq gives the one of least residual and least norm, and solve_ex returns the other matrices of a batch"
    )


def unexpanded(A: Tensor) -> Tensor:
    """A with each batch dimension along which it only repeats itself reduced to size 1."""
    for dim in range(A.ndim - 2):
        if A.stride(dim) == 0 and A.shape[dim] > 1:
            A = A.narrow(dim, 0, 1)
    return A


def compute(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """X, status, residual, error bound and condition of AX = B, A (..., n, n), B (..., n, k) with the same batch dimensions."""
    batch = B.shape[:-2]
    A, B = unexpanded(A.resolve_conj()), unexpanded(B.resolve_conj())
    if math.prod(batch) * A.shape[-1] == 0:
        zero = B.new_zeros(batch, dtype=torch.float64)
        return B.new_zeros((*batch, *B.shape[-2:])), zero.long(), zero, zero.clone(), zero.clone()
    finite_A, finite_B = all_finite(A), all_finite(B)
    scale_A, scale_B = (power_of_two_scale(M, always=False) for M in (A, B))
    scaled_A, scaled_B = (M if s is None else M * s for M, s in ((A, scale_A), (B, scale_B)))
    LU, pivots, code = torch.linalg.lu_factor_ex(scaled_A)
    X = torch.linalg.lu_solve(LU, pivots, scaled_B)
    R = torch.linalg.lu_solve(LU, pivots, torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand_as(A))
    rho = _inverse_defect(R, scaled_A)
    residual, bound = _error(scaled_A, scaled_B, X, R, rho)
    room = (1.0 - rho).clamp(min=0.0) * (1.0 - 2.0**-48)
    condition = norms.up(norms.frobenius(scaled_A) * norms.frobenius(R) / room)
    X, bound = unscaled(X, scale_A, scale_B), unscaled_bound(bound, X, scale_A, scale_B)

    singular = (code != 0).expand(batch)
    bad = ~(finite_A & finite_B)
    status = torch.where(bound <= magnitude(X) * (1.0 + 2.0**-20), _OK, _INACCURATE)
    status = torch.where(X.isfinite().all(-1).all(-1), status, _OUT_OF_RANGE)
    status = torch.where(bad, _NON_FINITE, torch.where(singular, _SINGULAR, status))
    absent = bad | singular
    bound = torch.where(status == _OUT_OF_RANGE, torch.inf, bound)
    bound, residual, condition = (
        torch.where(~absent & value.isfinite(), value, torch.inf) for value in (bound, residual, condition)
    )
    return X.masked_fill(absent[..., None, None], torch.nan), status, residual, bound, condition


def _inverse_defect(R: Tensor, A: Tensor) -> Tensor:
    """An upper bound of ‖I − RA‖_F, over the batch; by a product of working precision where that is enough.

    Of parts of the inner dimension, whose products are added: an entry then passes through fewer roundings than n.
    """
    n = A.shape[-1]
    part = _PART if n > 2 * _PART and A.dtype in (torch.float32, torch.complex64) else n
    product = R[..., :part] @ A[..., :part, :]
    for start in range(part, n, part):
        product += R[..., start : start + part] @ A[..., start : start + part, :]
    product.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    gamma = norms.product_rounding(part + -(-n // part), A.dtype)
    rounding = gamma * (n**0.5 + norms.frobenius(R) * norms.frobenius(A)) + n**3 * torch.finfo(A.dtype).tiny
    rho = norms.up(norms.frobenius(product) + norms.up(rounding))
    doubtful = ~(rho <= _ENOUGH)
    if bool(doubtful.any()):
        identity = torch.eye(n, dtype=A.dtype, device=A.device)
        rho[doubtful] = norms.defect(identity, R[doubtful], A[doubtful])
    return rho


def _error(A: Tensor, B: Tensor, X: Tensor, R: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
    """‖B − AX‖_F/‖B‖_F, and an upper bound of ‖X − A⁻¹B‖_F."""
    r, uncertain = norms.residual(B, A, X)
    size = norms.frobenius(r)
    room = (1.0 - rho) * (1.0 - 2.0**-48)
    bound = norms.up(applied(R, r, uncertain) / torch.where(room > 0, room, 1.0))
    # the bounds of norms have a floor, where numbers underflow, that a solution 0 does not need
    zero = is_zero(B) & is_zero(X)
    bound = torch.where(room > 0, torch.where(zero, 0.0, bound), torch.inf)
    return torch.where(zero, 0.0, size / norms.frobenius(B)), bound


@torch.library.custom_op("surefoot::solve", mutates_args=())
def _kernel(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return tuple(output.contiguous() for output in compute(A, B))  # type: ignore[return-value]


@_kernel.register_fake
def _(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch = B.shape[:-2]
    numbers = [B.new_empty(batch, dtype=torch.float64) for _ in range(3)]
    return B.new_empty(B.shape), B.new_empty(batch, dtype=torch.int64), *numbers  # type: ignore[return-value]


class _CompiledSolution(torch.autograd.Function):
    """The kernel with its derivative: X of A and B; the other outputs are not differentiable."""

    @staticmethod
    def forward(A: Tensor, B: Tensor) -> Any:
        return (compute if plain_eager(A) and plain_eager(B) else _kernel)(A, B)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        saved = *inputs, output[0], output[1]
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if grads[0] is None:
            return None, None
        A, _, X, status = ctx.saved_tensors
        absent = _absent(status)
        gB = torch.linalg.solve_ex(_regular(A, absent).mH, grads[0].masked_fill(absent, 0))[0]
        return (-gB @ X.masked_fill(absent, 0).mH if ctx.needs_input_grad[0] else None), gB

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return batch_first(_solution, info, in_dims, args)


class _Solution(_CompiledSolution):
    """The same with forward-mode derivatives."""

    @staticmethod
    @own_precision
    def jvp(ctx: Any, *tangents: Any) -> Any:
        refuse_nested_forward("solve_ex")
        A, B, X, status = ctx.saved_tensors
        dA, dB = tangents
        absent = _absent(status)
        right = torch.zeros_like(B) if dB is None else dB.masked_fill(absent, 0)
        if dA is not None:
            right = right - dA.masked_fill(absent, 0) @ X.masked_fill(absent, 0)
        return torch.linalg.solve_ex(_regular(A, absent), right)[0], None, None, None, None


def _absent(status: Tensor) -> Tensor:
    """Which systems have no value, over (..., 1, 1)."""
    return ((status == _SINGULAR) | (status == _NON_FINITE) | (status == _OUT_OF_RANGE))[..., None, None]


def _regular(A: Tensor, absent: Tensor) -> Tensor:
    """A with the identity in place of the matrices of systems without a value."""
    return torch.where(absent, torch.eye(A.shape[-1], dtype=A.dtype, device=A.device), A)


def _solution(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return apply(_Solution, _CompiledSolution, A, B)
