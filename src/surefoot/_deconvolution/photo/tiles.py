"""A large photograph in overlapping tiles, each with its unknown border, which are blended into one picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

TILE = 512
"""Pixels a side of a tile with its unknown border."""
OVERLAP = 16
"""Pixels that two tiles share, over which they are blended, beyond the size of the kernel."""


@dataclass(frozen=True)
class Span:
    """A tile along one axis, and its weights there, which sum to 1 over the tiles."""

    slice: slice
    weight: Tensor


@dataclass(frozen=True)
class Tile:
    """A rectangle of a photograph."""

    rows: Span
    columns: Span

    def cut(self, image: Tensor) -> Tensor:
        """The part (..., h, w) of an image (..., H, W)."""
        return image[..., self.rows.slice, self.columns.slice]

    def add(self, total: Tensor, part: Tensor) -> None:
        """Add a restored part (..., h, w), weighted, to ``total`` (..., H, W)."""
        weight = self.rows.weight[:, None] * self.columns.weight
        self.cut(total).add_((part * weight.to(part.device)).to(total.dtype))


def tiles(shape: tuple[int, int], kernel: tuple[int, int], tile: int = TILE) -> list[Tile]:
    """Tiles that cover a photograph (rows, columns) blurred by a kernel of this size."""
    rows, columns = (spans(size, reach, tile) for size, reach in zip(shape, kernel, strict=True))
    return [Tile(row, column) for row in rows for column in columns]


def spans(size: int, reach: int, tile: int) -> list[Span]:
    """Tiles of equal length that cover ``size`` pixels with a kernel of ``reach`` pixels; neighbours overlap and are blended
    linearly, away from the outermost pixels of either."""
    from scipy.fft import next_fast_len

    overlap = OVERLAP + reach
    length = max(tile - reach + 1, 3 * overlap)  # else overlaps would be most of the work
    if length >= size:
        return [Span(slice(0, size), torch.ones(size, dtype=torch.float64))]
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
        Span(slice(start, start + length), (rise - fall)[start : start + length])
        for start, (rise, fall) in zip(starts, pairwise(edges), strict=True)
    ]
