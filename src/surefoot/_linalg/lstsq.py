"""``lstsq`` and ``lstsq_ex``: least squares of any shape and rank, with a ridge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from . import norms
from .arguments import COMPUTED, compute_dtype, isolated, largest_part, matrix_argument, power_of_two_scale, tolerance
from .info import Info, Status
from .linear_systems import applied, common_batch, is_zero, magnitude, right_side, rounded, unscaled, unscaled_bound
from .lstsq_function import least_squares
from .operator import may_branch, own_precision, plain_eager
from .pinv_function import differentiable_pinv

_OK, _DEFICIENT, _NON_FINITE = int(Status.OK), int(Status.RANK_DEFICIENT), int(Status.NON_FINITE)
_INACCURATE, _OUT_OF_RANGE = int(Status.INACCURATE), int(Status.OUT_OF_RANGE)


# Problems for which the choice of a method takes as long as LAPACK's solution: operations in all, and matrices.
_FEW_OPERATIONS, _FEW_MATRICES = 8_000_000, 8


class LstSq(NamedTuple):
    """The first three fields of ``torch.linalg.lstsq``."""

    solution: Tensor
    """(..., n, k), or (..., n) for a vector B"""
    residuals: Tensor
    """‖AX − B‖² of every column (..., k), for a vector (...); of every problem, not only of tall A of full rank"""
    rank: Tensor
    """(...), integer; n where there is a ridge, which determines every unknown"""


def lstsq(
    A: Tensor,
    B: Tensor,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    ridge: float | Tensor = 0.0,
) -> LstSq:
    """The X of least norm that minimises ‖AX − B‖_F² + ridge·‖X‖_F²: ``torch.linalg.lstsq`` for every rank, on every device.

    Singular values up to max(atol, rtol σ_1) count as 0, with a ridge too, so that the solution tends to that without a ridge
    as the ridge tends to 0; the defaults are those of ``pinv``. For each matrix the cheapest accurate method is taken: LU
    elimination of a square A, Cholesky of the small Gram matrix with corrections, QR, and singular values where full rank
    is not certain. A⁺ is not formed. Gradients in A, B and ridge to any order (``lstsq_function`` derives them); at a
    deficient rank those along changes that keep the rank, and finite. With a ridge they are those of the problem with all
    singular values; where a tolerance cuts some that are not 0 to rounding, the derivative is an error (inside transforms,
    where no values can be seen, it is wrong).

    Args:
        A: (..., m, n); float16 and bfloat16 are computed in float32.
        B: (..., m, k), or a vector: (m,), or of the shape of A without its last size. Batch dimensions broadcast. Of the
            dtype of A.
        atol, rtol, ridge: numbers, or real tensors that broadcast to the batch dimensions of A; at least 0.

    Raises:
        torch.linalg.LinAlgError: an entry of A or B is not finite; the message names the problem (``lstsq_ex`` does not raise).
            In the derivative, as above.
        TypeError, ValueError: for other arguments.

    Example:
        >>> A = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)  # a feature twice
        >>> b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        >>> fit = sf.linalg.lstsq(A, b)
        >>> fit.rank.item(), fit.solution.allclose(torch.ones_like(b[:2]))  # the shortest
        (1, True)
        >>> fit.solution.sum().backward()
        >>> A.grad.isfinite().all()  # along changes of A that keep the rank
        tensor(True)
    """
    if atol is None and rtol is None and not isinstance(ridge, Tensor) and ridge == 0:
        value = _by_torch(A, B)
        if value is not None:
            return value
    run = _run(A, B, atol, rtol, ridge)
    if may_branch(run.status) and bool((run.status == _NON_FINITE).any()):
        index = (run.status == _NON_FINITE).nonzero()[0].tolist()
        where = f" of problem {index}" if index else ""
        raise LinAlgError(
            f"lstsq: A or B{where} has infinite or NaN entries; remove them, or use lstsq_ex, which marks such problems"
        )
    return run.value


@own_precision
def lstsq_ex(
    A: Tensor,
    B: Tensor,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    ridge: float | Tensor = 0.0,
) -> tuple[LstSq, Info]:
    """``lstsq`` with an ``Info``, and without exceptions for the values of A and B: a bad problem spoils no other.

    A problem without a value (``Status.NON_FINITE``) is NaN, with gradient 0. In ``info``: ``residual`` =
    ‖Aᴴ(B − AX) − ridge·X‖_F/(‖A‖_F‖B‖_F), the defect of the normal equations; ``error_bound`` ≥ ‖X − X*‖_F of the exact
    solution X*, rounding included (docs/theorems/inverse.md, Theorem 9), infinite where full rank is not certain and
    there is no ridge; ``condition`` ≥ ‖A‖‖A⁺‖ where full rank is certain, else infinite, and with a ridge (‖A‖_F² + ridge)/ridge,
    that of the normal equations.

    Raises:
        TypeError, ValueError: as ``lstsq``.

    Example:
        >>> A = torch.ones(3, 2, dtype=torch.float64)
        >>> b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        >>> infos = [sf.linalg.lstsq_ex(A, b, ridge=ridge)[1] for ridge in (0.0, 0.1)]
        >>> infos
        [Info(rank_deficient, ...), Info(ok, ...)]
        >>> [bool(info.error_bound < 1e-12) for info in infos]  # with a ridge it is unique
        [False, True]
    """
    run = _run(A, B, atol, rtol, ridge)
    return run.value, _describe(run)


def _by_torch(A: Tensor, B: Tensor) -> LstSq | None:
    """Of few small problems without a gradient, on which our choice of a method takes as long as the solution, torch's.

    None for others, and where the rank is not full, where torch's differs from that by singular values, or a value not finite.
    """
    if not (
        isinstance(A, Tensor)
        and isinstance(B, Tensor)
        and A.dtype in COMPUTED
        and A.dtype == B.dtype
        and A.ndim >= 2
        and A.layout == B.layout == torch.strided
        and A.device.type == B.device.type == "cpu"
        and B.ndim in (A.ndim, A.ndim - 1)
        and 0 < A.numel() * min(A.shape[-2:]) <= _FEW_OPERATIONS
        and A.numel() <= _FEW_MATRICES * A.shape[-2] * A.shape[-1]
        and plain_eager(A)
        and plain_eager(B)
        and not (torch.is_grad_enabled() and (A.requires_grad or B.requires_grad))
    ):
        return None
    try:
        solution, _, rank, _ = torch.linalg.lstsq(A, B)
    except RuntimeError:
        return None
    columns = (solution, B) if B.ndim == A.ndim else (solution.unsqueeze(-1), B.unsqueeze(-1))
    residuals = torch.linalg.vector_norm(A @ columns[0] - columns[1], dim=-2).square()
    full = math.isfinite(residuals.sum()) and int(rank.amin()) == min(A.shape[-2:])
    return LstSq(solution, residuals if B.ndim == A.ndim else residuals.squeeze(-1), rank) if full else None


@dataclass
class _Run:
    """A computation: the scaled problem and its solution X, as the kernel saw them, and what is returned."""

    A: Tensor
    B: Tensor
    ridge: Tensor
    atol: Tensor
    rtol: Tensor
    damped: bool
    scale_A: Tensor | None
    scale_B: Tensor | None
    X: Tensor
    rank: Tensor
    status: Tensor
    method: Tensor
    solution: Tensor
    value: LstSq


@own_precision
def _run(A: Tensor, B: Tensor, atol: float | Tensor | None, rtol: float | Tensor | None, ridge: float | Tensor) -> _Run:
    B, vector = right_side(matrix_argument(A), B)
    if ridge is None:
        raise TypeError("ridge is None: it must be a number or a tensor of numbers, at least 0")
    batch = common_batch(A, B)
    wide, right = (M.to(compute_dtype(A.dtype)).expand(*batch, *M.shape[-2:]) for M in (A, B))
    wide, right = (isolated(M, wide, right) for M in (wide, right))
    absolute = tolerance(atol, 0.0, A, "atol")
    default = max(A.shape[-2:]) * torch.finfo(wide.dtype).eps
    relative = tolerance(rtol, default, A, "rtol")
    if rtol is None and atol is not None:
        relative = torch.where(absolute > 0, 0.0, relative)
    damping = tolerance(ridge, 0.0, A, "ridge")
    if isinstance(ridge, Tensor):
        damping = ridge.to(damping.dtype)
    # of the matrices of A, before B adds batch dimensions
    absolute, relative, damping = (value.expand(A.shape[:-2]).expand(batch) for value in (absolute, relative, damping))
    damped = isinstance(ridge, Tensor) or ridge > 0
    given = wide
    scale_A, scale_B = _scales(wide, right, damping.detach(), damped)
    if scale_A is not None:
        factor = scale_A[..., 0, 0].double()
        wide, absolute, damping = wide * scale_A, absolute * factor, damping * factor * factor
    scaled = right if scale_B is None else right * scale_B
    X, rank, status, method = least_squares(wide, scaled, damping, absolute, relative, damped)
    solution = unscaled(X, scale_A, scale_B)
    residuals = (given @ solution - right).abs().square().sum(-2)
    value = LstSq(
        (solution.squeeze(-1) if vector else solution).to(A.dtype),
        (residuals.squeeze(-1) if vector else residuals).to(A.real.dtype if A.is_complex() else A.dtype),
        rank,
    )
    return _Run(
        wide, scaled, damping, absolute, relative, damped, scale_A, scale_B, X, rank, status, method, solution, value
    )


def _scales(A: Tensor, B: Tensor, ridge: Tensor, damped: bool) -> tuple[Tensor | None, Tensor | None]:
    """Powers of two for A, with which goes the square root of the ridge, and for B."""
    always = not may_branch(A)
    if A.numel() == 0:
        return None, None
    if damped:
        A = torch.cat((largest_part(A), ridge.sqrt().to(A.real.dtype)[..., None, None]), -1)
    return power_of_two_scale(A, always=always), power_of_two_scale(B, always=always)


def _describe(run: _Run) -> Info:
    A, B, X, ridge = (value.detach() for value in (run.A, run.B, run.X, run.ridge))
    r, uncertain = norms.residual(B, A, X)
    size_A = norms.frobenius(A)
    shrinking = ridge[..., None, None] * X.to(r.dtype)
    normal, rounding = norms.residual(shrinking, A.mH, r)
    size = norms.frobenius(normal)
    defect = norms.up(size + rounding + size_A * uncertain + 2.0**-52 * norms.frobenius(shrinking))
    divisor = size_A * norms.frobenius(B)
    # the bounds of norms have a floor, where numbers underflow, that a solution 0 does not need
    zero = (is_zero(B) | (is_zero(A) & (ridge > 0))) & is_zero(X)
    residual = torch.where(zero, 0.0, size / divisor)

    smallest, outside, plain, kappa = _certain(A, r, uncertain, X, run.atol, run.rtol)
    is_damped = ridge > 0
    safe = torch.where(is_damped, ridge, 1.0)
    # (AᴴA + ridge)⁻¹ has at most the norm 1/(σ² + ridge) on the row space of A, and 1/ridge elsewhere
    within = norms.up(torch.hypot(norms.up(defect / (smallest.square() + ridge)), outside))
    bound = torch.fmin(within, torch.where(is_damped, norms.up(defect / safe), plain))
    condition = torch.where(is_damped, norms.up((size_A.square() + ridge) / safe), kappa)
    bound = torch.where(zero, 0.0, bound)
    bound = unscaled_bound(bound, X, run.scale_A, run.scale_B)
    solution = run.solution.detach()
    value = run.value.solution.detach()
    value = value.unsqueeze(-1) if value.ndim < solution.ndim else value
    lost = ~solution.isfinite().all(-1).all(-1)
    absent = run.status == _NON_FINITE
    bound, condition, residual = (
        torch.where(~absent & ~lost & number.isfinite(), number, torch.inf) for number in (bound, condition, residual)
    )
    status, bound = rounded(value, solution, torch.where(lost & ~absent, _OUT_OF_RANGE, run.status), bound)
    uncertain = (status == _OK) & ~zero & ~(bound <= magnitude(solution) * (1.0 + 2.0**-20))
    return Info(
        status=torch.where(uncertain, _INACCURATE, status),
        rank=run.rank,
        iterations=torch.zeros_like(run.rank),
        residual=residual,
        error_bound=bound,
        condition=condition,
        method_code=run.method,
    )


def _certain(
    A: Tensor, r: Tensor, uncertain: Tensor, X: Tensor, atol: Tensor, rtol: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What is certain of A by an approximate A⁺, from r = B − AX; docs/theorems/inverse.md, Theorem 9.

    A lower bound of the smallest singular value, 0 where full rank is not certain; an upper bound of the part of X outside the
    row space of A; and upper bounds of ‖X − A⁺B‖_F and of ‖A‖‖A⁺‖.
    """
    m, n = A.shape[-2:]
    tall = m > n
    wide = A.mH if tall else A
    Z, Y, status, *_ = differentiable_pinv(wide, atol, rtol, torch.ones_like(atol), False, "auto", 0.0, 2, 1)
    identity = torch.eye(min(m, n), dtype=A.dtype, device=A.device)
    rho = norms.defect(identity, wide, Z)
    size_Z, size_r = norms.frobenius(Z), norms.up(norms.frobenius(r) + uncertain)
    room = (1.0 - rho) * (1.0 - 2.0**-48)
    certain = (room > 0) & (status == _OK) & (size_Z > 0)
    room, size_Z = torch.where(certain, room, 1.0), torch.where(certain, size_Z, 1.0)
    bound, outside = applied(Z.mH if tall else Z, r, uncertain), torch.zeros_like(rho)
    if tall:
        bound = norms.up(norms.up(bound + norms.defect(Z, wide.mH, Y) * size_r) / room)
    elif m == n:
        bound = norms.up(bound / room)
    else:
        outside = norms.defect(X, A.mH, Z.mH @ X)
        bound = norms.up(torch.hypot(norms.up(bound + norms.up(size_Z * rho / room) * size_r), outside))
    condition = norms.up(norms.up(norms.frobenius(A) * size_Z) / room)
    smallest = torch.where(certain, room / size_Z * (1.0 - 2.0**-48), 0.0)
    bounds = (torch.where(certain & value.isfinite(), value, torch.inf) for value in (outside, bound, condition))
    return smallest, *bounds  # type: ignore[return-value]
