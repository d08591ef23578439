"""Feed-forward networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System
from . import enclosures, local

SYSTEM = System(
    name="feed-forward",
    theorems=(local.THEOREM,),
    directions=local.DIRECTIONS,
    enclosures=enclosures,
    optional=frozenset({"kink_margin"}),
    measured_from_zero=True,
)
