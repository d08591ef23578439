"""Whether a photograph was blurred in linear light or as its samples are: by its file, with a look at the photograph.

A blur that acted on light is none of the encoded samples, and the other way about: restored in the wrong one of the two, a
picture rings along its edges, and noise seems to fill the frequencies that the kernel has removed. That tells which it was in
about seven of eight photographs only, less in strong noise, so it does not decide: it gives a notice where it is clear.
"""

from __future__ import annotations

import math

from torch import Tensor

from ..half_quadratic import HyperLaplacian
from ..masked import MaskedBlur
from ..noise.estimate import LEAST_SIDE, estimate_noise
from ..operators import Blur, ValidBlur
from .highlights import beside, clipped
from .light import LINEAR, SRGB, decode, decoding_slope, encode

PART = 240
"""Pixels a side of the part in the middle that is looked at, at most."""
NOISIER = 0.1
"""Weight of the logarithm of the ratio of noise levels beside that of total variations."""
CLEAR = 0.15
"""Evidence beyond this is worth a notice: of 96 crops of photographs blurred in light, 1 spoke so clearly for its samples, and 2
of 96 the other way about; where the file is taken wrongly, about half do."""


def light_of_file(depth: int) -> str:
    """``SRGB`` for samples of 8 bits, as cameras and screens have them; ``LINEAR`` for deeper ones and for floats."""
    return SRGB if depth == 8 else LINEAR


def doubt(samples: Tensor, kernel: Tensor, step: float, light: str) -> tuple[str, ...]:
    """A notice where the photograph speaks clearly against ``light``; none where it does not, or is too small.

    Args:
        samples: (H, W) or (3, H, W), of the file, where white is 1.
        kernel: (kh, kw), prepared.
        step: between neighbouring samples.
        light: what was taken.
    """
    against = evidence(samples, kernel, step) * (1.0 if light == SRGB else -1.0)
    if against <= CLEAR:
        return ()
    taken, other = ("decoded to linear light", LINEAR) if light == SRGB else ("taken as they are", SRGB)
    return (f"the samples were {taken}, but the kernel explains the photo better the other way: try gamma {other}",)


def evidence(samples: Tensor, kernel: Tensor, step: float) -> float:
    """How much better a kernel explains a photograph as its samples are than in linear light: 0 where that cannot be told.

    It is the logarithm of the ratio of the total variations of the middle, restored in light and as it is, and a little of that
    of the noise levels. Arguments as ``doubt``.
    """
    plane = samples if samples.ndim == 2 else samples[1]  # green alone: no mean of encoded colours is one of light
    rows, columns = (_middle(size) for size in plane.shape)
    part = plane[rows, columns].double().contiguous()
    if min(part.shape) < max(LEAST_SIDE, *kernel.shape):
        return 0.0
    blur: Blur = ValidBlur.observing(kernel, tuple(part.shape))
    bright = clipped(part[None], step)
    if bool(bright.any()):
        blur = MaskedBlur(blur, ~beside(bright))
    light = decode(part)
    worth = float(decoding_slope(part).square().mean().sqrt())
    seen, lit = float(estimate_noise(part, kernel)), float(estimate_noise(light, kernel)) / worth
    noise, solver = max(seen, lit), HyperLaplacian()
    of_samples = solver.solve(part, blur, noise).image.clamp(0.0, 1.0)
    of_light = encode(solver.solve(light, blur, noise * worth).image.clamp(0.0, 1.0))
    rougher = math.log(max(_variation(of_light), 1e-12) / max(_variation(of_samples), 1e-12))
    return rougher + NOISIER * math.log(lit / seen)


def _middle(size: int) -> slice:
    start = max(0, (size - PART) // 2)
    return slice(start, start + PART)


def _variation(image: Tensor) -> float:
    """The mean difference of neighbours."""
    return float(image.diff(dim=0).abs().mean() + image.diff(dim=1).abs().mean())
