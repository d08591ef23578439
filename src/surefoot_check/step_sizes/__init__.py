"""Learned step sizes: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System
from . import constants, enclosures, monotone, prox_monotone, prox_rate, rate

SYSTEM = System(
    name="step-sizes",
    theorems=(monotone.THEOREM, rate.THEOREM, prox_monotone.THEOREM, prox_rate.THEOREM),
    directions=constants.DIRECTIONS,
    enclosures=enclosures,
)
