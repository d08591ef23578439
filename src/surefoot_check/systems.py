"""The systems that the checker knows, and their theorems: the one list; and those of modules that a person names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from . import deconvolution, feed_forward, implicit, inverse, linear_resnet, step_sizes, two_layer
from .statement import Theorem
from .system import System

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        two_layer.SYSTEM,
        linear_resnet.SYSTEM,
        implicit.SYSTEM,
        feed_forward.SYSTEM,
        step_sizes.SYSTEM,
        inverse.SYSTEM,
        deconvolution.SYSTEM,
    )
}
THEOREMS: dict[str, Theorem] = {theorem.id: theorem for system in SYSTEMS.values() for theorem in system.theorems}


def with_modules(names: Sequence[str]) -> Mapping[str, System]:
    """The systems by name, with the ``SYSTEM`` of each of these modules, whose code is run: name only what you trust.

    Raises:
        ValueError: a module that cannot be imported or has no ``SYSTEM``, or a system or theorem whose name is taken.
    """
    systems = dict(SYSTEMS)
    for name in names:
        try:
            system = getattr(import_module(name), "SYSTEM", None)
        except (Exception, SystemExit) as error:  # whatever code of others raises; to leave is no verdict
            raise ValueError(
                f"system {name!r} cannot be imported ({type(error).__name__}: {error}); "
                "name a module that Python finds from here, for example by PYTHONPATH"
            ) from error
        if not isinstance(system, System):
            raise ValueError(f"system {name!r} has no SYSTEM of type surefoot_check.system.System; define one")
        if system.name in systems:
            raise ValueError(f"system {name!r} calls its system {system.name!r}, which is taken; give it another name")
        ids = [theorem.id for theorem in system.theorems]
        if len(set(ids)) < len(ids) or not all(identifier.startswith(f"{system.name}/") for identifier in ids):
            raise ValueError(
                f"system {name!r} has the theorems {', '.join(ids)}; "
                f"each needs an id of its own that starts with {system.name + '/'!r}"
            )
        systems[system.name] = system
    return systems
