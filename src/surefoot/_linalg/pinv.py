"""``pinv`` and ``pinv_ex``: the Moore–Penrose inverse with the closed-form derivative."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal

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
    tolerance,
)
from .info import Info, Status
from .operator import may_branch, own_precision, plain_eager
from .pinv_function import Outputs, differentiable_pinv, unrolled_pinv
from .pinv_routes import SMALL
from .spectral import adjoint

Method = Literal["auto", "cholesky", "qr", "svd", "eigh", "iteration", "chebyshev"]
METHODS = ("auto", "cholesky", "qr", "svd", "eigh", "iteration", "chebyshev")


def pinv(
    A: Tensor,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
    method: Method = "auto",
    backward: Literal["implicit", "unroll"] = "implicit",
    interval: tuple[float, float] | None = None,
    order: int = 3,
    max_iterations: int = 100,
) -> Tensor:
    """The Moore–Penrose inverse of A (..., m, n), of shape (..., n, m): ``torch.linalg.pinv``, faster and with a sound gradient.

    Singular values up to max(atol, rtol σ_1) count as 0. The value is as accurate as that of ``torch.linalg.pinv``: a relative
    error of a small multiple of κ·eps. The gradient, to any order, is the closed form at the result with the terms that vanish
    left out. At a rank-deficient A it is the derivative along changes that keep the rank, and finite; elsewhere A⁺ is
    discontinuous.

    Args:
        A: (..., m, n); float16 and bfloat16 are computed in float32.
        atol, rtol: numbers, or real tensors that broadcast to the batch dimensions, at least 0; by default those of torch: atol
            0, and rtol max(m, n)·eps, or 0 where a positive atol is given. The iterations take the rank as it is and refuse
            both.
        hermitian: whether A is Hermitian; the lower triangle is read.
        method: ``"cholesky"`` (of the small Gram matrix, refined), ``"qr"``, ``"svd"``, ``"eigh"`` (Hermitian A only),
            ``"iteration"`` (X ← X(I + E + … + E^(order−1)), E = I − AX, until its residual is at rounding level), or
            ``"chebyshev"`` (the same with the optimal coefficients for singular values in ``interval``). ``"auto"`` takes for
            each matrix the cheapest that is accurate: where full rank is certain, LU elimination of a square matrix and Cholesky
            or QR of another, and otherwise the singular values (eigenvalues).
        backward: ``"implicit"``: the closed form; ``"unroll"``, for the iterations: every step is differentiated, the last one
            included (X ← XAX where the rank is deficient).
        interval: of all singular values of A but those that are 0; for ``"chebyshev"``, which needs it.
        order: of the iterations, from 2 to 8.
        max_iterations: of the iterations, at least 1.

    Returns:
        (..., n, m), of the dtype of A.

    Raises:
        torch.linalg.LinAlgError: an entry is not finite, an explicit ``"cholesky"`` or ``"qr"`` meets a matrix whose full rank is
            not certain, or an iteration does not converge (``pinv_ex`` does not raise). Inside ``torch.func`` transforms and
            under ``torch.compile`` such a matrix is NaN instead.
        TypeError, ValueError: for other arguments.

    Source:
        The differentiable matrix inverse (equation (3)) of the paper on learned optimisation with orthogonality constraints; our
        erratum: without that last step the derivative through the steps is wrong at a deficient rank.

    Example:
        >>> A = torch.tensor([[2.0, 0.0], [0.0, 1e-4], [0.0, 0.0]], requires_grad=True)
        >>> X = sf.linalg.pinv(A, rtol=1e-3)  # the second singular value is taken for noise
        >>> round(X.abs().max().item(), 4)
        0.5
        >>> X.sum().backward()
        >>> A.grad.isfinite().all()  # at a deficient rank, too
        tensor(True)
    """
    if atol is None and rtol is None and not hermitian and _for_torch(A, method, backward, interval):
        try:
            return torch.linalg.pinv(A)
        except LinAlgError:
            pass  # entries that are not finite, or so small that LAPACK fails: below each has its own treatment
    value, outputs, _, _ = _computed(A, atol, rtol, hermitian, method, backward, interval, order, max_iterations)
    raise_for_status("pinv", outputs[2])
    return value


@own_precision
def pinv_ex(
    A: Tensor,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
    method: Method = "auto",
    backward: Literal["implicit", "unroll"] = "implicit",
    interval: tuple[float, float] | None = None,
    order: int = 3,
    max_iterations: int = 100,
) -> tuple[Tensor, Info]:
    """``pinv`` with an ``Info``, and without exceptions for the values of A: a bad matrix has its status and spoils no other.

    A matrix without a value (``Status.NON_FINITE``; ``INACCURATE`` for an explicit method that does not apply) is NaN, with
    gradient 0. In ``info``: ``residual`` = ‖AXA − A‖_F/‖A‖_F; ``error_bound`` ≥ ‖X − A⁺‖ (spectral norm), rounding
    included, from the defect of I − AX and of X − AᴴXᴴX (docs/theorems/inverse.md, Theorem 6), infinite where full rank is not
    certain; ``condition``: an upper bound of ‖A‖‖A⁺‖, rounding included, where ``error_bound`` is finite, elsewhere an estimate
    over the singular values that count. Up to 160 rows bounds are within a few times the error: the residuals are formed
    with split products (``norms.residual``).

    Raises:
        TypeError, ValueError: as ``pinv``.

    Example:
        >>> A = torch.stack([torch.eye(3, 2), torch.ones(3, 2)])
        >>> X, info = sf.linalg.pinv_ex(A)
        >>> info.rank.tolist(), info.error_bound.isfinite().tolist()  # none for rank 1
        ([2, 1], [True, False])
    """
    value, outputs, wide, scale = _computed(A, atol, rtol, hermitian, method, backward, interval, order, max_iterations)
    return value, describe(value, outputs, wide, scale)


@own_precision
def _computed(
    A: Tensor,
    atol: float | Tensor | None,
    rtol: float | Tensor | None,
    hermitian: bool,
    method: str,
    backward: str,
    interval: tuple[float, float] | None,
    order: int,
    max_iterations: int,
) -> tuple[Tensor, Outputs, Tensor, Tensor | None]:
    """The value, the outputs of the kernel, and its argument: A or Aᴴ, scaled, whichever is wide; and the scale."""
    matrix_argument(A, square=hermitian)
    _check_method(method, backward, interval, order, max_iterations, hermitian, tolerances=(atol, rtol))
    dtype = compute_dtype(A.dtype)
    default = max(A.shape[-2:]) * torch.finfo(dtype).eps
    absolute = tolerance(atol, 0.0, A, "atol")
    if rtol is None and atol is not None and not isinstance(atol, Tensor) and atol > 0:
        default = 0.0
    relative = tolerance(rtol, default, A, "rtol")
    if rtol is None and isinstance(atol, Tensor):
        relative = torch.where(absolute > 0, 0.0, default)
    tall = A.shape[-2] > A.shape[-1]
    wide = A.to(dtype)
    wide = hermitian_part(wide) if hermitian else wide.mH if tall else wide
    scale = power_of_two_scale(wide, always=not may_branch(wide))
    low, high = (0.0, 1.0) if interval is None else interval
    upper = tolerance(high, high, A, "interval")
    if scale is not None:
        wide = wide * scale
        absolute, upper = (value * scale[..., 0, 0].double() for value in (absolute, upper))
    if backward == "unroll":
        outputs = unrolled_pinv(wide, upper, low / high, order, max_iterations)
    else:
        outputs = differentiable_pinv(
            wide, absolute, relative, upper, hermitian, method, low / high, order, max_iterations
        )
    value = outputs[0] if scale is None else outputs[0] * scale
    value = adjoint(value) if tall else value
    return value.to(A.dtype), outputs, wide, scale


def _check_method(
    method: str,
    backward: str,
    interval: tuple[float, float] | None,
    order: int,
    max_iterations: int,
    hermitian: bool,
    tolerances: tuple[float | Tensor | None, float | Tensor | None],
) -> None:
    if method not in METHODS:
        raise ValueError(f"method is {method!r}: it must be one of {', '.join(METHODS)}")
    if backward not in ("implicit", "unroll"):
        raise ValueError(f"backward is {backward!r}: it must be 'implicit' or 'unroll'")
    iterative = method in ("iteration", "chebyshev")
    if backward == "unroll" and not iterative:
        raise ValueError(
            f"backward is 'unroll' and method {method!r}: only 'iteration' and 'chebyshev' have steps to unroll"
        )
    if iterative and any(value is not None for value in tolerances):
        raise ValueError(f"method {method!r} has no use for atol and rtol: leave them out, or use 'auto', 'svd'")
    if method == "eigh" and not hermitian:
        raise ValueError("method is 'eigh' but hermitian is False: pass hermitian=True if A is Hermitian, or use 'svd'")
    if hermitian and method in ("cholesky", "qr"):
        raise ValueError(f"method is {method!r} but hermitian is True: use 'auto' or 'eigh'")
    if (method == "chebyshev") != (interval is not None):
        raise ValueError(
            f"interval is {interval} with method {method!r}: method 'chebyshev', and no other, needs interval=(low, high), "
            "bounds of the nonzero singular values; without them use 'iteration'"
        )
    if interval is not None and not _is_interval(interval):
        raise ValueError(
            f"interval is {interval!r}: it must be two numbers (low, high) with 0 < low < high, bounds of the singular values"
        )
    if not isinstance(order, int) or not 2 <= order <= 8:
        raise ValueError(f"order is {order!r}: it must be an integer from 2 to 8")
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations!r}: it must be an integer, at least 1")


def _is_interval(value: Any) -> bool:
    pair = isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(end, Real) for end in value)
    return pair and 0 < value[0] < value[1] < float("inf")


def _for_torch(A: Tensor, method: str, backward: str, interval: tuple[float, float] | None) -> bool:
    """Whether the matrices are so few and small that every check costs more than the inverse, and no gradient is asked for."""
    return (
        isinstance(A, Tensor)
        and A.dtype in COMPUTED
        and A.layout == torch.strided
        and A.ndim >= 2
        and A.numel() * min(A.shape[-2:]) <= SMALL
        and not (A.requires_grad and torch.is_grad_enabled())
        and (method, backward, interval) == ("auto", "implicit", None)
        and plain_eager(A)
        and not torch.is_autocast_enabled(A.device.type)  # it would round the products of torch.linalg.pinv
    )


def raise_for_status(name: str, status: Tensor) -> None:
    """LinAlgError for the first matrix without a value, where values may be looked at."""
    if not may_branch(status):
        return
    if status.numel() and int(status.amax()) > Status.RANK_DEFICIENT:
        bad = status > Status.RANK_DEFICIENT
        text = Status(int(status[bad][0])).text
        raise LinAlgError(f"{name}: {first_place(bad)}: {text}. {name}_ex returns the other matrices of a batch.")


def describe(value: Tensor, outputs: Outputs, wide: Tensor, scale: Tensor | None, inverse: bool = False) -> Info:
    """The Info of the returned value, from what the kernel computed for the scaled wide matrix.

    The residual is ‖AXA − A‖_F/‖A‖_F, of an ``inverse`` ‖I − AX‖_F.
    """
    X, Y, status, rank, iterations, condition, method = (output.detach() for output in outputs)
    A, value = wide.detach(), value.detach()
    R, rho, bound, certain_condition = norms.pinv_error(A, X, Y)
    if inverse:
        residual = rho
    else:
        size = torch.linalg.vector_norm(A, dim=(-2, -1)).double()
        residual = torch.linalg.vector_norm(R @ A, dim=(-2, -1)).double() / torch.where(size > 0, size, 1.0)
    condition = torch.where(bound.isfinite(), certain_condition, condition)
    if scale is not None or value.dtype != X.dtype:
        # what the last rounding (to half precision, or on undoing the scale) has changed
        precise = double_dtype(A.dtype)
        factor = torch.ones_like(rho[..., None, None]) if scale is None else scale.double()
        returned = (value.mH if value.shape[-2:] != X.shape[-2:] else value).to(precise)
        bound = norms.up(bound * factor[..., 0, 0] + norms.frobenius(returned - X.to(precise) * factor))
    full = status == int(Status.OK)
    # NaN where the products overflow
    residual = torch.where(full & residual.isnan(), torch.inf, residual)
    lost = (full | (status == int(Status.RANK_DEFICIENT))) & ~all_finite(value)
    uncertain = full & ~lost & ~bound.isfinite()
    status = torch.where(uncertain, int(Status.INACCURATE), status)
    status = torch.where(lost, int(Status.OUT_OF_RANGE), status)
    return Info(
        status=status,
        rank=rank,
        iterations=iterations,
        residual=residual,
        error_bound=torch.where(full & bound.isfinite(), bound, torch.inf),
        condition=condition,
        method_code=method,
    )
