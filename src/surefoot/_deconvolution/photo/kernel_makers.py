"""Blur kernels by formula: motion, defocus, Gaussian, and a microscope in focus.

Each is the mean over every pixel, exactly or by points inside it, with odd sides, centred and of sum 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..._core.validate import positive
from .kernels import prepared_kernel

POINTS = 16
"""A side of each pixel, over which a kernel is averaged."""
LARGEST = 2048
"""Pixels a side of the largest kernel."""
TAILS = 4.0
"""Standard deviations to which a Gaussian goes: 3e-4 of it lie beyond."""
RINGS = 8
"""Dark rings that an Airy pattern goes to: 2 % of its light lies beyond."""


def motion_kernel(length: float, angle: float = 0.0) -> Tensor:
    """Straight, even motion: a line one pixel wide.

    Args:
        length: pixels from end to end, positive.
        angle: degrees, counter-clockwise from the horizontal.

    Returns:
        (rows, columns), float64, both odd, sum 1.

    Raises:
        ValueError: a length that is not positive, one beyond 2000 pixels, or an angle that is not finite.

    Example:
        >>> sf.deconvolution.motion_kernel(length=3)
        tensor([[0.3333, 0.3333, 0.3333]], dtype=torch.float64)
    """
    half = positive("length", length) / 2.0
    if not math.isfinite(angle):
        raise ValueError(f"angle is {angle!r}; pass degrees, such as 30")
    rise, run = math.sin(math.radians(angle)), math.cos(math.radians(angle))

    def band(down: Tensor, right: Tensor) -> Tensor:
        along, aside = run * right - rise * down, rise * right + run * down
        return ((along.abs() <= half) & (aside.abs() <= 0.5)).to(down)

    return _integrated(band, _reach("length", half + 0.5))


def defocus_kernel(radius: float) -> Tensor:
    """A lens out of focus: a disc (geometric optics, round aperture).

    Args:
        radius: pixels, positive.

    Returns:
        (rows, columns), float64, both odd, sum 1.

    Raises:
        ValueError: a radius that is not positive, or one beyond 1000 pixels.

    Example:
        >>> kernel = sf.deconvolution.defocus_kernel(radius=2.0)
        >>> kernel.shape, round(kernel.sum().item(), 6)
        (torch.Size([5, 5]), 1.0)
    """
    reach = _reach("radius", positive("radius", radius) + 0.5)
    return _integrated(lambda down, right: (torch.hypot(down, right) <= radius).to(down), reach)


def gaussian_kernel(sigma: float) -> Tensor:
    """A Gaussian.

    Args:
        sigma: standard deviation in pixels, positive; that of the Gaussian before it is integrated over pixels.

    Returns:
        (rows, columns), float64, both odd, sum 1.

    Raises:
        ValueError: a standard deviation that is not positive, or one beyond 250 pixels.

    Example:
        >>> kernel = sf.deconvolution.gaussian_kernel(sigma=1.0)
        >>> kernel.shape, round(kernel[5, 5].item(), 2)
        (torch.Size([11, 11]), 0.15)
    """
    reach = _reach("sigma", TAILS * positive("sigma", sigma) + 0.5)
    edges = (torch.arange(2 * reach + 2, dtype=torch.float64) - reach - 0.5) / (sigma * math.sqrt(2.0))
    profile = torch.special.erf(edges).diff()
    return _finished(torch.outer(profile, profile))


def airy_kernel(aperture: float, wavelength: float, pixel: float) -> Tensor:
    """A diffraction-limited microscope in focus: the Airy pattern (2 J₁(v)/v)², v = 2π NA r/λ (Born and Wolf, Principles of
    Optics, section 8.5).

    Args:
        aperture: numerical aperture NA, positive, as of the objective, with the index of its immersion.
        wavelength: λ of the light, in the unit of ``pixel``, such as micrometres.
        pixel: side of a camera pixel in the specimen.

    Returns:
        (rows, columns), float64, both odd, sum 1.

    Raises:
        ValueError: a number that is not positive, or a pattern beyond 1000 pixels.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> kernel = dc.airy_kernel(aperture=1.4, wavelength=0.5, pixel=0.065)  # micrometres
        >>> kernel.shape, bool(kernel.max() == kernel[23, 23])
        (torch.Size([47, 47]), True)
    """
    scale = (
        2.0 * math.pi * positive("aperture", aperture) * positive("pixel", pixel) / positive("wavelength", wavelength)
    )
    reach = _reach("aperture", math.pi * (RINGS + 0.25) / scale + 0.5)

    def pattern(down: Tensor, right: Tensor) -> Tensor:
        v = (scale * torch.hypot(down, right)).clamp(min=1e-9)
        return (2.0 * torch.special.bessel_j1(v) / v).square()

    return _integrated(pattern, reach)


def _integrated(density: Callable[[Tensor, Tensor], Tensor], reach: int) -> Tensor:
    """The mean over each pixel of a density of (down, right) from the middle, which is the same at opposite points."""
    offsets = (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS - 0.5
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)
    right = (places[:, None] + offsets).reshape(1, -1)
    rows = []
    for place in places[: reach + 1]:  # the others are those turned
        down = (place + offsets)[:, None]
        rows.append(density(down, right).reshape(POINTS, -1, POINTS).mean((0, 2)))
    upper = torch.stack(rows)
    return _finished(torch.cat([upper, upper[:-1].flip(0, 1)]))


def _finished(kernel: Tensor) -> Tensor:
    """Without rows and columns of zeros around, sum 1; it stays odd and centred."""
    if not bool(kernel.any()):  # smaller than what lies between points: no blur
        return torch.ones(1, 1, dtype=kernel.dtype)
    middle = kernel.shape[0] // 2
    rows, columns = (int((index - middle).abs().max()) for index in kernel.nonzero(as_tuple=True))
    return kernel[middle - rows : middle + rows + 1, middle - columns : middle + columns + 1] / kernel.sum()


def _reach(name: str, size: float) -> int:
    """Pixels from the middle to the edge."""
    reach = math.ceil(size - 0.5 + 1e-9) if size > 0.5 else 0
    if 2 * reach + 1 > LARGEST:
        raise ValueError(f"{name} makes a kernel of {2 * reach + 1:,} pixels a side; at most {LARGEST:,} are made")
    return reach


@dataclass(frozen=True)
class _Maker:
    """A kernel by name: what is called, and its numbers as errors name them."""

    make: Callable[..., Tensor]
    numbers: tuple[str, ...]
    example: str


MAKERS = {
    "motion": _Maker(motion_kernel, ("LENGTH", "ANGLE"), "motion:9,30 (pixels, degrees)"),
    "defocus": _Maker(defocus_kernel, ("RADIUS",), "defocus:4 (pixels)"),
    "gaussian": _Maker(gaussian_kernel, ("SIGMA",), "gaussian:1.5 (pixels)"),
    "airy": _Maker(airy_kernel, ("NA", "WAVELENGTH", "PIXEL"), "airy:1.4,0.52,0.065 (one unit of length)"),
}
FORMS = ", ".join(maker.example for maker in MAKERS.values())


def kernel_by_formula(text: str) -> Tensor | None:
    """The kernel that a text such as ``motion:9,30`` names, its faint margin trimmed; ``None`` where it names none.

    Raises:
        ValueError: a known name with other numbers than it takes.
    """
    name, colon, rest = text.partition(":")
    maker = MAKERS.get(name.strip().lower())
    if not colon or maker is None:
        return None
    form = f"{name}:{','.join(maker.numbers)}, for example {maker.example}"
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != len(maker.numbers) or not all(map(math.isfinite, numbers)):
        raise ValueError(f"kernel is {text!r}; write {form}")
    try:
        return prepared_kernel(maker.make(*numbers))[0]
    except ValueError as error:
        raise ValueError(f"kernel is {text!r}: {error}; write {form}") from error
