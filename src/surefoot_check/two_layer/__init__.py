"""Two-layer linear networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from importlib import import_module

from ..system import System
from . import constant, constants, contraction, corrected, drift, enclosures, prescribed, sharp

SYSTEM = System(
    name="two-layer",
    theorems=(
        drift.THEOREM,
        contraction.THEOREM,
        constant.THEOREM,
        sharp.THEOREM,
        corrected.THEOREM,
        prescribed.THEOREM,
    ),
    directions={**constants.DIRECTIONS, **prescribed.DIRECTIONS},
    enclosures=enclosures.ENCLOSURES,
    optional=frozenset({"optimum_sigma_min", "optimum_sigma_max", "initial_distance", *prescribed.DIRECTIONS}),
    replay=lambda: import_module(".replay", __name__).TwoLayer,  # it imports python-flint
)
