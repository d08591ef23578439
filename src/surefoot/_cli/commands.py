"""The commands, as dataclasses from which the parser and the help texts are made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, make_dataclass
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Union

from tyro.conf import subcommand

from .._core.registry import SYSTEMS
from .demo import Demo
from .inspection import Check, Report, Reproduce
from .listing import List
from .options import Runnable, TrainOptions


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Evaluate a convergence theorem on your data and initial weights, before training; `holdout` counts on held-out problems."""

    system: Runnable

    def run(self, held: ExitStack) -> int:
        return self.system.run(held)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Certify, train, audit, and write a run directory with a report."""

    system: TrainOptions

    def run(self, held: ExitStack) -> int:
        return self.system.run(held)


def modules() -> dict[str, ModuleType]:
    """The module of each system's commands, by the system's name."""
    return {system.name: import_module(system.command) for system in SYSTEMS if system.command is not None}


def command() -> Any:
    """The union of all commands, from which the parser is made."""
    of_systems = modules()
    extra = {name: kind for module in of_systems.values() for name, kind in getattr(module, "MORE", {}).items()}
    kinds = {
        "demo": Demo,
        "certify": _by_system(Certify, of_systems),
        "train": _by_system(Train, of_systems),
        "check": Check,
        "report": Report,
        **extra,
        "reproduce": Reproduce,
        "list": List,
    }
    descriptions = {"check": "Check a run, independently and rigorously."}
    return _union({name: (kind, descriptions.get(name)) for name, kind in kinds.items()})


def _by_system(kind: type, of_systems: Mapping[str, ModuleType]) -> type:
    """The command whose ``system`` is one of those that have it, or a name in the ``MORE_`` forms of a module."""
    forms = {
        name: (getattr(module, kind.__name__), None)
        for name, module in of_systems.items()
        if hasattr(module, kind.__name__)
    }
    for module in of_systems.values():
        more = getattr(module, f"MORE_{kind.__name__.upper()}", {})
        forms |= {name: (form, None) for name, form in more.items()}
    made = make_dataclass(kind.__name__, [("system", _union(forms))], bases=(kind,), frozen=True, kw_only=True)
    made.__doc__ = kind.__doc__
    return made


def _union(kinds: Mapping[str, tuple[type, str | None]]) -> Any:
    members = [
        Annotated[kind, subcommand(name, description=description)] for name, (kind, description) in kinds.items()
    ]
    return Union[tuple(members)]  # noqa: UP007 - made of a list
