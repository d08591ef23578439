"""Feed-forward networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from ..near_a_fit.local import DIRECTIONS as NEAR_A_FIT
from ..system import System
from . import exact_fit, local, minimum, quantities, sgd

SYSTEM = System(
    name="feed-forward",
    theorems=(local.THEOREM, exact_fit.THEOREM, minimum.THEOREM, sgd.THEOREM),
    directions={**NEAR_A_FIT, **minimum.DIRECTIONS, **sgd.DIRECTIONS},
    enclosures=quantities,
    optional=frozenset({"kink_margin"}),
    least=lambda problem: problem.least,
)
