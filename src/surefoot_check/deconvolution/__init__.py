"""Deconvolution by linearised ADMM: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System
from . import enclosures, ladmm

SYSTEM = System(
    name="deconvolution",
    theorems=(ladmm.THEOREM,),
    directions=ladmm.DIRECTIONS,
    enclosures=enclosures,
    measured_from_zero=True,
)
