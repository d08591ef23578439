"""Feed-forward networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..system import System
from . import local, minimum, quantities

SYSTEM = System(
    name="feed-forward",
    theorems=(local.THEOREM, minimum.THEOREM),
    directions={**local.DIRECTIONS, **minimum.DIRECTIONS},
    enclosures=quantities,
    optional=frozenset({"kink_margin"}),
    least=lambda problem: problem.least,
)
