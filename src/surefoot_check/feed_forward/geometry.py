"""Windows of maps: how a convolution shares its weights, and what a maximum is taken of.

A row of the array ``geometry`` is the kind of the layer, and of its inputs channels, height and width, of the windows height and
width, steps down and to the right, how far the first begins above and to the left of the map, and how many there are down and to
the right. Maps are stored channel by channel, row by row. All zeros: a layer without geometry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import numpy as np

from ..arrays import FormatError
from ..rigor.bounds import Array

Integers = np.ndarray
CONVOLUTION, CIRCULAR, MAXIMUM = 1, 2, 3
"""Kinds: with zeros around the map, with the map repeated around it; the largest of each window, of what lies in the map."""
COLUMNS = 12
LARGEST_MAP = 1 << 24
"""Most entries of a map, and of all its windows."""
LARGEST_MATRIX = 1 << 26
"""Most entries of the matrix of a convolution: half a GiB."""


@dataclass(frozen=True)
class Geometry:
    """One row of the array."""

    kind: int
    channels: int
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    stride_down: int
    stride_right: int
    above: int
    left: int
    down: int
    right: int

    @classmethod
    def of(cls, row: Sequence[int]) -> Geometry | None:
        """``None`` for a layer without geometry.

        Raises:
            FormatError: numbers that are none of windows of a map.
        """
        if not any(row):
            return None
        found = cls(*row)
        sizes = (found.channels, found.height, found.width, *row[4:8], found.down, found.right)
        if found.kind not in (CONVOLUTION, CIRCULAR, MAXIMUM) or min(sizes) < 1 or min(row) < 0:
            raise FormatError(f"the geometry {list(row)} is none")
        entries = found.positions * found.channels * found.kernel_height * found.kernel_width
        if max(*row, found.inputs, entries) > LARGEST_MAP:
            raise FormatError("the geometry is too large")
        if found.kind == CIRCULAR and not found.once_around:
            raise FormatError("circular windows are larger than the map, or equal")
        if found.kind == MAXIMUM and not found.never_empty:
            raise FormatError("a window has no entry to take the maximum of")
        return found

    @property
    def row(self) -> tuple[int, ...]:
        """The row of the array."""
        return astuple(self)

    @property
    def once_around(self) -> bool:
        """Whether circular windows have no entry twice, and none is another: what the bounds of columns rely on."""
        return (
            max(self.kernel_height, 1 + (self.down - 1) * self.stride_down) <= self.height
            and max(self.kernel_width, 1 + (self.right - 1) * self.stride_right) <= self.width
        )

    @property
    def inputs(self) -> int:
        """Entries of all channels."""
        return self.channels * self.height * self.width

    @property
    def positions(self) -> int:
        """Windows of a channel."""
        return self.down * self.right

    @property
    def shared(self) -> int:
        """Weights of a unit of a convolution, without its bias."""
        return self.channels * self.kernel_height * self.kernel_width

    @property
    def never_empty(self) -> bool:
        """Whether every window has an entry in the map."""
        return all((places >= 0).any(axis=1).all() for places in self._lines)

    @property
    def _lines(self) -> tuple[Integers, Integers]:
        """Rows (down, kernel height) and columns (right, kernel width) of the windows in a map; -1 where there is nothing."""
        return (
            self._places(self.down, self.stride_down, self.above, self.kernel_height, self.height),
            self._places(self.right, self.stride_right, self.left, self.kernel_width, self.width),
        )

    @cached_property
    def windows(self) -> Integers:
        """The places (positions, entries of a window) in a map, row by row; -1 where there is nothing."""
        rows, columns = self._lines
        found = rows[:, None, :, None] * self.width + columns[None, :, None, :]
        inside = (rows >= 0)[:, None, :, None] & (columns >= 0)[None, :, None, :]
        return np.where(inside, found, -1).reshape(self.positions, -1)

    def _places(self, count: int, stride: int, before: int, kernel: int, size: int) -> Integers:
        """Along one direction (count, kernel)."""
        found = np.arange(count)[:, None] * stride - before + np.arange(kernel)
        if self.kind == CIRCULAR:
            return found % size
        return np.where((found >= 0) & (found < size), found, -1)

    @cached_property
    def overlap(self) -> int:
        """In how many windows an entry lies, at most."""
        inside = self.windows[self.windows >= 0]
        return int(np.bincount(inside).max(initial=0))

    @cached_property
    def patches(self) -> Integers:
        """The places (positions, channels · entries of a window) of what a unit of a convolution sees; -1 where there is
        nothing."""
        starts = np.arange(self.channels) * (self.height * self.width)
        each = np.where(self.windows[:, None] >= 0, self.windows[:, None] + starts[:, None], -1)
        return each.reshape(self.positions, -1)

    def matrix(self, W: Array) -> Array:
        """The convolution by W (units, shared) as a matrix (units · positions, inputs)."""
        found = np.zeros((len(W), self.positions, self.inputs))
        places, columns = np.nonzero(self.patches >= 0)
        found[:, places, self.patches[places, columns]] = W[:, columns]
        return found.reshape(-1, self.inputs)

    @cached_property
    def entries(self) -> Integers:
        """The places (channels · positions, entries of a window) of what a maximum is taken of; -1 where there is nothing."""
        starts = np.arange(self.channels) * (self.height * self.width)
        each = np.where(self.windows >= 0, self.windows + starts[:, None, None], -1)
        return each.reshape(self.channels * self.positions, -1)


def gathered(A: Array, places: Integers, nothing: float = 0.0) -> Array:
    """A (N, inputs) at the places (…), as (N, …)."""
    return np.where(places >= 0, A[:, places], nothing)
