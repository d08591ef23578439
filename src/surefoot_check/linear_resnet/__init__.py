"""Linear residual networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from importlib import import_module

from ..system import System
from . import constants, enclosures, gd, local

SYSTEM = System(
    name="linear-resnet",
    theorems=(local.THEOREM, gd.THEOREM),
    directions=constants.DIRECTIONS,
    enclosures=enclosures,
    replay=lambda: import_module(".replay", __name__).LinearResNet,  # it imports python-flint
)
