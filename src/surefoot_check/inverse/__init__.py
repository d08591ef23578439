"""Learned inverses: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System, zero
from . import constants, enclosures, interval, order

SYSTEM = System(
    name="inverse",
    theorems=(interval.THEOREM, order.THEOREM),
    directions=constants.DIRECTIONS,
    enclosures=enclosures,
    optional=frozenset(constants.RESIDUALS),
    least=zero,
)
