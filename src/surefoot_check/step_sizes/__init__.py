"""Learned step sizes: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System
from . import batches, constants, enclosures, monotone, prox_monotone, prox_rate, rate

SYSTEM = System(
    name="step-sizes",
    theorems=(
        monotone.THEOREM,
        rate.THEOREM,
        prox_monotone.THEOREM,
        prox_rate.THEOREM,
    ),
    directions=constants.DIRECTIONS,
    load=batches.load_problem,
    read_weights=enclosures.read_weights,
    sizes=enclosures.sizes,
    base_quantities=enclosures.base_quantities,
    gap_upper=enclosures.gap_upper,
    gap_exact=enclosures.gap_exact,
    fixed=enclosures.FIXED,
)
