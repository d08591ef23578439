"""What ``solve`` and ``lstsq`` share: the right-hand side, undoing scales and roundings, and the sizes that statuses compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import norms
from .arguments import double_dtype, matrix_argument, power_of_two_scale
from .info import Status

_OK, _OUT_OF_RANGE = int(Status.OK), int(Status.OUT_OF_RANGE)


def right_side(A: Tensor, B: Any, left: bool = True) -> tuple[Tensor, bool]:
    """B as a matrix, and whether it was a vector by the rule of torch.linalg.solve; an error if it does not fit A."""
    if not isinstance(B, Tensor):
        raise TypeError(f"B must be a torch.Tensor, not {type(B).__name__}: convert it with torch.as_tensor")
    if B.dtype != A.dtype:
        raise TypeError(f"A has dtype {A.dtype} but B has {B.dtype}: convert one of them")
    if B.device != A.device:
        raise ValueError(f"A is on {A.device} but B on {B.device}: move one of them")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    if vector and not left:
        raise ValueError(
            f"B has shape {tuple(B.shape)} and left is False: a row vector must be a matrix (..., 1, n), B.unsqueeze(-2)"
        )
    matrix = matrix_argument(B.unsqueeze(-1) if vector else B, "B")
    rows = matrix.shape[-2 if left else -1]
    if rows != A.shape[-2]:
        raise ValueError(
            f"A has shape {tuple(A.shape)} and B {tuple(B.shape)}: B must be {'(..., m, k)' if left else '(..., k, m)'} "
            "with m rows of A, or a vector of the shape of A without its last size"
        )
    try:
        common_batch(A, matrix)
    except RuntimeError as error:
        raise ValueError(
            f"the batch dimensions of A {tuple(A.shape[:-2])} and of B {tuple(matrix.shape[:-2])} do not broadcast"
        ) from error
    return matrix, vector


def common_batch(A: Tensor, B: Tensor) -> torch.Size:
    """The batch dimensions of A and B, broadcast; torch.broadcast_shapes takes as long as the solution of a small system."""
    first, second = A.shape[:-2], B.shape[:-2]
    return first if first == second else torch.broadcast_shapes(first, second)


def rounded(value: Tensor, X: Tensor, status: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Status and bound of the value that is returned, which may have been rounded to half precision."""
    value, X = value.detach(), X.detach()
    if value.dtype == X.dtype:
        return status, bound
    lost = (status == _OK) & ~value.isfinite().all(-1).all(-1)
    status = torch.where(lost, _OUT_OF_RANGE, status)
    change = norms.frobenius(value.double() - X.double())
    return status, torch.where(lost, torch.inf, norms.up(bound + change))


def is_zero(A: Tensor) -> Tensor:
    """Whether all entries are 0, over the batch."""
    return ~(A != 0).any(-1).any(-1)


def magnitude(X: Tensor) -> Tensor:
    """‖X‖_F to a few digits, over the batch, in float64; of entries of any size."""
    scale = power_of_two_scale(X, always=True)
    if scale is None:
        return X.new_zeros(X.shape[:-2], dtype=torch.float64)
    return torch.linalg.vector_norm(X * scale, dim=(-2, -1)).double() / scale.double()[..., 0, 0]


def applied(R: Tensor, r: Tensor, uncertain: Tensor) -> Tensor:
    """An upper bound of ‖R(r + δ)‖_F for every ‖δ‖_F ≤ ``uncertain``; r in float64 or complex128."""
    zero = r.new_zeros(*r.shape[:-2], R.shape[-2], r.shape[-1])
    product, rounding = norms.residual(zero, R, r)
    return norms.up(norms.frobenius(product) + rounding + norms.frobenius(R) * uncertain)


def unscaled(X: Tensor, scale_A: Tensor | None, scale_B: Tensor | None) -> Tensor:
    """X·scale_A/scale_B, the solution of the problem of which A·scale_A and B·scale_B were solved."""
    if scale_A is None and scale_B is None:
        return X
    result = X.to(double_dtype(X.dtype))
    for scale in (scale_A, None if scale_B is None else scale_B.double().reciprocal()):
        if scale is not None:
            result = result * scale.double()
    return result.to(X.dtype)


def unscaled_bound(bound: Tensor, X: Tensor, scale_A: Tensor | None, scale_B: Tensor | None) -> Tensor:
    """The bound that belongs to ``unscaled``: entries of X that underflow lose at most the smallest normal number."""
    if scale_A is None and scale_B is None:
        return bound
    bound = unscaled(bound[..., None, None], scale_A, scale_B)[..., 0, 0]
    return norms.up(bound + X.shape[-2] * X.shape[-1] * torch.finfo(X.dtype).tiny)
