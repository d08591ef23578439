"""The noise level of a blurred picture whose kernel is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._core.brief import brief
from ..operators import normalised_kernel
from ..problem import checked_image
from .blocks import noise_of_blocks
from .jpeg_steps import JPEG, jpeg_of
from .mixture import Fit
from .windows import SIDES, Periodograms

WHITE = 255.0
QUANTISATION = 1.0 / (WHITE * math.sqrt(12.0))
"""Standard deviation of rounding to 8 bits: no picture of that depth has less noise."""
RANGE = (0.02, 64.0)
"""Levels that are looked for, of 255."""
LEAST_SIDE = SIDES[-1]
"""Pixels a side of the smallest picture in which noise can be seen."""
BRIGHTNESS = (0.299, 0.587, 0.114)
"""Of red, green and blue in a JPEG's luminance (ITU-R BT.601)."""
COLOUR_ERROR = 1.75
"""Root mean square error of compression in red, green and blue over that in luminance, as colour is stored more coarsely: 1.4 to
2.4 in photographs at qualities of 60 to 95."""
FEW_WINDOWS, FEW_BLOCKS = 8, 30
"""Parts of a picture below which a level is a guess."""
CLIPPED = 0.5
"""Share of clipped pixels from which what is left may be unlike the picture."""
FINE, MIDDLE, COARSE = (0.35, 1.0), (0.2, 0.35), (0.0, 0.3)
"""Cycles a pixel."""
COARSER, EVEN = 3.2, 1.7
"""Ratio of the noise in the middle frequencies to that in the finest from which it is not white, and that of the lowest to the
middle ones above which texture may be in it. In photographs of a shaken camera whose kernels were measured (Levin et al., CVPR
2009) they are at least 3.47 and at most 1.66."""
WIDE = 1.5
"""Ratio of the largest to the least level that explains the picture about as well."""


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise of a picture; ``float(estimate)`` is its level.

    Attributes:
        level: standard deviation, where white is 1: of ``noise`` and ``compression`` together. That of JPEG is the best one to
            deblur with: compression takes away grain where it would not harm, and adds an error where the picture is.
        noise: standard deviation of the noise, before compression, with the rounding to 8 bits.
        compression: root mean square error that JPEG makes in the blurred picture without noise; 0 for other pictures.
        quality: of the JPEG, where it has the usual table; else ``None``.
        reasons: why the level is unsure, in sentences for a person; empty where it is sure.
    """

    level: float
    noise: float
    compression: float
    quality: int | None
    reasons: tuple[str, ...]

    __repr__ = brief

    @property
    def unsure(self) -> bool:
        """Whether there is a reason to doubt the level."""
        return bool(self.reasons)

    def __float__(self) -> float:
        return self.level


def estimate_noise(image: Any, kernel: Any = None) -> NoiseEstimate:
    """The standard deviation of the white noise in a blurred picture, by maximum likelihood (``mixture``).

    Where the blur has left nothing of the scene, and where the scene is flat, there is only noise; how much of either a picture
    has follows from its kernel and from the spectra of its parts. A picture decompressed from JPEG is known by its coefficients,
    which are multiples of steps: its noise is that before compression, to which the error of compression is added. Clipped pixels
    have no noise: parts with one are left out.

    Args:
        image: (H, W) or (channels, H, W), at least 8 x 8, intensities 0..1; the channels have the same noise.
        kernel: (kh, kw), not negative; without one the picture counts as sharp.

    Returns:
        The level and why it may be unsure: see ``NoiseEstimate``.

    Raises:
        TypeError: not arrays of floats.
        ValueError: NaN or infinite pixels, fewer than 8 a side, other dimensions, or what is no kernel: see
            ``normalised_kernel``.

    Example:
        >>> grey = 0.5 + 0.02 * torch.randn(64, 64)
        >>> estimate = sf.deconvolution.estimate_noise(grey)
        >>> round(estimate.level, 2), estimate.reasons
        (0.02, ())
    """
    checked = checked_image("image", image).detach().cpu().double()
    if checked.ndim > 3 or min(checked.shape[-2:]) < LEAST_SIDE:
        raise ValueError(
            f"image has shape {tuple(checked.shape)}; pass (rows, columns) or (channels, rows, columns), at least {LEAST_SIDE} x "
            f"{LEAST_SIDE} pixels, to see noise"
        )
    channels = checked if checked.ndim == 3 else checked[None]
    blur = torch.ones(1, 1, dtype=torch.float64) if kernel is None else normalised_kernel(kernel).cpu().double()
    if blur.ndim != 2:
        raise ValueError(f"kernel has shape {tuple(blur.shape)}; pass one kernel, (rows, columns)")
    levels = WHITE * channels
    # floats beyond are not: a background was subtracted, or white is no limit
    clipped = (channels == 0.0) | ((channels - 1.0).abs() < 1e-6)
    whole = bool(((levels - levels.round()).abs() < 1e-3).all())
    reasons: list[str] = []
    share = float(clipped.double().mean())
    if share > CLIPPED:
        reasons.append(f"{share:.0%} of the pixels are black or white and show no noise; the others may differ")
    if whole:
        luminance = _luminance(levels)
        jpeg = jpeg_of(luminance, clipped.any(0))
        if jpeg is not None:
            return _of_jpeg(jpeg, blur, len(channels) == 3, reasons)
    seen = [Periodograms.of(levels[c], clipped[c], blur) for c in range(len(channels))]
    level = _pooled([each.fit(*RANGE) for each in seen], reasons)
    windows = min(len(each.power) for each in seen)
    if windows < FEW_WINDOWS:
        reasons.append(f"the noise was seen in {windows} parts of the picture only")
    least = QUANTISATION if whole else 0.0
    level = max(_of_detail(seen, level, least, reasons), least)
    if level <= RANGE[0] / WHITE * 1.01:
        reasons.append(f"no noise can be seen; {level:.1g} is the least that is looked for")
    return NoiseEstimate(level, level, 0.0, None, tuple(reasons))


def _pooled(fits: list[Fit], reasons: list[str]) -> float:
    """One level of all channels."""
    reasons += _breadth(fits)
    return math.sqrt(sum((fit.level / WHITE) ** 2 for fit in fits) / len(fits))


def _of_detail(seen: list[Periodograms], level: float, least: float, reasons: list[str]) -> float:
    """The level at the frequencies of what shall be restored, where noise is coarser than white: cameras smooth it, and errors of
    a measured kernel look like that."""
    if any(float(each.frequency.min()) > MIDDLE[0] for each in seen):
        return level  # windows that are too small to tell
    middle, fine = (_pooled([each.fit(*RANGE, band) for each in seen], []) for band in (MIDDLE, FINE))
    if middle <= COARSER * max(fine, least):
        return level
    coarse = _pooled([each.fit(*RANGE, COARSE) for each in seen], [])
    if coarse > EVEN * middle:
        coarse = middle
    reasons.append(
        f"it is coarser than white noise ({fine:.2g} of white in the finest detail, {coarse:.2g} in what can be restored, which "
        "was taken), as where a camera smooths it, or the kernel is not quite that of the photo"
    )
    return coarse


def _luminance(levels: Tensor) -> Tensor:
    """(H, W): what a JPEG quantises of red, green and blue; the only or first channel of others."""
    return torch.einsum("c,chw->hw", levels.new_tensor(BRIGHTNESS), levels) if len(levels) == 3 else levels[0]


def _of_jpeg(jpeg: JPEG, kernel: Tensor, colour: bool, reasons: list[str]) -> NoiseEstimate:
    found = noise_of_blocks(jpeg, kernel, *RANGE)
    # noise that is independent in red, green and blue is weaker in their weighted sum
    weaker = math.sqrt(sum(weight**2 for weight in BRIGHTNESS)) if colour else 1.0
    noise = max(found.noise.level / WHITE / weaker, QUANTISATION)
    error = found.error / WHITE * (COLOUR_ERROR if colour else 1.0)
    named = "" if jpeg.quality is None else f" of quality {jpeg.quality}"
    if noise < error:
        reasons.append(
            f"the picture was compressed as JPEG{named}, whose error ({error:.2g}) hides noise as small as its own ({noise:.2g})"
        )
    else:
        reasons += _breadth([found.noise])
    if len(jpeg.coefficients) < FEW_BLOCKS:
        reasons.append(f"the noise was seen in {len(jpeg.coefficients)} blocks of the JPEG only")
    return NoiseEstimate(math.hypot(noise, error), noise, error, jpeg.quality, tuple(reasons))


def _breadth(fits: list[Fit]) -> list[str]:
    """A reason where levels that are far apart explain the picture as well."""
    low, high = min(fit.low for fit in fits) / WHITE, max(fit.high for fit in fits) / WHITE
    if high <= WIDE * max(low, QUANTISATION):
        return []
    return [f"levels from {low:.2g} to {high:.2g} explain the picture about as well"]
