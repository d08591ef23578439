"""Linear residual networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problems import load_problem
from ..system import System
from . import constants, enclosures, gd, local

if TYPE_CHECKING:
    from .replay import LinearResNet


def _replay() -> type[LinearResNet]:
    from .replay import LinearResNet  # here, as it imports python-flint

    return LinearResNet


SYSTEM = System(
    name="linear-resnet",
    theorems=(
        local.THEOREM,
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
    replay=_replay,
)
