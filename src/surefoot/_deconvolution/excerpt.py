"""The part of a photograph that is shown before and after, pixel by pixel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.pictures import Picture, Pixels

SHOWN = 900
"""Pixels a side, at most: as they are, not scaled."""


@dataclass(frozen=True)
class Excerpt:
    """The middle of a photograph.

    Attributes:
        before, after: the same part of both; of 8 bits from black to white where the file has another white than its format.
        part: of rows and of columns.
        whole: whether that is all of it.
    """

    before: Picture
    after: Picture
    part: tuple[slice, slice]
    whole: bool

    @classmethod
    def of(cls, before: Picture, after: Picture, white: float) -> Excerpt:
        """Of two pictures of one size, whose samples are white at ``white``."""
        rows, columns = before.pixels.shape[:2]
        part = _middle(rows), _middle(columns)
        left, right = (Picture(_shown(picture.pixels[part], white), before.profile) for picture in (before, after))
        return cls(left, right, part, max(rows, columns) <= SHOWN)

    def beside(self) -> Picture:
        """Both with a white line between them."""
        left, right = self.before.pixels, self.after.pixels
        line = np.full((len(left), 4, *left.shape[2:]), _largest(left), left.dtype)
        return Picture(np.concatenate([left, line, right], axis=1), self.before.profile)


def _middle(size: int) -> slice:
    start = max(0, (size - SHOWN) // 2)
    return slice(start, start + SHOWN)


def _shown(pixels: Pixels, white: float) -> Pixels:
    if pixels.dtype.kind == "u" and white == _largest(pixels):
        return pixels
    return np.rint(np.clip(pixels / white, 0.0, 1.0) * 255.0).astype(np.uint8)


def _largest(pixels: Pixels) -> int:
    return (1 << 8 * pixels.dtype.itemsize) - 1
