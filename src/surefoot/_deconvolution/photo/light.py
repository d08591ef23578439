"""Photographs as files hold them and as light adds up: the encoding of sRGB."""

from __future__ import annotations

import torch
from torch import Tensor

AUTO, SRGB, LINEAR = "auto", "srgb", "linear"
GAMMAS = (AUTO, SRGB, LINEAR)
SLOPE = 12.92
"""Of the straight part near black, with ``OFFSET`` and ``POWER`` from IEC 61966-2-1."""
OFFSET, POWER = 0.055, 2.4
KNEE = 0.04045
"""The sample where the straight part ends."""


def decode(photo: Tensor) -> Tensor:
    """Linear light of sRGB samples of any shape (IEC 61966-2-1); above 1 the curve goes on, and negative samples mirror it.

    It rises everywhere, and is the inverse of ``encode`` up to rounding.
    """
    size = photo.abs()
    curve = ((size.clamp(min=KNEE) + OFFSET) / (1.0 + OFFSET)) ** POWER
    return torch.where(size <= KNEE, size / SLOPE, curve).copysign(photo)


def encode(light: Tensor) -> Tensor:
    """sRGB samples of linear light, the inverse of ``decode``."""
    size = light.abs()
    curve = (1.0 + OFFSET) * size.clamp(min=KNEE / SLOPE) ** (1.0 / POWER) - OFFSET
    return torch.where(size <= KNEE / SLOPE, size * SLOPE, curve).copysign(light)


def decoding_slope(photo: Tensor) -> Tensor:
    """How much light a small step of each sample is worth: the derivative of ``decode``."""
    curve = POWER / (1.0 + OFFSET) * ((photo.abs().clamp(min=KNEE) + OFFSET) / (1.0 + OFFSET)) ** (POWER - 1.0)
    return torch.where(photo.abs() <= KNEE, 1.0 / SLOPE, curve)
