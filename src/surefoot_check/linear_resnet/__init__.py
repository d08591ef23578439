"""Linear residual networks: enclosures of what a certificate rests on, and one theorem a file."""

from __future__ import annotations

from importlib import import_module

from .. import minibatch
from ..system import System
from . import constants, enclosures, gd, local, sgd_local

SYSTEM = System(
    name="linear-resnet",
    theorems=(local.THEOREM, gd.THEOREM, sgd_local.THEOREM),
    directions=constants.DIRECTIONS | minibatch.DIRECTIONS,
    enclosures=enclosures,
    replay=lambda: import_module(".replay", __name__).LinearResNet,  # it imports python-flint
)
