"""A whole photograph: noise level, colour, unknown borders, and tiles where it is large."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .._core.certificate import Certificate
from .._core.status import RunStatus
from .._core.validate import as_tensor, positive, positive_integer
from .admm import LADMM
from .network import LearnedDeconvolution
from .noise import DIFFERENCE, estimate_noise
from .operators import SUM_TOLERANCE, PeriodicBlur, ValidBlur, normalised_kernel
from .problem import DeconvolutionProblem, checked_image, default_penalty
from .safeguard import restore_checked
from .system import certificate

BETA = 30.0
"""β over λ where the picture settles in the fewest iterations with an unknown border; for the duality gap alone it is 10."""
ITERATIONS = 25
"""Fifteen more change the PSNR of photographs by less than 0.1 dB."""
CONTINUING = 10
"""Iterations that continue a photo beyond its border for a network."""
TILE = 512
"""Pixels a side of a tile with its unknown border."""
RANGE = (-1.0, 2.0)
"""Intensities outside are no noise around 0..1, but another unit, such as 0..255."""
OVERLAP = 16
"""Pixels that two tiles share, over which they are blended, beyond the size of the kernel."""
# rows: brightness, red against blue, green against both. Orthonormal, so that white noise keeps its level; what the three colours
# share is then restored once, which gains 0.4 to 1.4 dB over red, green and blue one by one
OPPONENT = (
    (1 / math.sqrt(3), 1 / math.sqrt(3), 1 / math.sqrt(3)),
    (1 / math.sqrt(2), 0.0, -1 / math.sqrt(2)),
    (1 / math.sqrt(6), -2 / math.sqrt(6), 1 / math.sqrt(6)),
)


@dataclass(frozen=True)
class Deblurred:
    """A sharpened photograph and what is known about it.

    Attributes:
        image: (H, W) or (3, H, W), float32, clipped to 0..1.
        noise: its standard deviation that was used.
        estimated: whether that was estimated from the photograph.
        notices: what was changed about the kernel, and what that means.
        certificates: ``deconvolution/ladmm`` for each tile; none with a network.
        status: converged, max_iterations (with a network: of what L-ADMM restored in its place), or diverged (then at least one
            tile is not restored); the worst of the tiles.
        tiles: how many parts the photograph was restored in.
        iterations: the most for a tile, of L-ADMM.
        gap: the largest relative duality gap of a tile's channels, a guaranteed bound of the objective's relative distance from
            its optimum; ``None`` with a network.
        change: the largest V_t/V_0 of a tile after the last iteration t (V: the certificate's gap); ``None`` with a network.
        movement: root mean square change of the picture in the last iteration, in intensities; ``None`` with a network.
        kept: (proposals of the network that were returned, proposals), by tile and channel; ``None`` without a network.
        applications: products with B, Bᵀ or an inverse filter for each channel, over all tiles.
        seconds: it took.
    """

    image: Tensor
    noise: float
    estimated: bool
    notices: tuple[str, ...]
    certificates: tuple[Certificate, ...]
    status: RunStatus
    tiles: int
    iterations: int
    gap: float | None
    change: float | None
    movement: float | None
    kept: tuple[int, int] | None
    applications: int
    seconds: float

    @property
    def certified(self) -> bool:
        """Whether the theorem holds for every tile and V did what it says."""
        holds = bool(self.certificates) and all(certificate.holds for certificate in self.certificates)
        return holds and self.status is not RunStatus.DIVERGED and self.change is not None and self.change <= 1.0


@dataclass(frozen=True)
class _Part:
    """What ``Deblurred`` says of a tile."""

    status: RunStatus
    iterations: int
    applications: int
    certificate: Certificate | None = None
    gap: float | None = None
    change: float | None = None
    movement: float | None = None
    kept: int = 0


def deblur(
    photo: Any,
    kernel: Any,
    noise: float | None = None,
    *,
    net: LearnedDeconvolution | None = None,
    iterations: int = ITERATIONS,
    tolerance: float = 1e-2,
    tile: int = TILE,
    progress: Callable[[int, int], None] | None = None,
) -> Deblurred:
    """Sharpen a photograph whose blur kernel is known: y = k ⊗ z + white noise.

    The default is the linearised ADMM with fixed parameters, in float64, whose theorem ``deconvolution/ladmm`` is evaluated for
    every tile. What lies beyond the photograph's border is unknown to the model (``ValidBlur``), so nothing is made up there
    that could ring.

    With an unknown border the duality gap closes slowly (docs/theorems/deconvolution.md): the picture has long settled when
    ``iterations`` are done, and ``gap`` still says some tens of per cent.

    Args:
        photo: (H, W) grey or (3, H, W) red, green, blue; intensities 0..1; at least 2 pixels a side.
        kernel: (kh, kw), not negative, centred at (kh//2, kw//2), as a convolution; it is divided by its sum.
        noise: standard deviation, positive; by default estimated from the photograph.
        net: a trained network in place of L-ADMM. What it proposes is returned where its residual lies in the noise band
            (``restore_checked``), else L-ADMM decides: a heuristic, no theorem covers it.
        iterations, tolerance: of L-ADMM; the tolerance is one of the relative duality gap.
        tile: pixels a side of the parts that a larger photograph is restored in; larger ones cost memory, smaller ones time.
        progress: called with the tiles done and their number.

    Raises:
        TypeError: arrays that are not floats.
        ValueError: another shape, NaN or infinite pixels, intensities in another unit, a kernel that is negative somewhere or
            larger than the photograph, or numbers that are out of range.
    """
    begin = time.monotonic()
    photo = _checked_photo(photo)
    kernel, notices = _prepared_kernel(kernel)
    _check_fits(kernel, photo.shape[-2:])
    level, estimated = _noise_level(photo, noise)
    iterations, tile = positive_integer("iterations", iterations), positive_integer("tile", tile)
    channels = photo if photo.ndim == 3 else photo[None]
    grid = [_spans(size, reach, tile) for size, reach in zip(photo.shape[-2:], kernel.shape, strict=True)]
    places = [(rows, columns) for rows in grid[0] for columns in grid[1]]
    total = torch.zeros_like(channels, dtype=torch.float32)
    parts: list[_Part] = []
    for done, (rows, columns) in enumerate(places):
        if progress is not None:
            progress(done, len(places))
        observed = channels[:, rows.slice, columns.slice].double()
        blur = ValidBlur.observing(kernel, tuple(observed.shape[1:]))
        if net is None:
            restored, part = _solved(observed, blur, level, iterations, tolerance)
        else:
            restored, part = _proposed(net, observed, blur, level, iterations)
        weight = (rows.weight[:, None] * columns.weight).to(restored.device)
        total[:, rows.slice, columns.slice] += (restored * weight).float()
        parts.append(part)
    if progress is not None:
        progress(len(places), len(places))
    image = total.clamp(0.0, 1.0).reshape(photo.shape)
    return _summary(parts, image, level, estimated, notices, net is not None, begin)


def _prepared_kernel(kernel: Any) -> tuple[Tensor, tuple[str, ...]]:
    """A kernel (kh, kw) in float64 with sum 1, and what a person should know about that.

    Raises:
        TypeError, ValueError: see ``normalised_kernel``; other than 2 dimensions.
    """
    raw = as_tensor("kernel", kernel).double()
    if raw.ndim != 2:
        raise ValueError(f"kernel has shape {tuple(raw.shape)}; pass one kernel, (rows, columns)")
    scaled = normalised_kernel(raw)
    notices: list[str] = []
    total = float(raw.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        notices.append(f"the kernel sums to {total:.6g} and was divided by that, which keeps the brightness")
    even = [f"{size} {name}" for size, name in zip(scaled.shape, ("rows", "columns"), strict=True) if size % 2 == 0]
    if even:
        centre = " and ".join(
            f"{name} {size // 2 + 1}" for size, name in zip(scaled.shape, ("row", "column"), strict=True)
        )
        notices.append(
            f"the kernel has {' and '.join(even)}, so no pixel is its middle: {centre} counts as that, half a pixel off along an "
            "even side, and the sharpened picture may lie half a pixel off"
        )
    return scaled, tuple(notices)


def _check_fits(kernel: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` for a kernel (kh, kw) larger than a photograph of this shape."""
    rows, columns = kernel.shape
    if rows > shape[0] or columns > shape[1]:
        raise ValueError(
            f"kernel ({rows} x {columns}) is larger than the photo ({shape[0]} x {shape[1]}, rows x columns); crop the kernel's "
            "zero margin, or pass a larger photo"
        )


def _checked_photo(photo: Any) -> Tensor:
    checked = checked_image("photo", photo)
    if checked.ndim > 3 or (checked.ndim == 3 and checked.shape[0] != 3):
        raise ValueError(
            f"photo has shape {tuple(checked.shape)}; pass grey (rows, columns) or colour (3, rows, columns)"
        )
    if min(checked.shape[-2:]) < 2:
        raise ValueError(
            f"photo has {checked.shape[-2]} x {checked.shape[-1]} pixels; at least 2 a side are needed for a wavelet transform"
        )
    least, most = float(checked.min()), float(checked.max())
    if least < RANGE[0] or most > RANGE[1]:
        raise ValueError(
            f"photo has intensities from {least:.3g} to {most:.3g}, where black is 0 and white is 1; divide it by its white, for "
            "example 255"
        )
    return checked


def _noise_level(photo: Tensor, noise: float | None) -> tuple[float, bool]:
    """The level, and whether it was estimated: over the channels, as their noise is taken to be the same."""
    if noise is not None:
        return positive("noise", noise), False
    if min(photo.shape[-2:]) < len(DIFFERENCE):
        raise ValueError(
            f"photo has {photo.shape[-2]} x {photo.shape[-1]} pixels, too few to estimate its noise; pass noise, for example 0.01"
        )
    channels = photo if photo.ndim == 3 else photo[None]
    return math.sqrt(sum(float(estimate_noise(channel)) ** 2 for channel in channels) / len(channels)), True


@dataclass(frozen=True)
class _Span:
    """A tile along one axis, and its weights there, which sum to 1 over the tiles."""

    slice: slice
    weight: Tensor


def _spans(size: int, reach: int, tile: int) -> list[_Span]:
    """Tiles of equal length that cover ``size`` pixels with a kernel of ``reach`` pixels; neighbours overlap and are blended
    linearly, away from the outermost pixels of either."""
    from scipy.fft import next_fast_len

    overlap = OVERLAP + reach
    length = max(tile - reach + 1, 3 * overlap)  # else overlaps would be most of the work
    if length >= size:
        return [_Span(slice(0, size), torch.ones(size, dtype=torch.float64))]
    count = math.ceil((size - overlap) / (length - overlap))
    # no longer than this many tiles need, but for a fast Fourier transform of the tile with its border
    least = math.ceil((size + (count - 1) * overlap) / count)
    fast: Any = next_fast_len(least + reach - 1, real=True)
    length = min(length, fast - reach + 1)
    starts = [round(i * (size - length) / (count - 1)) for i in range(count)]
    position = torch.arange(size, dtype=torch.float64)
    rises = []
    for before, after in pairwise(starts):
        quarter = (before + length - after) / 4.0
        rises.append(((position - after - quarter) / (2.0 * quarter)).clamp(0.0, 1.0))
    ones = torch.ones(size, dtype=torch.float64)
    edges = [ones, *rises, torch.zeros_like(ones)]
    return [
        _Span(slice(start, start + length), (rise - fall)[start : start + length])
        for start, (rise, fall) in zip(starts, pairwise(edges), strict=True)
    ]


def _solved(observed: Tensor, blur: ValidBlur, noise: float, iterations: int, tolerance: float) -> tuple[Tensor, _Part]:
    """A tile (C, h, w) by L-ADMM."""
    problem = _problem(observed, blur, noise)
    solver = LADMM(BETA * problem.penalty)
    theorem = certificate(solver, problem, checkable=False)
    solved = solver.solve(problem, iterations, tolerance=tolerance)
    gap = float(solved.gap.relative.max())
    if solved.status is RunStatus.DIVERGED:
        return observed, _Part(solved.status, solved.iterations, solved.applications, theorem, gap)
    after = solver.step(problem, solved.state, solved.iterations)
    first, last = theorem.quantities["initial_gap"], float(solver.change(problem, solved.state, after))
    part = _Part(
        solved.status,
        solved.iterations,
        solved.applications,
        theorem,
        gap,
        last / first if first > 0.0 else 0.0,
        float((after.synthesis - solved.state.synthesis).square().mean().sqrt()),
    )
    return _unmixed(solved.image), part


def _proposed(
    net: LearnedDeconvolution, observed: Tensor, blur: ValidBlur, noise: float, iterations: int
) -> tuple[Tensor, _Part]:
    """A tile (C, h, w) by a network. Networks are trained with a periodic border, and ring at an unknown one: a few iterations of
    L-ADMM find what may lie beyond it, and the tile is continued by their blurred picture."""
    problem = _problem(observed, blur, noise)
    solver = LADMM(BETA * problem.penalty)
    guess = solver.solve(problem, CONTINUING, tolerance=0.0)
    periodic = PeriodicBlur(blur.kernel, blur.domain)
    continued = periodic.forward(guess.state.synthesis)
    blur.crop(continued).copy_(problem.observed)  # a view
    restoration = restore_checked(net, continued, periodic, noise, iterations=iterations)
    image = blur.crop(restoration.image)
    finite = bool(image.isfinite().all())
    status = RunStatus.MAX_ITERATIONS if restoration.iterations >= iterations else RunStatus.CONVERGED
    if not finite:
        status = RunStatus.DIVERGED
    cost = guess.applications + restoration.applications
    part = _Part(status, restoration.iterations, cost, kept=int(restoration.accepted.sum()))
    return _unmixed(image) if finite else observed, part


def _problem(observed: Tensor, blur: ValidBlur, noise: float) -> DeconvolutionProblem:
    """Of a tile (C, h, w), three colours as brightness and two differences."""
    mixed = torch.einsum("ij,jhw->ihw", _opponent(observed), observed)
    return DeconvolutionProblem(mixed, blur, default_penalty(noise))


def _unmixed(channels: Tensor) -> Tensor:
    return torch.einsum("ij,ihw->jhw", _opponent(channels), channels)


def _opponent(channels: Tensor) -> Tensor:
    return channels.new_tensor(OPPONENT if len(channels) == 3 else [[1.0]])


_WORST = (RunStatus.DIVERGED, RunStatus.MAX_ITERATIONS, RunStatus.CONVERGED)


def _summary(
    parts: list[_Part],
    image: Tensor,
    noise: float,
    estimated: bool,
    notices: tuple[str, ...],
    learned: bool,
    begin: float,
) -> Deblurred:
    def largest(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return max(known) if known else None

    channels = 3 if image.ndim == 3 else 1
    return Deblurred(
        image,
        noise,
        estimated,
        notices,
        tuple(part.certificate for part in parts if part.certificate is not None),
        min((part.status for part in parts), key=_WORST.index),
        len(parts),
        max(part.iterations for part in parts),
        largest([part.gap for part in parts]),
        largest([part.change for part in parts]),
        largest([part.movement for part in parts]),
        (sum(part.kept for part in parts), channels * len(parts)) if learned else None,
        sum(part.applications for part in parts),
        time.monotonic() - begin,
    )
