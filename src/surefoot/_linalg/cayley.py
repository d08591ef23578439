"""The Cayley transform of a matrix, applied to the columns of another."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from .arguments import all_finite, compute_dtype, double_dtype, matrix_argument
from .info import Info, Method, Status
from .norms import defect, frobenius, up
from .operator import own_precision


@own_precision
def cayley(P: Tensor, U: Tensor, t: float | Tensor = 1.0) -> Tensor:
    """(I + tP/2)⁻¹ (I − tP/2) U.

    For a skew-Hermitian P (Pᴴ = −P) the transform is unitary for every real t: a U with orthonormal columns keeps them. The curve
    starts at U with the velocity −PU. Derivatives in P, U and t of any order, forward and reverse, and ``torch.func``.

    Args:
        P: (..., m, m), any square matrix; nothing of its skew symmetry is assumed, so that derivatives are those of the formula.
        U: (..., m, r); batch dimensions broadcast with those of P.
        t: a real step, of any sign; a tensor broadcasts with the batch dimensions.

    Returns:
        (..., m, r), of the dtype of P and U; half and bfloat16 are computed in float32.

    Raises:
        TypeError: P and U are not both floating or both complex of one dtype, or t is complex.
        ValueError: P is not square, the row counts differ, the batch dimensions do not broadcast, or the devices differ.
        torch.linalg.LinAlgError: a pivot of I + tP/2 is 0; for a skew-Hermitian P only where |t| ‖P‖ is beyond 1/eps, so that the
            identity is lost to rounding.

    Source:
        Learning-based matrix inverse paper, equation (6) (Wen and Yin, 2013). The paper goes on to set C(t) = LD-Minv(I + tP/2),
        which is the inverse factor alone: see docs/errata.md.

    Example:
        >>> G = torch.randn(5, 5, dtype=torch.float64)
        >>> U = torch.eye(5, 2, dtype=torch.float64)
        >>> V = sf.linalg.cayley(G - G.T, U, t=100.0)  # however long the step
        >>> torch.allclose(V.T @ V, torch.eye(2, dtype=torch.float64))  # orthonormal columns
        True
    """
    P, U, step, dtype = _arguments(P, U, t)
    # (I + M)⁻¹ (I − M) = 2 (I + M)⁻¹ − I saves the product of M and U
    return (torch.linalg.solve(_shifted(P, step), _right_side(P, U, step)) - U).to(dtype)


@own_precision
def cayley_ex(P: Tensor, U: Tensor, t: float | Tensor = 1.0) -> tuple[Tensor, Info]:
    """``cayley`` with a record for each matrix of the batch; a singular or non-finite one does not fail the others.

    ``residual`` is ‖(I + tP/2)(X + U) − 2U‖_F of the result X, which is that of (I + tP/2) X = (I − tP/2) U. Since the Hermitian
    part of I + tP/2 is at least h = 1 − |t| ‖P + Pᴴ‖_F/4, its inverse has norm at most 1/h, and ``error_bound`` is the residual
    with its own rounding divided by h (h = 1 for a skew-Hermitian P); infinite where h ≤ 0. ``condition`` is
    (1 + |t| ‖P‖_F/2)/h. ``rank`` is m.

    Raises:
        TypeError, ValueError: as ``cayley``.

    Example:
        >>> P = torch.tensor([[[0.0, 1.0], [-1.0, 0.0]], [[-2.0, 0.0], [0.0, 1.0]]])
        >>> V, info = sf.linalg.cayley_ex(P, torch.eye(2))
        >>> info  # the first P is skew-symmetric; of the second I + P/2 is singular
        Info(1 ok, 1 singular, ...)
        >>> bool(info.error_bound[0] < 1e-6)
        True
    """
    P, U, step, dtype = _arguments(P, U, t)
    solution, failures = torch.linalg.solve_ex(_shifted(P, step), _right_side(P, U, step))
    value = (solution - U).to(dtype)
    length = torch.as_tensor(t, dtype=torch.float64, device=P.device).detach()
    return value, _info(P.detach(), U.detach(), length, value.detach(), failures)


def _info(P: Tensor, U: Tensor, t: Tensor, X: Tensor, failures: Tensor) -> Info:
    """The record of a stored result X, all in float64 whatever the precision of X."""
    batch, rows = X.shape[:-2], P.shape[-1]
    wide = double_dtype(P.dtype)
    P, U, X = P.to(wide), U.to(wide), X.to(wide)
    shifted, total = _shifted(P, t[..., None, None]), X + U
    half = t.abs() / 2.0
    size = up(1.0 + half * frobenius(P))
    # tP/2, the sum with I, and X + U are rounded once each, by 2⁻⁵³ of their size
    rounding = 2.0**-51 * size * (frobenius(X) + frobenius(U))
    margin = 1.0 - up(half / 2.0 * frobenius(P + P.mH))
    inside = margin > 0.0
    safe = torch.where(inside, margin, 1.0)
    bound = torch.where(inside, up((defect(2.0 * U, shifted, total) + rounding) / safe), torch.inf)

    status = torch.full(batch, int(Status.OK), dtype=torch.int64, device=X.device)
    status = torch.where(inside & (bound > frobenius(U)), int(Status.INACCURATE), status)
    status = torch.where(all_finite(X), status, int(Status.OUT_OF_RANGE))
    # where h > 0 the exact matrix is regular: a zero pivot then says that the identity was lost to rounding beside tP/2
    status = torch.where(failures > 0, torch.where(inside, int(Status.INACCURATE), int(Status.SINGULAR)), status)
    known = all_finite(P) & all_finite(U) & torch.isfinite(t)
    status = torch.where(known, status, int(Status.NON_FINITE))
    whole = torch.zeros(batch, dtype=torch.int64, device=X.device)
    return Info(
        status=status,
        rank=whole + rows,
        iterations=whole,
        residual=_infinite_unless(known, frobenius(2.0 * U - shifted @ total)).expand(batch),
        error_bound=_infinite_unless(known & all_finite(X), bound).expand(batch),
        condition=_infinite_unless(known & inside, up(size / safe)).expand(batch),
        method_code=whole + int(Method.LU),
    )


def _infinite_unless(certain: Tensor, value: Tensor) -> Tensor:
    # NaN where a norm overflows
    return torch.where(certain & (value < torch.inf), value, torch.inf)


def _shifted(P: Tensor, step: Tensor) -> Tensor:
    return torch.eye(P.shape[-1], dtype=P.dtype, device=P.device) + (step / 2.0) * P


def _right_side(P: Tensor, U: Tensor, step: Tensor) -> Tensor:
    # solve takes a right side of one dimension less than the matrix for a batch of vectors: give it all batch dimensions
    batch = torch.broadcast_shapes(P.shape[:-2], U.shape[:-2], step.shape[:-2])
    return (2.0 * U).expand(*batch, *U.shape[-2:])


def _arguments(P: Tensor, U: Tensor, t: float | Tensor) -> tuple[Tensor, Tensor, Tensor, torch.dtype]:
    """P and U in the working precision, t with two trailing dimensions, and the dtype of the result."""
    matrix_argument(P, "P")
    matrix_argument(U, "U")
    if P.dtype != U.dtype:
        raise TypeError(f"P has dtype {P.dtype} but U has {U.dtype}: convert one of them")
    if P.shape[-1] != P.shape[-2] or P.shape[-1] != U.shape[-2]:
        raise ValueError(
            f"P has shape {tuple(P.shape)} and U {tuple(U.shape)}: P must be (..., m, m) and U (..., m, r) with the same m"
        )
    if P.device != U.device:
        raise ValueError(f"P is on {P.device} but U on {U.device}: move one of them")
    if isinstance(t, complex) or (isinstance(t, Tensor) and t.is_complex()):
        raise TypeError("t is complex: the step must be real, otherwise the transform is not unitary")
    working = compute_dtype(P.dtype)
    if not isinstance(t, Tensor | Real):
        raise TypeError(f"t is {t!r}: it must be a real number or a tensor of them")
    real = torch.float64 if working in (torch.float64, torch.complex128) else torch.float32
    step = torch.as_tensor(t, dtype=real, device=P.device)
    try:
        torch.broadcast_shapes(P.shape[:-2], U.shape[:-2], step.shape)
    except RuntimeError as error:
        raise ValueError(
            f"the batch dimensions of P {tuple(P.shape[:-2])}, U {tuple(U.shape[:-2])} and t {tuple(step.shape)} do not "
            "broadcast: give t the batch dimensions of P alone"
        ) from error
    return P.to(working), U.to(working), step[..., None, None], P.dtype
