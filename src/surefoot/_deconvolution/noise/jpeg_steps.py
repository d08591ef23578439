"""Whether a picture was decompressed from JPEG, and the quantisation of its 8 x 8 blocks (ITU-T T.81)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SIDE = 8
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
"""Table K.1, which most encoders scale by a quality of 1 to 100."""
LARGEST = 121
"""Steps that are looked for."""
BLOCKS = 400
"""Blocks that are looked at, spread over the picture."""
ROUNDING = 0.3
"""Standard deviation of a coefficient by the rounding of the pixels to whole levels."""
ZERO = 2.5
"""Coefficients below may be 0 before that rounding, which is not random in smooth parts, and say nothing about the step."""
OUTLIERS = 0.02
"""Coefficients that fit no multiple: of pixels that were clipped or changed."""
EVIDENCE = 30.0
"""Log-likelihood ratio from which the picture counts as JPEG."""
EACH, SEVERAL = 10.0, 6
"""The same of a single step where the table is not a standard one, and how many steps must be seen then."""
QUALITIES = range(10, 100)
LEAST = 3
"""Smaller steps leave hardly a trace after the rounding."""


@dataclass(frozen=True)
class JPEG:
    """The quantised coefficients of blocks, in levels of 255.

    Attributes:
        coefficients: (blocks, 8, 8), of an orthonormal cosine transform, before rounding to multiples of the steps.
        steps: (8, 8), float64; NaN where none was seen.
        quality: of the standard table, or ``None`` for another.
    """

    coefficients: Tensor
    steps: Tensor
    quality: int | None


def jpeg_of(levels: Tensor, clipped: Tensor) -> JPEG | None:
    """The quantisation that the coefficients of a picture (h, w) of whole levels show; ``None`` where they show none.

    Blocks with a clipped pixel are left out. The grid of blocks may start anywhere, as in a cropped picture.
    """
    if min(levels.shape) < 3 * SIDE:
        return None
    for corner in dict.fromkeys(((0, 0), (_phase(levels.mT), _phase(levels)))):
        coefficients = _coefficients(levels[corner[0] :, corner[1] :], clipped[corner[0] :, corner[1] :])
        gains = _gains(coefficients)
        evidence, quality = _standard(gains)
        if evidence >= EVIDENCE:
            return JPEG(coefficients, table(quality), quality)
        steps = _own(gains)
        if int((~steps.isnan()).sum()) >= SEVERAL:
            return JPEG(coefficients, steps, None)
    return None


def table(quality: int) -> Tensor:
    """Steps (8, 8), float64, as libjpeg scales table K.1."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = torch.tensor(LUMINANCE, dtype=torch.float64)
    return ((steps * scale + 50.0) / 100.0).floor().clamp(1.0, 255.0)


def cosines() -> Tensor:
    """The orthonormal cosine transform (8, 8): rows are basis functions."""
    n = torch.arange(SIDE, dtype=torch.float64)
    basis = math.sqrt(2.0 / SIDE) * (math.pi / SIDE * (n + 0.5) * n[:, None]).cos()
    basis[0] /= math.sqrt(2.0)
    return basis


def _coefficients(levels: Tensor, clipped: Tensor) -> Tensor:
    """Of at most ``BLOCKS`` blocks without clipped pixels, (blocks, 8, 8)."""
    blocks = levels.unfold(0, SIDE, SIDE).unfold(1, SIDE, SIDE).reshape(-1, SIDE, SIDE)
    whole = ~clipped.unfold(0, SIDE, SIDE).unfold(1, SIDE, SIDE).reshape(-1, SIDE * SIDE).any(1)
    blocks = blocks[whole]
    if len(blocks) > BLOCKS:
        blocks = blocks[torch.linspace(0, len(blocks) - 1, BLOCKS).long()]
    basis = cosines()
    return basis @ (blocks - 128.0) @ basis.mT


def _phase(levels: Tensor) -> int:
    """The column at which the blocks start, where borders of blocks are seen: more of a jump than beside them."""
    jumps = levels.diff(dim=1).abs().mean(0)
    excess = jumps[1:-1] - 0.5 * (jumps[:-2] + jumps[2:])  # between columns i + 1 and i + 2
    usual = [float(excess[start::SIDE].mean()) for start in range(SIDE)]
    return (max(range(SIDE), key=usual.__getitem__) + 2) % SIDE


def _gains(coefficients: Tensor) -> Tensor:
    """Log-likelihoods (64, LARGEST) of each frequency's values near multiples of the steps 1, 2, …, against values anywhere."""
    flat = coefficients.flatten(1)
    far = flat.abs() > ZERO
    far[:, 0] = False  # the mean of an even block: its pixels may all be rounded the same way
    values, steps = flat[far][:, None], torch.arange(1.0, LARGEST + 1.0, dtype=torch.float64)
    off = (values - steps * (values / steps).round()) / ROUNDING
    near = steps / (ROUNDING * math.sqrt(2.0 * math.pi)) * (-0.5 * off.square()).exp()
    gains = ((1.0 - OUTLIERS) * near + OUTLIERS).log()
    gains[:, : LEAST - 1] = 0.0
    return torch.zeros(SIDE * SIDE, LARGEST, dtype=torch.float64).index_add_(0, far.nonzero()[:, 1], gains)


def _standard(gains: Tensor) -> tuple[float, int]:
    """The likeliest quality of the standard table, and the logarithm of how much likelier it makes the coefficients than none."""
    column = [table(quality).flatten().long().clamp(max=LARGEST) - 1 for quality in QUALITIES]
    totals = gains.gather(1, torch.stack(column, dim=1)).sum(0)
    best = int(totals.argmax())
    return float(totals[best]), QUALITIES[best]


def _own(gains: Tensor) -> Tensor:
    """The likeliest step (8, 8) of each coefficient by itself; NaN where its values show none."""
    largest, at = gains[:, LEAST:].max(1)  # of noise alone more values lie near 3 than near the ones after
    steps = torch.where(largest >= EACH, at.double() + LEAST + 1.0, torch.nan)
    return steps.reshape(SIDE, SIDE)
