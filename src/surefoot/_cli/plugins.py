"""Plug-ins: systems of others, in modules that a person names before the command. Nothing else loads code of others."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

OPTION = "--system"
NAMED: dict[str, str] = {}
"""The module that was named for a system, by the system's name."""


def program(system: str) -> str:
    """How the program is called so that it knows the system."""
    return f"surefoot {OPTION} {NAMED[system]}" if system in NAMED else "surefoot"


def with_systems(arguments: Sequence[str]) -> Sequence[str]:
    """Import the modules that stand before the command, which register their systems; the arguments from the command on.

    Raises:
        ValueError: a module is missing, cannot be imported, or registers no system.
    """
    tail = list(arguments)
    while tail and tail[0].partition("=")[0] == OPTION:
        _, given, name = tail.pop(0).partition("=")
        name = name if given or not tail else tail.pop(0)
        if not name or name.startswith("-"):
            raise ValueError(f"{OPTION} lacks its module; name one, for example {OPTION} my_system certify my-system")
        _load(name)
    return tail


def _load(name: str) -> None:
    from .._core.registry import SYSTEMS  # where somebody names a module, and else not

    known, before = len(SYSTEMS), name in sys.modules
    try:
        import_module(name)
    except (Exception, SystemExit) as error:  # whatever code of others raises
        raise ValueError(
            f"{OPTION} {name} cannot be imported ({type(error).__name__}: {error}); "
            "name a module that Python finds from here, for example by PYTHONPATH"
        ) from error
    its = SYSTEMS[known:] or [system for system in SYSTEMS if f"{type(system).__module__}.".startswith(f"{name}.")]
    if not its and not before:
        raise ValueError(f"{OPTION} {name} registers no system; call surefoot.register(system) in that module")
    NAMED.update((system.name, name) for system in its)
