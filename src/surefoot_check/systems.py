"""The systems that the checker knows, and their theorems: the one list."""

from __future__ import annotations

from . import deconvolution, implicit, inverse, linear_resnet, step_sizes, two_layer
from .statement import Theorem
from .system import System

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        two_layer.SYSTEM,
        linear_resnet.SYSTEM,
        implicit.SYSTEM,
        step_sizes.SYSTEM,
        inverse.SYSTEM,
        deconvolution.SYSTEM,
    )
}
THEOREMS: dict[str, Theorem] = {theorem.id: theorem for system in SYSTEMS.values() for theorem in system.theorems}
