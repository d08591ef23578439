"""Implicit ReLU networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System, zero
from . import constants, enclosures, gd, measured, spectral

SYSTEM = System(
    name="implicit",
    theorems=(spectral.THEOREM, measured.THEOREM, gd.THEOREM),
    directions=constants.DIRECTIONS,
    enclosures=enclosures,
    least=zero,
)
