"""Checks of arguments that the functions of this room share, and the conversions of dtype and scale that go with them."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from .operator import may_branch, may_differentiate

COMPUTED = (torch.float32, torch.float64, torch.complex64, torch.complex128)
HALF = (torch.float16, torch.bfloat16)


def matrix_argument(A: Any, name: str = "A", *, square: bool = False) -> Tensor:
    """A itself if it is a tensor (..., m, n) of a supported dtype, m = n where ``square``; TypeError or ValueError if not."""
    if not isinstance(A, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(A).__name__}: convert it with torch.as_tensor")
    # the classes of distributed tensors are not imported for this; what they have, and no other, is the remedy
    if hasattr(A, "full_tensor"):
        raise TypeError(
            f"{name} is a {type(A).__name__}, and a decomposition needs whole matrices: pass {name}.full_tensor(), or, "
            f"where only batch dimensions are sharded (else first {name}.redistribute), each process its {name}.to_local()"
        )
    if A.dtype not in COMPUTED + HALF:
        raise TypeError(
            f"{name} has dtype {A.dtype}: convert it to one of float32, float64, complex64, complex128, float16, bfloat16"
        )
    if A.is_nested:
        raise TypeError(f"{name} is a nested tensor: pad it, or pass its matrices one by one")
    if A.layout != torch.strided:
        raise TypeError(f"{name} has layout {A.layout}: convert it with {name}.to_dense()")
    if A.ndim < 2:
        raise ValueError(f"{name} has shape {tuple(A.shape)}: it must be a matrix or a batch of matrices (..., m, n)")
    if square and A.shape[-2] != A.shape[-1]:
        raise ValueError(
            f"{name} has shape {tuple(A.shape)}: the last two sizes must be equal; svd, pinv and lstsq take any"
        )
    return A


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the computation: float32 for half precision, otherwise the same."""
    return torch.float32 if dtype in HALF else dtype


def double_dtype(dtype: torch.dtype) -> torch.dtype:
    """The double precision of the kind of this dtype, in which errors are measured."""
    return torch.complex128 if dtype.is_complex else torch.float64


def tolerance(value: float | Tensor | None, default: float, A: Tensor, name: str) -> Tensor:
    """A tolerance as a float64 tensor with as many dimensions as A has batch dimensions, against which it broadcasts.

    On the device of A, without gradient. All dimensions are there for the sake of ``vmap`` (see ``operator``).
    """
    rank = A.ndim - 2
    if isinstance(value, Tensor):
        if value.device != A.device:
            raise ValueError(f"{name} is on {value.device} and A on {A.device}: move {name} with .to(A.device)")
        if value.dtype.is_complex:
            raise TypeError(f"{name} has dtype {value.dtype}: it must be real")
        try:
            expanded = torch.broadcast_shapes(value.shape, A.shape[:-2])
        except RuntimeError:
            expanded = None
        if expanded != A.shape[:-2]:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}: it must broadcast to the batch dimensions {tuple(A.shape[:-2])} of A"
            )
        if may_branch(value) and not bool(((value >= 0) & value.isfinite()).all()):
            raise ValueError(
                f"{name} has entries that are negative or not finite: they must be finite numbers, at least 0"
            )
        return value.detach().double().reshape((1,) * (rank - value.ndim) + value.shape)
    if value is not None and not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}: it must be a number or a tensor of numbers, at least 0")
    if value is not None and not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value}: it must be a finite number, at least 0")
    number = default if value is None else float(value)
    return torch.full((1,) * rank, number, dtype=torch.float64, device=A.device)


def largest_part(A: Tensor) -> Tensor:
    """The largest magnitude of a real or imaginary part, NaN if there is one (..., 1, 1); A must have entries.

    The magnitude of a complex entry may overflow where its parts do not.
    """
    A = A.detach()
    # many times faster than the vector norm of order infinity, and than isfinite
    if A.is_complex():
        return torch.view_as_real(A.resolve_conj()).abs().amax((-3, -2, -1)).unsqueeze(-1).unsqueeze(-1)
    return A.abs().amax((-2, -1), keepdim=True)


def all_finite(A: Tensor) -> Tensor:
    """Whether each matrix is without infinite or NaN entries (...)."""
    if A.shape[-2] * A.shape[-1] == 0:
        return torch.ones(A.shape[:-2], dtype=torch.bool, device=A.device)
    return largest_part(A)[..., 0, 0] < torch.inf


def first_place(bad: Tensor, name: str = "A") -> str:
    """The first matrix of a batch that is ``bad`` (...), as one would index it: ``A[1, 2]``, or ``A`` if it is the only one."""
    index = bad.nonzero()[0].tolist()
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def refuse_non_finite(A: Tensor, operator: str) -> None:
    """A LinAlgError of this operator that names the first matrix of A with an infinite or NaN entry, if there is one."""
    bad = ~all_finite(A)
    if bool(bad.any()):
        raise LinAlgError(
            f"{operator}: {first_place(bad)} has infinite or NaN entries; remove them, or use {operator}_ex, which marks such "
            "matrices and returns the others"
        )


def sums_are_finite(A: Tensor) -> bool:
    """Whether it is known, at the price of a sum, that A has no infinite or NaN entries; False where values are hidden."""
    return may_branch(A) and math.isfinite(abs(A.detach().sum().item()))


def isolated(A: Tensor, *parts: Tensor) -> Tensor:
    """A, constant and NaN for each matrix of which one of the ``parts`` (by default A itself) is not finite.

    So the gradient is 0 there, whatever a backward pass makes of NaN factors.
    """
    parts = parts or (A,)
    if not may_differentiate(A) or all(map(sums_are_finite, parts)):
        return A
    bad = ~all_finite(parts[0])
    for part in parts[1:]:
        bad = bad | ~all_finite(part)
    return A.masked_fill(bad[..., None, None], torch.nan)


def power_of_two_scale(A: Tensor, *, always: bool) -> Tensor | None:
    """A power of two for each matrix that brings its largest real or imaginary part to [1, 2), 1 where that is not needed.

    (..., 1, 1). Products of up to four factors of the scaled matrix stay within the range of the dtype. None where no matrix
    needs it and values may be looked at (``always=False``). 1 for zero and for non-finite matrices.
    """
    if A.numel() == 0:
        return None
    largest = largest_part(A)
    low, high = (1e-5, 1e5) if A.dtype in (torch.float32, torch.complex64) else (1e-40, 1e40)
    if not always:
        least, most = largest.aminmax()
        # NaN compares false
        if float(least) > low and float(most) < high:
            return None
    fine = ((largest > low) & (largest < high)) | (largest == 0) | ~largest.isfinite()
    if not always and bool(fine.all()):
        return None
    exponent = torch.where(fine, 1, largest).log2().floor()
    # 2^-exponent can overflow where A is subnormal
    limit = 126 if largest.dtype == torch.float32 else 1022
    return torch.exp2(-exponent.clamp(-limit, limit))


class _LowerTriangle(torch.autograd.Function):
    """The Hermitian matrix of the lower triangle; its derivative is that of (A + Aᴴ)/2, as in torch.linalg.eigh."""

    generate_vmap_rule = True

    @staticmethod
    def forward(A: Tensor) -> Tensor:
        below = A.tril(-1)
        return below + below.mH + torch.diag_embed(A.diagonal(dim1=-2, dim2=-1).real.to(A.dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (grads[0] + grads[0].mH) / 2


class _LowerTriangleWithTangent(_LowerTriangle):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return (tangents[0] + tangents[0].mH) / 2


def hermitian_part(A: Tensor) -> Tensor:
    """The Hermitian matrix that agrees with A below the diagonal and in the real parts on it."""
    return (_LowerTriangle if torch.compiler.is_compiling() else _LowerTriangleWithTangent).apply(A)  # type: ignore[return-value]
