"""Implicit ReLU networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..near_a_fit.local import DIRECTIONS as NEAR_A_FIT
from ..system import System, zero
from . import constants, exact_fit, gd, local, measured, quantities, spectral

SYSTEM = System(
    name="implicit",
    theorems=(spectral.THEOREM, local.THEOREM, exact_fit.THEOREM, measured.THEOREM, gd.THEOREM),
    directions={**constants.DIRECTIONS, **NEAR_A_FIT},
    enclosures=quantities,
    least=zero,
)
