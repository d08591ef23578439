"""Rigorous upper bounds of matrix norms, and of the rounding errors of a product; computed in float64, rounded outward."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .arguments import double_dtype
from .operator import constant

# A handful of float64 roundings in the combination of a few terms.
_OUTWARD = 1.0 + 2.0**-48
# The least positive number in double precision.
_LEAST = 2.0**-1074
# A norm is accumulated in single precision where that cannot cost more than this, relatively.
_LOOSE = 2.0**-10
# Multiplications up to which the products of a residual in double precision are split (those of 160 rows).
SHARP = 4_096_000


def up(x: Tensor) -> Tensor:
    """A nonnegative float64 result of a few roundings, moved up by more than they can have lost."""
    return x * _OUTWARD


def unscaled(bound: Tensor, scale: Tensor, *, lower: bool = False) -> Tensor:
    """The bound of a norm of A, from that of A·scale, a power of two: the quotient is exact, unless it underflows."""
    quotient = bound / scale
    return (quotient - _LEAST).clamp(min=0.0) if lower else torch.where(bound > 0, quotient + _LEAST, 0.0)


@constant
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
    length = A.shape[-1] * (2 if A.is_complex() else 1)
    count = A.shape[-2] * length
    precision = torch.finfo(A.dtype)
    # k squares, their sum and its root in working precision: at worst (1+u)^(k+2), plus what underflows
    error, row_error = ((terms + 6) * precision.eps / 2 for terms in (count, length))
    if error <= _LOOSE:
        norm = torch.linalg.vector_norm(A, dim=(-2, -1)).double()
    elif row_error <= _LOOSE:
        # the rows in working precision, which takes no copy in double, and their sum in double
        norm = torch.linalg.vector_norm(torch.linalg.vector_norm(A, dim=-1).double(), dim=-1)
        error = row_error + (A.shape[-2] + 6) * 2.0**-52
    else:
        norm = torch.linalg.vector_norm(A, dim=(-2, -1), dtype=double_dtype(A.dtype))
        return norm * (1.0 + (count + 6) * 2.0**-52)
    return norm * (1.0 + error / (1.0 - error)) + (count * precision.tiny) ** 0.5


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


def residual(C: Tensor, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """R near C − AB, in float64 or complex128, and an upper bound of ‖R − (C − AB)‖_F, rounding included.

    Products of float32 matrices are formed in float64, where γ(‖C‖ + ‖A‖‖B‖) is far below what float32 can resolve. Products
    of float64 ones would drown a residual of rounding size in γ. Up to ``SHARP`` multiplications a matrix they are split
    (Ozaki, Ogita, Oishi, Rump, Numer. Algorithms 59, 2012): A = A_1 + A_2 where row i of A_1 holds integer multiples, at most
    2^β, of a power of two g_i, and so B = B_1 + B_2 by columns with h_j. Every term of (A_1B_1)_ij is a multiple of g_ih_j, and
    any sum of some of them is at most k2^2β ≤ 2^53 times that: A_1B_1 is exact, whatever the order of summation, with or without
    fused multiplications. The rest, A_1B_2 + A_2B, is smaller by 2^−β, and so is its rounding error. This takes three products.
    """
    wide = double_dtype(A.dtype)
    length = A.shape[-1]
    # what underflows: at most the smallest normal number for every multiplication and addition
    lost = 8.0 * C.shape[-2] * C.shape[-1] * (length + 1) * torch.finfo(wide).tiny
    split = A.dtype == wide and 0 < C.shape[-2] * C.shape[-1] * length <= SHARP
    C, A, B = C.to(wide), A.to(wide), B.to(wide)
    if not split:
        gamma = product_rounding(length, wide)
        return _minus(C, A, B), up(gamma * (frobenius(C) + frobenius(A) * frobenius(B)) + lost)
    high_A, low_A = _split(A, -1, length)
    high_B, low_B = _split(B, -2, length)
    # the size of the rest: two products of small norm, added and subtracted
    rest = high_A @ low_B + low_A @ B
    head = C - high_A @ high_B  # the product exactly, then rounded once
    R = head - rest
    gamma = product_rounding(2 * length + 3, wide)
    terms = frobenius(high_A) * frobenius(low_B) + frobenius(low_A) * frobenius(B)
    # head and R are one subtraction each
    return R, up(gamma * terms + 2.0**-53 * (frobenius(head) + frobenius(R)) + lost)


def _minus(C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """C − AB; with one result in place of two where torch can."""
    if A.ndim == B.ndim == 2:
        return torch.addmm(C, A, B, alpha=-1)
    if A.ndim == B.ndim == 3 and A.shape[0] == B.shape[0]:
        return torch.baddbmm(C, A, B, alpha=-1)
    return C - A @ B


def _split(A: Tensor, dim: int, length: int) -> tuple[Tensor, Tensor]:
    """A = high + low, exactly, in float64: along ``dim`` high consists of multiples g·j, |j| ≤ 2^β, of a power of two g.

    2^β is such that sums of ``length`` products of two such numbers j are at most 2^53; for complex numbers also those of a
    product by three real ones, (a + b)(c + d) − ac − bd, of which there are no more than eight terms each.
    """
    terms = max(length, 1) * (8 if A.is_complex() else 1)
    bits = (53 - (terms - 1).bit_length()) // 2
    parts, dims = (torch.view_as_real(A.resolve_conj()), (dim - 1, -1)) if A.is_complex() else (A, dim)
    largest = parts.abs().amax(dims, keepdim=True)
    exponent = torch.where(largest > 0, largest, 1.0).log2().floor() + 1.0
    # both the power and its reciprocal are normal; where that cuts, the bound of ``residual`` is only less sharp
    scale = torch.exp2((bits - exponent).clamp(-1000.0, 1000.0))
    high = (parts * scale).round() * scale.reciprocal()
    low = parts - high
    return (torch.view_as_complex(high), torch.view_as_complex(low)) if A.is_complex() else (high, low)


def defect(C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """An upper bound of ‖C − AB‖_F, rounding included; see ``residual``."""
    R, error = residual(C, A, B)
    return up(frobenius(R) + error)


class InverseBounds(NamedTuple):
    """What is certain of an X near A⁺; bounds in float64, over the batch, infinite where full rank of A is not certain."""

    R: Tensor
    """I − AX, in the dtype of A"""
    rho: Tensor
    """upper bound of ‖I − AX‖_F, whatever the rank"""
    error: Tensor
    """upper bound of ‖X − A⁺‖"""
    condition: Tensor
    """upper bound of ‖A‖‖A⁺‖"""


def pinv_error(A: Tensor, X: Tensor, Y: Tensor) -> InverseBounds:
    """Bounds for X (..., n, m) and A (..., m, n), m ≤ n, with any Y (..., m, m), which is not used where m = n.

    With R = I − AX, ρ ≥ ‖R‖ and τ ≥ ‖X − AᴴY‖: ((‖XR‖/(1 − ρ))² + τ²)^½ where ρ < 1, and ‖XR‖ ≤ ‖X‖ρ, which stands for it
    beyond ``SHARP`` multiplications (docs/theorems/inverse.md, Theorem 6).
    """
    m, n = A.shape[-2:]
    R, uncertain = residual(torch.eye(m, dtype=double_dtype(A.dtype), device=A.device), A, X)
    size_A, size_X, size_R = frobenius(A), frobenius(X), frobenius(R)
    rho = up(size_R + uncertain)
    R = R.to(A.dtype)
    moved = size_X * rho
    if 0 < m * m * n <= SHARP:
        precision = torch.finfo(A.dtype)
        # of R as it was formed, and of R in the precision of A
        uncertain = uncertain + precision.eps * size_R + m * m * precision.tiny
        lost = m * n * (m + 1) * precision.tiny
        product = frobenius(X @ R) + product_rounding(m, A.dtype) * size_X * rho + lost
        # NaN where the product overflows
        moved = torch.fmin(moved, up(product + size_X * uncertain))
    tau = defect(X, A.mH, Y) if m < n else torch.zeros_like(rho)
    # 1 − ρ is rounded down
    room = (1.0 - rho) * (2.0 - _OUTWARD)
    certain = room > 0
    room = torch.where(certain, room, 1.0)
    bound = up(torch.hypot(up(moved / room), tau))
    certain = certain & bound.isfinite()
    # the least singular value is at least (1 − ρ)/‖X‖
    condition = up(up(size_A * size_X) / room)
    return InverseBounds(R, rho, *(torch.where(certain, value, torch.inf) for value in (bound, condition)))
