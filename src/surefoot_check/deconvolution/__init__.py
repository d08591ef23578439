"""Deconvolution by linearised ADMM: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System, zero
from . import enclosures, ladmm

SYSTEM = System(
    name="deconvolution",
    theorems=(ladmm.THEOREM,),
    directions=ladmm.DIRECTIONS,
    enclosures=enclosures,
    least=zero,
)
