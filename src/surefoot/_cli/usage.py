"""Parse the options of a command, and say in the user's terms what is wrong with them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from .._core.suggesting import did_you_mean
from .errors import Exit, UsageError

PARSER = (
    tyro.conf.OmitArgPrefixes,
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.HelptextFromCommentsOff,
)
POSITIONAL = get_args(tyro.conf.Positional[str])[1]
NUMBERS: dict[type, tuple[Callable[[str], object], str]] = {int: (int, "a whole number"), float: (float, "a number")}

Options = TypeVar("Options")


def parsed(kind: type[Options], program: str, arguments: Sequence[str], default: Options | None = None) -> Options:
    """The options of a command; those that are not given are of ``default``.

    Raises:
        UsageError: they are not its options, or not their values.
        SystemExit: after a help text.
    """
    parse: Any = tyro.cli
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return parse(kind, prog=program, args=[*arguments], default=default, config=PARSER)
    except SystemExit as stop:
        problem = explanation(kind, arguments) if stop.code == Exit.USAGE else ""
        if problem:
            end = " " if problem.endswith("?") else "; "
            raise UsageError(f"{problem}{end}`{program} --help` lists all options") from None
        sys.stderr.write(said.getvalue())
        raise


@dataclass(frozen=True)
class _Option:
    """An option, or an argument without a name.

    Attributes:
        name: as it is typed; empty for an argument without one.
        shown: with what stands for its value in help texts.
        takes: the types of its value; empty for a switch.
        required: whether it must be given.
        many: whether it takes all that follows.
    """

    name: str
    shown: str
    takes: tuple[Any, ...]
    required: bool
    many: bool

    def refusal(self, value: str) -> str:
        """What is wrong with a value; empty if nothing is."""
        choices = tuple(each for kind in self.takes if get_origin(kind) is Literal for each in get_args(kind))
        if value in choices or (NoneType in self.takes and value == "None"):
            return ""
        if choices:
            near = did_you_mean(value, choices)
            return f"{self.name} is {value!r}; {near}expected {', '.join(choices[:-1])} or {choices[-1]}"
        for convert, expected in (NUMBERS[kind] for kind in self.takes if kind in NUMBERS):
            try:
                convert(value)
            except ValueError:
                return f"{self.name} is {value!r}; expected {expected}"
        return ""


def explanation(kind: type, arguments: Sequence[str]) -> str:
    """The first slip in the arguments; empty where there is none that is known here."""
    options = _options_of(kind)
    named = {option.name: option for option in options if option.name}
    places = [option for option in options if not option.name]
    given, words = list[_Option](), [*arguments]
    while words:
        typed, equals, value = words.pop(0).partition("=")
        option = named.get(f"--{typed[2:].replace('_', '-')}")
        if not re.match("-[^0-9.]", typed):
            left = [place for place in places if place.many or place not in given]
            if not left:
                return f"{typed + equals + value!r} is one argument too many"
            option = left[0]
        elif option is None:
            return f"unknown option {typed!r}; {did_you_mean(typed, named, 0.75)}".rstrip("; ")
        elif not option.takes:
            if equals:
                return f"{option.name} is a switch and takes no value"
        else:
            if not equals and (not words or words[0].startswith("--")):
                return f"{option.name} lacks its value: {option.shown}"
            if problem := option.refusal(value if equals else words.pop(0)):
                return problem
        given.append(option)
    missing = [option.shown for option in options if option.required and option not in given]
    return f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing" if missing else ""


def _options_of(kind: type) -> list[_Option]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        _option(field.name, hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    ]


def _option(field: str, hint: Any, required: bool) -> _Option:
    told = getattr(hint, "__metadata__", ())
    bare = get_args(hint)[0] if told else hint
    many = get_origin(bare) is tuple
    takes = get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)
    metavar = next((each.metavar for each in told if getattr(each, "metavar", None)), "VALUE")
    place, name = POSITIONAL in told, f"--{field.replace('_', '-')}"
    return _Option(
        "" if place else name,
        metavar if place else f"{name} {metavar}",
        () if bare is bool else takes,
        required,
        many and place,
    )
