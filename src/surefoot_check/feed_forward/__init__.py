"""Feed-forward networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System
from . import enclosures, local, network

SYSTEM = System(
    name="feed-forward",
    theorems=(local.THEOREM,),
    directions=local.DIRECTIONS,
    load=network.load,
    read_weights=network.read_weights,
    sizes=network.sizes,
    base_quantities=enclosures.base_quantities,
    gap_upper=enclosures.gap_upper,
    gap_exact=enclosures.gap_exact,
    optional=frozenset({"kink_margin"}),
    measured_from_zero=True,
)
