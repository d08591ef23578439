"""Implicit ReLU networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..problems import load_problem
from ..system import System
from . import constants, enclosures, gd, measured, spectral

SYSTEM = System(
    name="implicit",
    theorems=(
        spectral.THEOREM,
        measured.THEOREM,
        gd.THEOREM,
    ),
    directions=constants.DIRECTIONS,
    load=load_problem,
    read_weights=enclosures.read_weights,
    sizes=enclosures.sizes,
    base_quantities=enclosures.base_quantities,
    gap_upper=enclosures.gap_upper,
    gap_exact=enclosures.gap_exact,
    fixed=enclosures.FIXED,
    measured_from_zero=True,
)
