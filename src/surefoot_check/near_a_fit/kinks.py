"""How far pre-activations are from kinks, in units of how far they may move on a ball."""

from __future__ import annotations

import math

import numpy as np

from ..rigor.bounds import UNIT_ROUNDOFF, Array, array_up
from ..rigor.intervals import TINY, Interval

WIDEST = 1e300
"""Above every margin."""


def fits(distance: Array, error: float, moved: Array, operations: int) -> Array:
    """Lower bounds of how often a change fits into a distance, which is a difference of floats that err by that in all.

    ``moved`` are bounds of the change, of that many operations, whose terms are all positive.
    """
    bound = array_up(moved, operations) + TINY
    return np.maximum(distance * (1.0 - 4.0 * UNIT_ROUNDOFF) - error, 0.0) / bound * (1.0 - 16.0 * UNIT_ROUNDOFF)


def least_margin(*margins: Array) -> Interval:
    """Enclosure of the least of them: 0 is below it where nothing else is known to be."""
    least = min(float(found.min()) for found in margins)
    return (least if math.isfinite(least) else 0.0), WIDEST
