"""The systems that are known, by name and by network: those of ``surefoot/systems.py`` and what ``register`` adds."""

from __future__ import annotations

import re
from collections import UserList
from collections.abc import Sequence
from typing import Any

from torch import nn

from .filling import FilledWhenRead
from .losses import LinearMapLoss
from .plans import PLANS, Plan
from .system import AnyCertifiable, AnyDescendable, Certifiable, Descendable, Recordable, System
from .validate import kind_of, require_trained, unknown
from .words import Words


class Systems(UserList[System]):
    """In the order in which they were registered."""

    data: Any = FilledWhenRead()


SYSTEMS = Systems()
WRAPPED = ("_orig_mod", "module")
"""Where torch's wrappers, of ``torch.compile`` and for parallel training, have the network itself."""
NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
"""Of a system: a command's name, and a part of ids."""


def register(system: System) -> None:
    """Make a system known to ``certify``, ``descend``, ``audit``, runs, reports and the command line, of this process.

    Nothing is changed where it is refused.

    Args:
        system: an object of a class of ``surefoot.extending``; its name is that of its command, and of its theorems before the
            slash.

    Raises:
        TypeError: no system, or one whose class lacks a name, words, or what its kind needs.
        ValueError: a name, a class of networks or the id of a theorem that is taken, or that is none.

    Example:
        >>> class Mine(sf.extending.System):  # in full: docs/extending.md
        ...     name, network_name = "mine", "MyNet"
        ...     words = sf.extending.Words(instead={"certify": "nothing is proved yet"})
        >>> sf.register(Mine())
        >>> sf.register(Mine())
        Traceback (most recent call last):
        ValueError: system has the name 'mine', which is taken; give it another name
    """
    if not isinstance(system, System):
        raise TypeError(
            f"system is {system!r} ({type(system).__name__}); pass an object of a class of surefoot.extending"
        )
    _require_declared(system)
    if not re.fullmatch(NAME, system.name):
        raise ValueError(f"system has the name {system.name!r}; use lower-case letters, digits and single hyphens")
    if any(system.name == other.name for other in SYSTEMS):
        raise ValueError(f"system has the name {system.name!r}, which is taken; give it another name")
    plans = _plans(system) if isinstance(system, Certifiable) else {}
    SYSTEMS.append(system)
    PLANS.update(plans)


def _require_declared(system: System) -> None:
    """``TypeError`` where the class of a system lacks what it must say of itself, or says it in another type."""
    declared: dict[str, type] = {"name": str, "network_name": str, "words": Words}
    if isinstance(system, Certifiable):
        declared |= {"network": type, "plans": Sequence, "default_theorem": str}
    for attribute, kind in declared.items():
        if not isinstance(getattr(system, attribute, None), kind):
            raise TypeError(
                f"system is {kind_of(system)}, whose attribute {attribute} is "
                f"{getattr(system, attribute, None)!r}; set it to a {kind.__name__}"
            )


def _plans(system: AnyCertifiable) -> dict[str, Plan]:
    """The plans of a new system by the ids of their theorems; ``ValueError`` where those or its networks are not its own."""
    for other in SYSTEMS:
        if isinstance(other, Certifiable) and _related(system.network, other.network):
            raise ValueError(
                f"system {system.name!r} has networks of the class {system.network.__name__}, and system {other.name!r} those of "
                f"{other.network.__name__}: a network would be of both; give it a class of its own"
            )
    ids = [plan.theorem.id for plan in system.plans]
    if len(set(ids)) < len(ids) or not all(re.fullmatch(f"{system.name}/.+", name) for name in ids):
        raise ValueError(
            f"system {system.name!r} has the theorems {', '.join(ids)}; each needs an id of its own that starts with "
            f"{system.name + '/'!r}"
        )
    if system.default_theorem not in ids:
        raise ValueError(
            f"system {system.name!r} has the default theorem {system.default_theorem!r}, which is none of its plans: "
            f"{', '.join(ids) or 'it has none'}"
        )
    return dict(zip(ids, system.plans, strict=True))


def _related(kind: type, other: type) -> bool:
    return issubclass(kind, other) or issubclass(other, kind)


def rule_names() -> list[str]:
    """The step rules of all systems, each name once: what ``steps`` of ``sf.descend`` and ``--steps`` may be. A system that has
    not what a rule needs refuses it, and says which ones it takes.

    Example:
        >>> sf.steps.names()
        ['certified-bb', 'contraction', 'sharp', ..., 'constant', ...]
    """
    return list(dict.fromkeys(name for s in SYSTEMS if isinstance(s, Descendable) for name in s.rules))


def system_of(net: object) -> AnyCertifiable:
    """The system of a network; ``TypeError`` that lists the known networks otherwise."""
    certifiable = [system for system in SYSTEMS if isinstance(system, Certifiable)]
    for system in certifiable:
        if isinstance(net, system.network):
            return system
    for name in WRAPPED:
        inner = getattr(net, name, None)
        if any(isinstance(inner, system.network) for system in certifiable):
            raise TypeError(
                f"net is {kind_of(net)} around {kind_of(inner)}; pass net.{name}, whose weights are the same"
            )
    containers = [s.network_name for s in certifiable if _of_torch(s.network)]
    hint = ""
    if isinstance(net, nn.Module) and containers:
        same = "net" if _of_torch(type(net)) else "modules of torch that compute the same"
        hint = f"; or {containers[0]}({same})"
    raise TypeError(f"net is {kind_of(net)}; pass one of {', '.join(s.network_name for s in certifiable)}{hint}")


def _of_torch(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.")


def adopted(net: Any, loss: Any, theorem: str | None = None) -> tuple[AnyCertifiable, Any]:
    """The system that speaks of a network with this loss by that theorem, and the network as it has it: itself, or one with the
    same weights.

    Raises:
        TypeError: as ``system_of``.
        TypeError: the theorem speaks of these weights as a linear map, and the loss is none of one.
        ValueError: a frozen weight of a system that trains all.
    """
    system = system_of(net)
    if theorem not in system.theorems():
        layers = system.linear_layers(net)
        for other in (other for other in SYSTEMS if isinstance(other, Certifiable) and layers):
            found = other.of_linear_layers(layers)
            if found is None:
                continue
            if isinstance(loss, LinearMapLoss):
                system, net = other, found
                break
            if theorem in other.theorems():
                raise TypeError(
                    f"loss is {kind_of(loss)}; {theorem} speaks of losses of a linear map: pass for example sf.SquaredLoss(X, Y)"
                )
    if isinstance(system, Recordable) and isinstance(net, nn.Module):
        require_trained(net)
    return system, net


def system_named(name: str) -> AnyCertifiable:
    """The system with theorems of that name; ``ValueError`` otherwise."""
    certifiable = [system for system in SYSTEMS if isinstance(system, Certifiable)]
    for system in certifiable:
        if system.name == name:
            return system
    text = unknown("system", name, [system.name for system in certifiable])
    raise ValueError(
        f"{text}; one of your own is known once its module is imported, by the program with --system MODULE"
    )


def descendable_of(net: object) -> AnyDescendable:
    """The system of a network whose iterates are descended; ``TypeError`` that says what to do instead otherwise."""
    return descendable(system_of(net))


def descendable_named(name: str) -> AnyDescendable:
    """The same by name; ``ValueError`` for an unknown one."""
    return descendable(system_named(name))


def descendable(system: AnyCertifiable) -> AnyDescendable:
    """The same of a system."""
    if not isinstance(system, Descendable):
        raise TypeError(system.refusal("descend"))
    return system
