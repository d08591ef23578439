"""Learned inverses: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System
from . import constants, enclosures, interval, order

SYSTEM = System(
    name="inverse",
    theorems=(
        interval.THEOREM,
        order.THEOREM,
    ),
    directions=constants.DIRECTIONS,
    load=enclosures.load_problem,
    read_weights=enclosures.read_weights,
    sizes=enclosures.sizes,
    base_quantities=enclosures.base_quantities,
    gap_upper=enclosures.gap_upper,
    gap_exact=enclosures.gap_exact,
    fixed=enclosures.FIXED,
    optional=frozenset(constants.RESIDUALS),
    measured_from_zero=True,
)
