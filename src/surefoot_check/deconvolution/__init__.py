"""Deconvolution by two methods of multipliers: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System, zero
from . import enclosures, ladmm, total_variation

SYSTEM = System(
    name="deconvolution",
    theorems=(ladmm.THEOREM, total_variation.THEOREM),
    directions=ladmm.DIRECTIONS | total_variation.DIRECTIONS,
    enclosures=enclosures,
    least=zero,
)
