"""In which sector the pair of a coordinate and its slope lies.

The pseudo-angle of (x, g) is a rational function of it that increases with the angle: 0 at (1, 0), 1 at (0, 1), 2 at (-1, 0),
3 at (0, -1), and below 4. Sector k are the pairs with exactly k boundaries at or below their pseudo-angle. For g between two
numbers, of the same sign where x = 0, the pairs lie on an arc from the pseudo-angle at one end to that at the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..rigor.bounds import Array

FULL_TURN = 4.0
"""Pseudo-angles lie in [0, 4)."""
SLIP = 2.0**-48
"""More than what rounding moves a pseudo-angle by."""


def pseudo_angle(x: Array, g: Array) -> Array:
    """Of (x, g); 0 of (0, 0)."""
    size = np.abs(x) + np.abs(g)
    ratio = g / np.where(size > 0.0, size, 1.0)
    return np.where(x < 0.0, 2.0 - ratio, np.where(ratio < 0.0, FULL_TURN + ratio, ratio))


def admissible(x: Array, g: Array, radius: Array, boundaries: Array, sectors: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the pair (x, g'), for some g' within the radius of g, may lie in the sector, up to rounding."""
    low, high = pseudo_angle(x, g - radius), pseudo_angle(x, g + radius)
    start, end = np.where(x < 0.0, high, low) - SLIP, np.where(x < 0.0, low, high) + SLIP
    count = len(boundaries) + 1
    first = np.searchsorted(boundaries, np.mod(start, FULL_TURN), side="right")
    last = np.searchsorted(boundaries, np.mod(end, FULL_TURN), side="right")
    on_arc = np.mod(sectors - first, count) <= np.mod(last - first, count)
    return on_arc | ((x == 0.0) & (np.abs(g) <= radius))
