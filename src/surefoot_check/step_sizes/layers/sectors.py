"""In which sector the pair of a coordinate and its step lies.

With a = |v|/(|x| + |v|), 0 where both are 0, the angle of (x, v) is 2 - a where x and v have opposite signs and a otherwise, in
[0, 2]. Sector k are the pairs with exactly k boundaries at or below their angle. For v between two numbers of one sign the
angles lie between those at the ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...rigor.bounds import Array

LARGEST = 2.0
"""Angles lie in [0, 2]."""
SLIP = 2.0**-48
"""More than what rounding moves an angle by."""


def angle(x: Array, v: Array) -> Array:
    """Of (x, v)."""
    size = np.abs(x) + np.abs(v)
    share = np.abs(v) / np.where(size > 0.0, size, 1.0)
    return np.where(np.sign(x) * np.sign(v) < 0.0, LARGEST - share, share)


def admissible(x: Array, v: Array, radius: Array, boundaries: Array, sectors: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether the pair (x, v'), for some v' within the radius of v, may lie in the sector, up to rounding."""
    ends = np.stack([angle(x, v - radius), angle(x, v + radius)])
    first, last = (
        np.searchsorted(boundaries, edge, side="right") for edge in (ends.min(axis=0) - SLIP, ends.max(axis=0) + SLIP)
    )
    # where v may be 0 the angles are those from 0 to a share, and from 2 less that share to 2
    share = np.where(ends > 1.0, LARGEST - ends, ends).max(axis=0)
    up_to, down_to = (np.searchsorted(boundaries, e, side="right") for e in (share + SLIP, LARGEST - share - SLIP))
    around_zero = (sectors <= up_to) | (sectors >= down_to)
    return np.where(np.abs(v) <= radius, around_zero, (first <= sectors) & (sectors <= last))
