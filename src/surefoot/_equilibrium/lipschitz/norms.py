"""Upper bounds of the norms of matrices and convolutions that have derivatives, for training under a norm.

‖A‖² < μ is certain where μI − AᴴA, rounded, has a Cholesky factor (Rump, "Verification of positive definiteness", BIT 46,
2006): μ is a little above the square of a computed singular value, and of a few shifts the least is taken that has one.
Derivatives are those of the largest singular value, ‖Aw‖/‖w‖ where w follows the singular vector to first order, so that the
first two are right; at ties they are those of one singular vector. Nothing depends on a branch: transforms can pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..._linalg.arguments import double_dtype
from ..._linalg.norms import frobenius, product_rounding, up
from ..._linalg.operator import may_branch

GRID = 0.01
"""Relative looseness that the grid of frequencies of a convolution may add."""
_SHIFTS = (1e-9, 1e-5, 1e-3, 1e-2)  # above λ, relative: for one that eigh found, Lanczos, Lanczos in a cluster
_ROUGH_SHIFTS = (2e-3, 2e-2, 1e-1)  # for the largest of many
_ROUGH = 4e-3  # by how much a bound by the first of them, in float32, may exceed the norm
_DENSE = 128  # up to this size eigh is faster than Lanczos' steps ...
_STEPS = 40  # ... of which there are so many
_ROUGH_STEPS, _FEW = 8, 16
_INVERSE_STEPS = 3
_ZERO = 1e-30  # of a Gram matrix, beside entries of 1
_LARGEST, _LEAST = 1e300, 1e-290  # a scaling beyond these would itself overflow
_BLOCK = 1 << 20  # entries of symbols that are looked at at once
_CHEAP = 4e-3  # relative error of the square of a norm that float32 may cost


def spectral_upper(A: Tensor) -> Tensor:
    """Upper bound of ‖A‖ over the last two dimensions, A real or complex of any floating dtype; float64 of the batch's shape.

    Within 1e-9 of ‖A‖ in most cases, always within ‖A‖_F. NaN or infinite where an entry is.
    """
    H = A.to(double_dtype(A.dtype))
    if 0 in H.shape:
        return torch.zeros(A.shape[:-2], dtype=torch.float64, device=A.device)
    if H.shape[-2] < H.shape[-1]:
        H = H.mH
    scale = _scale(H, (-2, -1))
    H = H * scale[..., None, None]
    with torch.no_grad():
        finite = H.isfinite().all(-1).all(-1)
        fixed = torch.where(finite[..., None, None], H.detach(), 0.0)
        size = frobenius(fixed)
        gram = fixed.mH @ fixed
        value, v = _eigenpair(gram)
        shift, factor = _certified(gram, value, _SHIFTS)
        bound = torch.fmin(up((shift + _gram_error(fixed, size)).sqrt()), size)
        for _ in range(_INVERSE_STEPS):
            v = _unit(torch.cholesky_solve(v, factor))
    # the change of v to first order: that of the eigenvector of AᴴA, beside itself
    change = H.mH @ (H @ v)
    change = torch.cholesky_solve(_beside(change - change.detach(), v), factor)
    w = v + _beside(change, v)
    norm = torch.linalg.vector_norm(H @ w, dim=(-2, -1)) / torch.linalg.vector_norm(w, dim=(-2, -1))
    seen = norm.detach() > 0.0
    ratio = bound / torch.where(seen, norm.detach(), 1.0)
    bound = torch.where(seen, norm * torch.where(seen, ratio, 0.0), bound)
    return up(torch.where(finite, bound, torch.nan) / scale)


def _scale(H: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Makes the largest entry about 1; the rounding that it costs is among those of ``_gram_error``."""
    return H.detach().abs().amax(dims).nan_to_num(1.0).clamp(_LEAST, _LARGEST).reciprocal()


def _gram_error(H: Tensor, size: Tensor) -> Tensor:
    """Bound of ‖fl(HᴴH) − HᴴH‖_F for H (..., m, n) with ‖H‖_F ≤ size, twice, as a factorisation reads one triangle only."""
    # the scaling, and a cast, rounded each entry once; what underflows loses at most the smallest normal number each time
    gamma = 2.0 * product_rounding(H.shape[-2] + 4, H.dtype)
    return gamma * size**2 + 8 * H.shape[-2] * H.shape[-1] ** 2 * torch.finfo(H.dtype).tiny


def _certified(gram: Tensor, value: Tensor, shifts: Sequence[float]) -> tuple[Tensor, Tensor]:
    """An upper bound (...), float64, of the eigenvalues of gram (..., n, n), and the Cholesky factor of μI − gram for it.

    Infinite, and I, where none of the shifts is certain. LLᴴ = μI − gram up to γ_{n+2} n μ (Rump, as above), and the diagonal
    was rounded once.
    """
    n = gram.shape[-1]
    backward = product_rounding(n + 4, gram.dtype) * n
    bound = torch.full_like(value, torch.inf, dtype=torch.float64)
    factor = torch.eye(n, dtype=gram.dtype, device=gram.device).expand_as(gram)
    for margin in shifts:
        shift = value * (1.0 + max(margin, 4.0 * backward)) + _ZERO
        found = torch.linalg.cholesky_ex(torch.diag_embed(shift.unsqueeze(-1).expand(*shift.shape, n)) - gram)
        new = (found.info == 0) & bound.isinf()
        bound = torch.where(new, up(shift.double() * (1.0 + backward)), bound)
        factor = torch.where(new[..., None, None], found.L, factor)
        if may_branch(bound) and bool(bound.isfinite().all()):
            break
    return bound, factor


def _eigenpair(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Near the largest eigenvalue (...) and its vector (..., n, 1); from below."""
    n = gram.shape[-1]
    if n <= _DENSE:
        values, vectors = torch.linalg.eigh(gram)
        return values[..., -1].clamp(min=0.0), vectors[..., -1:]
    vector = _start(gram)
    basis = []
    for _ in range(_STEPS):
        for _ in range(2):  # Gram-Schmidt, twice is enough
            if basis:
                Q = torch.cat(basis, -1)
                vector = vector - Q @ (Q.mH @ vector)
        basis.append(_unit(vector))
        vector = gram @ basis[-1]
    Q = torch.cat(basis, -1)
    v = _unit(Q @ torch.linalg.eigh(Q.mH @ (gram @ Q)).eigenvectors[..., -1:])
    # unlike the Ritz value it is never above, however orthogonal Q is
    return (v.mH @ (gram @ v)).real[..., 0, 0].clamp(min=0.0), v


def _start(gram: Tensor) -> Tensor:
    """A vector (..., n, 1) without a pattern: all angles of the golden ratio."""
    entries = torch.arange(gram.shape[-1], dtype=torch.float64, device=gram.device)
    return torch.cos(2.39996 * entries + 0.5)[:, None].to(gram.dtype).expand(*gram.shape[:-1], 1)


def _unit(v: Tensor) -> Tensor:
    return v / torch.linalg.vector_norm(v, dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(v.dtype).tiny)


def _beside(x: Tensor, v: Tensor) -> Tensor:
    """The part of x (..., n, 1) that is orthogonal to the unit vector v."""
    return x - v * (v.mH @ x)


def convolution_upper(weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int) -> Tensor:
    """Upper bound of the norm of z ↦ conv(z, weight), of maps of any size, padded by zeros or around a torus.

    The transposed convolution with this weight has the same norm. On maps over ℤᵈ the convolution is multiplication by its
    symbol P(θ) = Σ_t W_t exp(i t·θ), so that its norm is max ‖P(θ)‖ over θ; maps with zeros around them are a part of those
    over ℤᵈ, and a torus has some of the θ. With steps of s it is a convolution without steps, of the phases of the map as
    channels. A dilation without a common divisor with s permutes the phases and the θ, which changes no norm; with the divisor g
    it is a convolution of every g-th position, in steps of s/g. On a grid of N angles ‖P‖ is at least cos(πd/N) of its maximum,
    d = (K − 1)/2 for K taps: docs/equilibrium.md.

    Args:
        weight: (outputs, inputs over groups, *kernel), as of ``torch.nn.functional.conv2d``.
        stride, dilation: in each dimension of the kernel.
        groups: of channels.

    Returns:
        () float64.
    """
    steps = [step // math.gcd(step, apart) for step, apart in zip(stride, dilation, strict=True)]
    taps = _phases(weight.double(), steps).reshape(groups, weight.shape[0] // groups, -1, *_taps(weight, steps))
    cosines, sines, loose = _frequencies(taps.shape[3:], weight.device)
    taps = taps.flatten(3)
    scale = _scale(taps, (0, 1, 2, 3))
    taps = taps * scale
    with torch.no_grad():
        largest, group, angle = _largest(taps.detach(), cosines, sines)
    chosen = taps.index_select(0, group)
    symbol = torch.complex(*((chosen @ table.index_select(1, angle))[0, ..., 0] for table in (cosines, sines)))
    bound = spectral_upper(symbol)
    # a constant factor in most cases, so that the bound is as smooth as the norm
    bound = bound * torch.where(bound > 0.0, largest / bound, 1.0).clamp(min=1.0 + _ROUGH).detach()
    bound = up(bound + _symbol_error(taps.detach(), torch.float64)) * loose
    return up(bound / scale)


def _taps(weight: Tensor, stride: Sequence[int]) -> list[int]:
    return [-(-size // step) for size, step in zip(weight.shape[2:], stride, strict=True)]


def _phases(weight: Tensor, stride: Sequence[int]) -> Tensor:
    """The weight of the same convolution without steps, (outputs, inputs · phases, *taps)."""
    if all(step == 1 for step in stride):
        return weight
    taps, padding, shape = _taps(weight, stride), [], []
    for size, step, count in zip(weight.shape[2:], stride, taps, strict=True):
        padding = [0, count * step - size, *padding]
        shape += [count, step]
    split = torch.nn.functional.pad(weight, padding).reshape(*weight.shape[:2], *shape)
    dims = range(len(taps))
    return split.permute(0, 1, *(3 + 2 * i for i in dims), *(2 + 2 * i for i in dims)).reshape(len(weight), -1, *taps)


def _frequencies(taps: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor, float]:
    """cos and sin of t·θ (taps, grid), of one of θ and −θ, whose symbols are conjugate; and the maximum over that on the grid."""
    degrees = [(count - 1) / 2 for count in taps]
    moving = max(sum(degree > 0 for degree in degrees), 1)
    exponents, angles, loose = [], [], 1.0
    for degree in degrees:
        size = 2 * math.ceil(math.pi * degree * math.sqrt(moving / (8.0 * GRID))) if degree else 1
        loose /= math.cos(math.pi * degree / size)
        exponents.append(torch.arange(int(2 * degree + 1), dtype=torch.float64, device=device))
        angles.append(2.0 * math.pi / size * torch.arange(size, dtype=torch.float64, device=device))
    angles[0] = angles[0][: len(angles[0]) // 2 + 1]
    exponents, angles = (torch.cartesian_prod(*parts).reshape(-1, len(taps)) for parts in (exponents, angles))
    phase = exponents @ angles.mT
    return phase.cos(), phase.sin(), loose * (1.0 + 2.0**-48)


def _symbol_error(taps: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound of the error of each symbol, from taps (groups, outputs, inputs, taps): of two products, and of cos and sin."""
    # a phase is below 1000, and right within 4 roundings
    gamma = 2.0 * (product_rounding(taps.shape[-1] + 2, dtype) + 4.0 * torch.finfo(dtype).eps + 2.0**-40)
    return gamma * taps.shape[-1] ** 0.5 * frobenius(taps.flatten(1)[None])[0]


def _largest(taps: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Upper bound of the norms of all symbols, and the group and the angle (1,) of one that is near the largest.

    In float32 where that costs little. Entries of taps are at most about 1.
    """
    if taps.shape[1] < taps.shape[2]:
        taps = taps.transpose(1, 2)  # as those of the transposed symbols
    n = taps.shape[2]
    cheap = 2.0 * n * product_rounding(taps.shape[1] + 4, torch.complex64) < _CHEAP
    dtype = torch.float32 if cheap else torch.float64
    finite = taps.isfinite().all()
    taps = torch.where(finite, taps, 0.0).to(dtype)
    bounds, values, places = [], [], []
    for angles in torch.arange(cosines.shape[1], device=taps.device).split(max(1, _BLOCK // (taps.shape[1] * n))):
        real, imaginary = (
            (taps @ table[:, angles].to(dtype)).movedim(-1, 1).flatten(0, 1) for table in (cosines, sines)
        )
        H = torch.complex(real, imaginary)
        mixed = real.mT @ imaginary
        gram = torch.complex(real.mT @ real + imaginary.mT @ imaginary, mixed - mixed.mT)
        v = _start(gram)
        for _ in range(_ROUGH_STEPS):
            v = gram @ _unit(v)
        # power iteration finds some that may be the largest, and eigvalsh which of them is
        few = torch.linalg.vector_norm(v, dim=(-2, -1)).topk(min(_FEW, len(gram))).indices
        value, index = torch.linalg.eigvalsh(gram.index_select(0, few))[:, -1].clamp(min=0.0).max(0)
        shift, _ = _certified(gram, value.expand(len(gram)), _ROUGH_SHIFTS)
        size = frobenius(H)
        bounds.append(torch.fmin(up((shift + _gram_error(H, size)).sqrt()), size).amax())
        values.append(value)
        # matrices are in the order of the groups
        place, count = few.index_select(0, index[None]), len(angles)
        places.append(torch.cat([place // count, angles.index_select(0, place % count)]))
    group, angle = torch.stack(places).index_select(0, torch.stack(values).argmax()[None]).unbind(1)
    bound = up(torch.stack(bounds).amax() + _symbol_error(taps, dtype))
    return torch.where(finite, bound, torch.nan), group, angle
