"""A blur kernel as a person has it, made ready: sum 1, no wide margin, its middle where the blur is centred."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..._core.validate import as_tensor
from ..operators import SUM_TOLERANCE, Shape, ValidBlur, normalised_kernel

FAINT = 1e-3
"""Of the largest entry: what a margin may hold at most."""
SPARED = 1e-3
"""Of the sum: what is trimmed altogether at most, far below the noise that it stands for."""
QUARTER = 0.25
"""Of the kernel's extent: measured kernels of camera shake, whose middle is meant, have their centre of mass up to 0.21 off it;
one that was cut from a larger picture, or drawn to one side, lies further off."""
MOVED = 1.0
"""Pixels by which a picture may move without a word."""
AXES = (("row", "rows", "up", "down"), ("column", "columns", "left", "right"))


def prepared_kernel(kernel: Any) -> tuple[Tensor, tuple[str, ...]]:
    """A kernel (kh, kw) with sum 1 and its origin at (kh//2, kw//2), and what a person should know about that.

    The origin decides where the sharp picture lies. It is the middle of the array, (rows//2, columns//2), as for a convolution;
    along an even side the pixel before, where that is the middle of what is not zero: an odd kernel was padded. Where the middle
    of what is not zero and the centre of mass both lie further off than a quarter of its extent, the kernel is off-centre: then
    the pixel nearest to the centre of mass is the origin, so that the sharp picture lies where the blurred one does. A margin
    whose entries are below 1e-3 of the largest is trimmed where it holds at most 1e-3 of the sum.

    Args:
        kernel: (rows, columns), not negative: an array, a tensor, nested lists or a grey PIL image, of any real numbers.

    Returns:
        The kernel in float64, and notices of what was changed and by how much the picture moves.

    Raises:
        TypeError: not an array of real numbers.
        ValueError: other than 2 dimensions, empty, on the meta device, NaN or infinite, negative entries, or all zero.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> kernel, notices = dc.prepared_kernel([[0, 0, 0], [1, 2, 1], [0, 0, 0]])
        >>> kernel.tolist()
        [[0.25, 0.5, 0.25]]
        >>> notices[1]
        "the kernel's margin was zero and was trimmed: 3 x 3 became 1 x 3 (rows x columns)"
    """
    raw = kernel_tensor(kernel)
    if raw.ndim != 2:
        raise ValueError(f"kernel has shape {tuple(raw.shape)}; pass one kernel, (rows, columns)")
    scaled = normalised_kernel(raw)
    notices: list[str] = []
    total = float(raw.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        notices.append(f"the kernel sums to {total:.6g} and was divided by that, which keeps the brightness")
    kept = _significant(scaled)
    sides = [_Side.of(scaled, axis) for axis in (0, 1)]
    centred = any(side.off_centre for side in sides)
    # of both axes, so that one notice says where the picture lies
    chosen = [side.nearest if centred else side.middle for side in sides]
    ready = _around(scaled, kept, chosen)
    dropped = 1.0 - float(ready.sum())
    if ready.numel() < scaled.numel():
        held = f"held {100.0 * dropped:.2g} % of its sum" if dropped > 1e-9 else "was zero"
        notices.append(
            f"the kernel's margin {held} and was trimmed: {scaled.shape[0]} x {scaled.shape[1]} became {ready.shape[0]} x "
            f"{ready.shape[1]} (rows x columns)"
        )
    ready = ready / ready.sum()
    if ready.numel() == 1:
        notices.append("the kernel is one pixel, which blurs nothing: only noise is taken away")
    return ready, (*notices, *_placed(scaled, centred, sides, chosen))


def kernel_tensor(kernel: Any) -> Tensor:
    """In float64: its unit says nothing, so that whole numbers and half precision serve too.

    Raises:
        TypeError: not an array of real numbers.
    """
    if isinstance(kernel, Tensor) and not kernel.is_complex():
        kernel = kernel.double()
    elif isinstance(kernel, np.ndarray) and kernel.dtype.kind in "biuf":
        kernel = np.asanyarray(kernel, np.float64)
    return as_tensor("kernel", kernel).double()


@dataclass(frozen=True)
class _Side:
    """A kernel along one axis: how many pixels, of which ``first`` to ``last`` are not zero, and where its centre of mass is."""

    size: int
    first: int
    last: int
    mass: float

    @classmethod
    def of(cls, kernel: Tensor, axis: int) -> _Side:
        profile = kernel.sum(1 - axis)
        filled = profile.nonzero()
        mass = float((profile * torch.arange(len(profile), dtype=profile.dtype)).sum() / profile.sum())
        return cls(len(profile), int(filled[0]), int(filled[-1]), mass)

    @property
    def off_centre(self) -> bool:
        """Whether the middle of the array is that of nothing."""
        reach = QUARTER * (self.last - self.first + 1)
        return min(abs(self._off(self.mass)), abs(self._off((self.first + self.last) / 2.0))) > reach

    def _off(self, position: float) -> float:
        """How far a position lies from the nearest pixel that can be the middle."""
        low, high = (self.size - 1) // 2, self.size // 2
        return position - min(max(position, low), high)

    @property
    def middle(self) -> int:
        """The middle pixel, also of an odd kernel that was padded to an even side; else the second of the two."""
        low, high = (self.size - 1) // 2, self.size // 2
        return low if self.first + self.last == 2 * low else high

    @property
    def nearest(self) -> int:
        """The pixel nearest to the centre of mass; of two, the second, but for rounding."""
        return math.floor(self.mass + 0.5 + 1e-9)


def _significant(kernel: Tensor) -> list[tuple[int, int]]:
    """The first and the last row, and column, that are kept: outside, entries are faint, and few enough to be spared.

    Zeros go for nothing; of faint lines the outermost ones go first, in the order of what they hold.
    """
    faint = kernel < FAINT * kernel.max()
    ends = [[0, kernel.shape[0] - 1], [0, kernel.shape[1] - 1]]
    spent = 0.0
    while True:
        part = kernel[ends[0][0] : ends[0][1] + 1, ends[1][0] : ends[1][1] + 1]
        weak = faint[ends[0][0] : ends[0][1] + 1, ends[1][0] : ends[1][1] + 1]
        lines = [(axis, side) for axis in (0, 1) for side in (0, 1)]
        costs = [
            (float(part.select(axis, -side).sum()), axis, side)
            for axis, side in lines
            if bool(weak.select(axis, -side).all())
        ]
        if not costs or spent + min(costs)[0] > SPARED:
            return [(first, last) for first, last in ends]
        cost, axis, side = min(costs)
        spent += cost
        ends[axis][side] += 1 - 2 * side


def _around(kernel: Tensor, kept: list[tuple[int, int]], origin: list[int]) -> Tensor:
    """All rows and columns kept, with as few zeros around them as put the origin at half of each size, rounded down."""
    pads: list[int] = []
    for (first, last), centre in reversed(list(zip(kept, origin, strict=True))):
        before, after = centre - first, last - centre
        pads += [max(0, after - before), max(0, before - after - 1)]
    (top, bottom), (left, right) = kept
    return pad(kernel[top : bottom + 1, left : right + 1], pads)


def _placed(kernel: Tensor, centred: bool, sides: list[_Side], origin: list[int]) -> list[str]:
    """Where the origin lies and by how much the sharp picture lies off the blurred one."""
    even = [f"{size} {many}" for size, (_, many, _, _) in zip(kernel.shape, AXES, strict=True) if size % 2 == 0]
    place = ", ".join(f"{one} {index + 1}" for index, (one, _, _, _) in zip(origin, AXES, strict=True))
    # the blurred picture lies where the centre of mass is against the origin, so that the sharp one lies the other way
    moves = [index - side.mass for index, side in zip(origin, sides, strict=True)]
    words = [
        f"{abs(move):.2g} {less if move < 0.0 else more}"
        for move, (_, _, less, more) in zip(moves, AXES, strict=True)
        if abs(move) >= 0.05
    ]
    lies = "the sharp picture lies where the blurred one does"
    if words:
        lies += f", but for {' and '.join(words)} (pixels)"
    if centred:
        return [
            f"the kernel is off-centre: {place}, the pixel nearest to its centre of mass, became its middle; {lies}"
        ]
    if even:
        return [f"the kernel has {' and '.join(even)}, so no pixel is its middle: {place} was taken as that; {lies}"]
    if math.hypot(*moves) >= MOVED:
        return [f"the kernel's centre of mass is not its middle, which was kept: {lies}"]
    return []


def fast_valid_blur(kernel: Tensor, shape: Shape) -> ValidBlur:
    """``ValidBlur.observing(kernel, shape)``, the kernel (kh, kw) with as many zeros around it as make the latent grid one of
    fast Fourier transforms: those of large prime factors take five times as long. The unknown border grows by some pixels.
    """
    grown = fast_padded(kernel, shape)
    return ValidBlur(grown, tuple(size + reach - 1 for size, reach in zip(shape, grown.shape, strict=True)))


def fast_padded(kernel: Tensor, shape: Shape) -> Tensor:
    """A kernel (..., kh, kw) with these zeros around it."""
    from scipy.fft import next_fast_len

    spans: list[int] = []
    for size, observed in zip(kernel.shape[-2:], shape, strict=True):
        fast: Any = next_fast_len(observed + size - 1, real=True)
        grown = fast - observed + 1
        before = grown // 2 - size // 2  # the middle stays where the blur is centred
        spans = [before, grown - size - before, *spans]
    return pad(kernel, spans)
