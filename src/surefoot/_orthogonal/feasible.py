"""The check that a matrix lies on the Stiefel manifold."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._linalg.arguments import HALF, compute_dtype
from .._linalg.operator import may_branch
from .cayley_steps import DTYPES, defect, tall


def require_orthonormal(name: str, matrix: Tensor, *, half: bool = False) -> None:
    """Raise unless ``matrix`` (..., m, r) has orthonormal columns, or rows where it is wide, to the root of its rounding unit.

    The defect that rounding of its entries may make is always allowed.

    Args:
        half: float16 and bfloat16 will do, measured in float32.

    Within ``torch.func`` transforms and while tracing, where values cannot be looked at, dtype and shape alone are checked.

    Raises:
        TypeError: integer or half precision, sparse, or without values (device meta).
        ValueError: fewer than two dimensions, non-finite, or not orthonormal (the defect is named).
    """
    if matrix.dtype not in DTYPES + (HALF if half else ()):
        short = str(matrix.dtype).removeprefix("torch.")
        halves = "float16, bfloat16, " if half else ""
        raise TypeError(f"{name} has dtype {short}; pass {halves}float32, float64, complex64 or complex128")
    if matrix.layout != torch.strided:
        raise TypeError(f"{name} has layout {matrix.layout}; convert it with to_dense()")
    if matrix.is_meta:
        raise TypeError(
            f"{name} is on device meta and has no values; move it to a device with to_empty and fill it first"
        )
    if matrix.ndim < 2:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; pass a matrix (m, r) or a batch (..., m, r)")
    if not may_branch(matrix):
        return
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError(f"{name} has non-finite entries; start from a finite matrix")
    U = tall(matrix.detach()).to(compute_dtype(matrix.dtype))
    size, unit = defect(U), torch.finfo(matrix.dtype).eps
    # entries rounded by up to unit/2 of their size make a defect of up to unit·√r
    if size > max(math.sqrt(unit), unit * math.sqrt(U.shape[-1])):
        side, product = ("columns", "UᴴU") if U.shape == matrix.shape else ("rows", "UUᴴ")
        raise ValueError(
            f"{name} has no orthonormal {side}: ‖{product} − I‖_F is {size:.3g}; replace it by its orthogonal polar factor, "
            "surefoot.linalg.polar(U)[0], or by the Q of torch.linalg.qr"
        )
