"""The noise level of a picture, from its fourth differences."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from .problem import checked_image

QUANTISATION = 1.0 / (255.0 * math.sqrt(12.0))
"""Standard deviation of rounding to 8 bits: no picture of that depth has less noise."""
DIFFERENCE = (1.0, -4.0, 6.0, -4.0, 1.0)
"""A blurred picture has hardly any detail left in fourth differences along both axes; first ones (Haar) find 14 % too much at a
noise of 0.01, these 1 %."""


def estimate_noise(image: Any) -> Tensor:
    """Standard deviation of white noise, for each image (...,): the median of |differences| over 0.6745, the median of a normal
    variable (Donoho and Johnstone, Biometrika 81(3), 1994); at least that of rounding to 8 bits.

    Clipped (saturated) pixels have no noise: windows with one are left out.

    Args:
        image: (..., H, W), at least 5 x 5, intensities 0..1.

    Raises:
        TypeError: not an array of floats.
        ValueError: NaN or infinite pixels, or fewer than 5 pixels a side.
    """
    checked = checked_image("image", image)
    if min(checked.shape[-2:]) < len(DIFFERENCE):
        raise ValueError(f"image has shape {tuple(checked.shape)}; at least 5 x 5 pixels are needed to see noise")
    taps = checked.new_tensor(DIFFERENCE)
    taps = taps / taps.norm()
    flat = checked.reshape(-1, 1, *checked.shape[-2:])
    differences = conv2d(flat, torch.outer(taps, taps)[None, None]).abs()
    clipped = max_pool2d(((flat <= 0.0) | (flat >= 1.0)).to(flat), len(DIFFERENCE), stride=1) > 0.0
    spread = torch.where(clipped, torch.nan, differences).flatten(1).nanmedian(-1).values / 0.6745
    return spread.nan_to_num(0.0).clamp(min=QUANTISATION).reshape(checked.shape[:-2])
