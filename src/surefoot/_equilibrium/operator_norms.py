"""Upper bounds of the norms of matrices and convolutions that are smooth in the weights, for training under a norm.

With H_0 = A and H_{j+1} = H_jᴴH_j, ‖A‖ = ‖H_j‖^(1/2^j) ≤ ‖H_j‖_F^(1/2^j): the Schatten norm of order 2^(j+1), which has
all derivatives wherever A ≠ 0, at ties of singular values too, and exceeds ‖A‖ by a factor of at most r^(1/2^(j+1)) for
rank r. ‖H_j‖² ≤ ‖fl(H_jᴴH_j)‖ + γ‖H_j‖_F² carries the rounding. Nothing branches on values: transforms and devices see
products of matrices alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .._linalg.arguments import double_dtype
from .._linalg.norms import frobenius, product_rounding, up

SQUARINGS = 8
"""Order 512: of rank 64 the bound is within 0.82 % of ‖A‖, of rank 1024 within 1.4 %, where all singular values are equal."""
GRID = 0.01
"""Relative looseness that the grid of frequencies of a convolution may add."""
_LARGEST, _LEAST = 1e300, 1e-290  # a scaling beyond these would itself overflow
_BLOCK = 1 << 20  # entries of symbols that are looked at at once


def spectral_upper(A: Tensor) -> Tensor:
    """Upper bound of ‖A‖ over the last two dimensions, A real or complex of any floating dtype; float64 of the batch's shape.

    NaN or infinite where an entry is.
    """
    H = A.to(double_dtype(A.dtype))
    if H.shape[-2] < H.shape[-1]:
        H = H.mH
    rows, columns = H.shape[-2:]
    if rows == 0 or columns == 0:
        return torch.zeros(A.shape[:-2], dtype=torch.float64, device=A.device)
    steps: list[tuple[Tensor, Tensor]] = []
    for _ in range(SQUARINGS):
        scale = H.detach().abs().amax((-2, -1)).clamp(_LEAST, _LARGEST).reciprocal()
        H = H * scale[..., None, None]
        # the scaling rounds each entry once; what underflows loses at most the smallest normal number each time
        gamma = product_rounding(H.shape[-2] + 4, H.dtype)
        steps.append((scale, gamma * frobenius(H.detach()) ** 2 + 4 * rows * columns**2 * torch.finfo(H.dtype).tiny))
        H = H.mH @ H
    bound = frobenius(H)
    for scale, error in reversed(steps):
        bound = up((bound + error).sqrt() / scale)
    return bound


def convolution_upper(weight: Tensor, stride: Sequence[int], groups: int) -> Tensor:
    """Upper bound of the norm of z ↦ conv(z, weight), of maps of any size, of any dilation, padded by zeros or around a torus.

    The transposed convolution with this weight has the same norm. On maps over ℤᵈ the convolution is multiplication by its
    symbol P(θ) = Σ_t W_t exp(i t·θ), so that its norm is max ‖P(θ)‖ over θ; maps with zeros around them are a part of those
    over ℤᵈ, and a torus has some of the θ. With steps of s it is a convolution without steps, of the phases of the map as
    channels. On a grid of N angles ‖P‖ is at least cos(πd/N) of its maximum, d = (K − 1)/2 for K taps: docs/equilibrium.md.

    Args:
        weight: (outputs, inputs over groups, *kernel), as of ``torch.nn.functional.conv2d``.
        stride: in each dimension of the kernel.
        groups: of channels.

    Returns:
        () float64.
    """
    taps = _phases(weight.double(), stride).reshape(groups, weight.shape[0] // groups, -1, *_taps(weight, stride))
    table, loose = _frequencies(taps.shape[3:], weight.device)
    taps = taps.flatten(3)
    with torch.no_grad():
        bounds = _bounds(taps.detach(), table)
        largest = bounds.amax()
        group, angle = (index := bounds.argmax()) // bounds.shape[1], index % bounds.shape[1]
    symbol = _symbol(taps.index_select(0, group[None]), table.index_select(1, angle[None]))[0, 0]
    bound = spectral_upper(symbol)
    # another order of summation may have rounded it below the largest one
    bound = bound * (largest / bound).clamp(min=1.0).nan_to_num(nan=1.0).detach()
    # every entry of the symbol is two inner products, of entries and of numbers of the table within 2⁻⁵⁰
    error = (2.0 * product_rounding(taps.shape[-1] + 2, torch.float64) + 2.0**-49) * taps.shape[-1] ** 0.5
    return up((bound + error * frobenius(taps.detach().flatten(1)[None])[0]) * loose)


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


def _frequencies(taps: Sequence[int], device: torch.device) -> tuple[Tensor, float]:
    """exp(i t·θ) (taps, grid), of one of θ and −θ, whose symbols are conjugate; and the maximum over that on the grid."""
    degrees = [(count - 1) / 2 for count in taps]
    moving = max(sum(degree > 0 for degree in degrees), 1)
    exponents, angles, loose = [], [], 1.0
    for degree in degrees:
        size = 2 * math.ceil(math.pi * degree * math.sqrt(moving / (8.0 * GRID))) if degree else 1
        loose /= math.cos(math.pi * degree / size)
        exponents.append(torch.arange(int(2 * degree + 1), dtype=torch.float64, device=device))
        angles.append(2.0 * math.pi / size * torch.arange(size, dtype=torch.float64, device=device))
    angles[0] = angles[0][: len(angles[0]) // 2 + 1]
    phase = (
        torch.cartesian_prod(*exponents).reshape(-1, len(taps))
        @ torch.cartesian_prod(*angles).reshape(-1, len(taps)).mT
    )
    return torch.polar(torch.ones_like(phase), phase), loose * (1.0 + 2.0**-48)


def _symbol(taps: Tensor, table: Tensor) -> Tensor:
    """(groups, angles, outputs, inputs) of taps (groups, outputs, inputs, taps)."""
    return torch.complex(taps @ table.real, taps @ table.imag).movedim(-1, 1)


def _bounds(taps: Tensor, table: Tensor) -> Tensor:
    """Upper bounds (groups, angles) of the norms of the symbols, a part of the angles at a time."""
    count = max(1, _BLOCK // max(taps[..., 0].numel(), 1))
    return torch.cat([spectral_upper(_symbol(taps, part)) for part in table.split(count, 1)], 1)
