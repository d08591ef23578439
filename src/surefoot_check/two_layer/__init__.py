"""Two-layer linear networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problems import load_linear_map
from ..system import System
from . import constant, constants, contraction, corrected, drift, enclosures, sharp

if TYPE_CHECKING:
    from .replay import TwoLayer


def _replay() -> type[TwoLayer]:
    from .replay import TwoLayer  # here, as it imports python-flint

    return TwoLayer


SYSTEM = System(
    name="two-layer",
    theorems=(
        drift.THEOREM,
        contraction.THEOREM,
        constant.THEOREM,
        sharp.THEOREM,
        corrected.THEOREM,
    ),
    directions=constants.DIRECTIONS,
    load=load_linear_map,
    read_weights=enclosures.read_weights,
    sizes=enclosures.sizes,
    base_quantities=enclosures.base_quantities,
    gap_upper=enclosures.gap_upper,
    gap_exact=enclosures.gap_exact,
    fixed=enclosures.FIXED,
    optional=frozenset({"optimum_sigma_min", "optimum_sigma_max", "initial_distance"}),
    replay=_replay,
)
