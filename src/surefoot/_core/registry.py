"""The systems that are known, by name and by network: those of ``surefoot/systems.py`` and what ``register`` adds."""

from __future__ import annotations

from .plans import PLANS
from .system import AnyCertifiable, AnyDescendable, Certifiable, Descendable, System
from .validate import unknown

SYSTEMS: list[System] = []


def register(system: System) -> None:
    """Make a system known to ``certify``, ``descend`` and ``audit``."""
    SYSTEMS.append(system)
    if isinstance(system, Certifiable):
        PLANS.update({plan.theorem.id: plan for plan in system.plans})


def rule_names() -> list[str]:
    """The step rules of all systems, each name once."""
    return list(dict.fromkeys(name for s in SYSTEMS if isinstance(s, Descendable) for name in s.rules))


def system_of(net: object) -> AnyCertifiable:
    """The system of a network; ``TypeError`` that lists the known networks otherwise."""
    certifiable = [system for system in SYSTEMS if isinstance(system, Certifiable)]
    for system in certifiable:
        if isinstance(net, system.network):
            return system
    raise TypeError(f"net is a {type(net).__name__}; pass one of {', '.join(s.network_name for s in certifiable)}")


def system_named(name: str) -> AnyCertifiable:
    """The system with theorems of that name; ``ValueError`` otherwise."""
    certifiable = [system for system in SYSTEMS if isinstance(system, Certifiable)]
    for system in certifiable:
        if system.name == name:
            return system
    raise unknown("system", name, [system.name for system in certifiable])


def descendable_of(net: object) -> AnyDescendable:
    """The system of a network whose iterates are descended; ``TypeError`` that says what to do instead otherwise."""
    return _descendable(system_of(net))


def descendable_named(name: str) -> AnyDescendable:
    """The same by name; ``ValueError`` for an unknown one."""
    return _descendable(system_named(name))


def _descendable(system: AnyCertifiable) -> AnyDescendable:
    if not isinstance(system, Descendable):
        raise TypeError(system.words.instead["descend"])
    return system
