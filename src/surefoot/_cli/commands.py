"""From the first words of a command line to a command, and the help texts from which one is chosen."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from .. import __version__
from .._core.suggesting import did_you_mean
from ..commands import COMMANDS, Command
from .errors import UsageError
from .help import columns
from .options import Runnable

HELP = ("-h", "--help")
DESCRIPTION = "Gradient descent with a certificate: checked before training, audited after it."
NOTES = (
    "Exit codes: 0 yes, accept or done; 1 no or reject; 2 bad usage or input; 3 undecided; 4 diverged, stuck, or a rank lost.",
    "--system MODULE before the command, again for more: also systems of others, whose code is run.",
    "SUREFOOT_DEBUG=1 in the environment shows the traceback of an error.",
)
LEFT = 16
"""Columns of the names."""


def commands() -> dict[str, Command]:
    """Those of the list, and those of systems that were registered beside the library's."""
    if not _registry_is_loaded():  # so nothing was registered, and nobody need wait for the systems
        return COMMANDS
    from .._core.registry import SYSTEMS

    more = dict(COMMANDS)
    for system in SYSTEMS:
        own = None if system.command is None else import_module(system.command)
        for group, kind in (("certify", "Certify"), ("train", "Train")):
            if hasattr(own, kind):
                command = Command(summary(getattr(own, kind)), f"{system.command}:{kind}")
                more.setdefault(f"{group} {system.name}", command)
    return more


def modules() -> dict[str, ModuleType]:
    """The module of each system's commands, by the system's name; of ``train`` where there are two."""
    found = {name.partition(" ")[2]: command.options.partition(":")[0] for name, command in commands().items()}
    return {name: import_module(module) for name, module in found.items() if name}


def options_of(command: Command) -> type[Runnable]:
    """The class of a command's options, imported."""
    module, _, name = command.options.partition(":")
    return getattr(import_module(module), name)


def chosen(arguments: Sequence[str]) -> tuple[str, type[Runnable], list[str]] | str:
    """The name of the command, the class of its options and what is left for these; or a text, where that is asked for, or
    where the command line ends before there is a command.

    Raises:
        UsageError: an unknown command, or an option before it.
    """
    known = commands()
    words = [*arguments]
    name, prefix = "", "surefoot"
    while True:
        names = [each[len(name) :].split()[0] for each in known if each.startswith(name)]
        word = words.pop(0) if words else None
        if word is None or word in HELP:
            return _text(name, known)
        if word == "--version" and not name:
            return f"surefoot {__version__}"
        if word.startswith("-"):
            raise UsageError(f"{prefix} needs a {_kind(name)} before {word!r}: {', '.join(dict.fromkeys(names))}")
        if f"{name}{word}" not in known:
            raise UsageError(_unknown(name, word, names))
        name, prefix = f"{name}{word}", f"{prefix} {word}"
        if known[name].options:
            return name, options_of(known[name]), words
        name += " "


def asked_for(arguments: Sequence[str]) -> str | None:
    """The option that asks for a text; ``None`` without one."""
    return next((word for word in arguments if word in (*HELP, "--version")), None)


def summary(described: type) -> str:
    """The first sentence of a class's own docstring."""
    first = inspect.cleandoc(described.__doc__ or "").split("\n\n")[0].replace("``", "")
    return re.split(r"\.(?:$|\s+(?=[A-Z]))", " ".join(first.split()), maxsplit=1)[0]


def _registry_is_loaded() -> bool:
    return "surefoot._core.registry" in sys.modules


def _kind(name: str) -> str:
    return "name" if name else "command"


def _unknown(name: str, word: str, names: Sequence[str]) -> str:
    """What is said of a word that is none of the names; a system may have a reason why it has no such command."""
    group = name.strip()
    other = "train" if group == "certify" else "certify"
    listed = f"{other} {word}" in COMMANDS
    if group == "certify" and (listed or _registry_is_loaded()):
        from .._core.registry import SYSTEMS
        from .._core.system import Certifiable

        for system in SYSTEMS:
            if system.name == word and not isinstance(system, Certifiable):
                return system.refusal(group)
    if group and listed:
        return f"there is no surefoot {group} {word}; there is surefoot {other} {word}"
    known = dict.fromkeys(names)
    what = f"unknown name {word!r} after surefoot {group}" if group else f"unknown command {word!r}"
    return f"{what}; {did_you_mean(word, known, 0.6)}known: {', '.join(known)}"


def _text(name: str, known: Mapping[str, Command]) -> str:
    """The help text of the program, or of a command that takes another name."""
    width = columns()
    if name:
        about, notes = known[name.strip()].summary, (f"surefoot {name}NAME --help lists the options of one.",)
        usage, names = f"usage: surefoot {name}NAME [OPTIONS]", [each for each in known if each.startswith(name)]
    else:
        about, notes = DESCRIPTION, ("surefoot COMMAND --help says more of one.", *NOTES, "Start: surefoot demo")
        usage, names = (
            "usage: surefoot [--system MODULE] COMMAND [OPTIONS]",
            [each for each in known if " " not in each],
        )
    lines = [*textwrap.wrap(usage, width, subsequent_indent="  "), "", *textwrap.wrap(about, width), ""]
    for each in names:
        wrapped = textwrap.wrap(known[each].summary, max(20, width - LEFT - 2))
        left = f"  {each[len(name) :]:<{LEFT}}"
        lines += [f"{left}{wrapped[0]}", *(" " * len(left) + line for line in wrapped[1:])]
    for note in notes:
        lines += ["", *textwrap.wrap(note, width)]
    return "\n".join(lines)
