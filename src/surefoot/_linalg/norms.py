"""Rigorous upper bounds of matrix norms, and of the rounding errors of a product; computed in float64, rounded outward."""

from __future__ import annotations

import torch
from torch import Tensor

# A handful of float64 roundings in the combination of a few terms.
_OUTWARD = 1.0 + 2.0**-48
# A norm is accumulated in single precision where that cannot cost more than this, relatively.
_LOOSE = 2.0**-10


def up(x: Tensor) -> Tensor:
    """A nonnegative float64 result of a few roundings, moved up by more than they can have lost."""
    return x * _OUTWARD


def product_roundoff(dtype: torch.dtype) -> float:
    """The unit roundoff of products of matrices of this dtype; of float32 ones, the largest that torch's settings allow."""
    if dtype in (torch.float32, torch.complex64):
        # these follow the older settings too; torch.get_float32_matmul_precision fails once a newer one was used
        settings = [str(backend.matmul.fp32_precision) for backend in (torch.backends.cuda, torch.backends.mkldnn)]  # pyright: ignore[reportAttributeAccessIssue]
        # TF32 has 11 significant bits, bfloat16 has 8
        return max({"tf32": 2.0**-11, "bf16": 2.0**-8}.get(setting, 2.0**-24) for setting in settings)
    return 2.0**-53


def product_rounding(length: int, dtype: torch.dtype) -> float:
    """γ with |fl(AB + C) − (AB + C)| ≤ γ(|A||B| + |C|), entry by entry, for inner products of this length in any order.

    A complex inner product is two real ones of twice the length: √2 γ_2k ≤ γ_3k. Infinite where the bound fails (ku ≥ 1).
    """
    terms = (length + 1) * (3 if dtype.is_complex else 1)
    error = terms * product_roundoff(dtype)
    return error / (1.0 - error) * _OUTWARD if error < 1.0 else float("inf")


def frobenius(A: Tensor) -> Tensor:
    """An upper bound of ‖A‖_F, hence of ‖A‖, over the last two dimensions; float64 of the batch's shape."""
    count = A.shape[-2] * A.shape[-1] * (2 if A.is_complex() else 1)
    precision = torch.finfo(A.dtype)
    # k squares, their sum and its root in working precision: at worst (1+u)^(k+2), plus what underflows
    error = (count + 6) * precision.eps / 2
    if error <= _LOOSE:
        norm = torch.linalg.vector_norm(A, dim=(-2, -1)).double()
        return norm * (1.0 + error / (1.0 - error)) + (count * precision.tiny) ** 0.5
    norm = torch.linalg.vector_norm(A, dim=(-2, -1), dtype=torch.complex128 if A.is_complex() else torch.float64)
    return norm * (1.0 + (count + 6) * 2.0**-52)


def spectral(A: Tensor) -> Tensor:
    """An upper bound of ‖A‖ over the last two dimensions, from the small Gram matrix: min(‖A‖_F, (‖G‖_F + rounding)^½).

    ‖G‖_F^½ exceeds ‖A‖ by a factor of at most min(m, n)^¼. float64 of the batch's shape.
    """
    total = frobenius(A)
    small = A if A.shape[-2] <= A.shape[-1] else A.mH
    gram = small @ small.mH
    rounding = product_rounding(small.shape[-1], A.dtype)
    # a product that underflows loses at most the smallest normal number
    lost = small.shape[-2] * small.shape[-1] * torch.finfo(A.dtype).tiny
    squared = frobenius(gram) + rounding * total**2 + lost
    # where the Gram matrix overflows, ‖A‖_F still holds
    return torch.fmin(total, up(up(squared).sqrt()))


def defect(C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """An upper bound of ‖C − AB‖_F, rounding included. Products of float32 matrices are formed in float64."""
    wide = torch.complex128 if A.is_complex() else torch.float64
    C, A, B = C.to(wide), A.to(wide), B.to(wide)
    gamma = product_rounding(A.shape[-1], wide)
    lost = C.shape[-2] * C.shape[-1] * A.shape[-1] * torch.finfo(wide).tiny
    return up(frobenius(C - A @ B) + gamma * (frobenius(C) + frobenius(A) * frobenius(B)) + lost)


def pinv_error(size: Tensor, rho: Tensor, tau: Tensor) -> Tensor:
    """An upper bound of ‖X − A⁺‖ for A of full rank: ((‖X‖ρ/(1 − ρ))² + τ²)^½, infinite where ρ ≥ 1.

    docs/theorems/inverse.md, Theorem 6.

    Upper bounds ``size`` of ‖X‖, ``rho`` of ‖I − AX‖ and ``tau`` of ‖X − AᴴY‖, for any Y (τ = 0 for square A); all in float64.
    """
    # 1 − ρ is rounded down
    room = (1.0 - rho) * (2.0 - _OUTWARD)
    bound = up(torch.hypot(up(size * rho / torch.where(room > 0, room, 1.0)), tau))
    return torch.where(room > 0, bound, torch.inf)
