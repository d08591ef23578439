"""Parse the options of a command, and say in the user's terms what is wrong with them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any, TypeVar

import tyro

from .._core.suggesting import did_you_mean
from .described import Option, options_of
from .errors import Exit, UsageError
from .help import text_of

PARSER = (
    tyro.conf.OmitArgPrefixes,
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.HelptextFromCommentsOff,
)

Options = TypeVar("Options")


def parsed(kind: type[Options], program: str, arguments: Sequence[str], default: Options | None = None) -> Options:
    """The options of a command; those that are not given are of ``default``.

    Raises:
        UsageError: they are not its options, or not their values.
        SystemExit: after a help text.
    """
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(text_of(kind, program))
        raise SystemExit(Exit.YES)
    _refuse_empty(arguments)
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


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Raise ``UsageError`` for an empty value, as of a variable of a shell that is not set: no option has a use for one."""
    for before, typed in zip(["", *arguments], arguments, strict=False):
        name, equals, value = typed.partition("=")
        if not typed or (typed.startswith("--") and equals and not value):
            what = name or (before if before.startswith("--") and "=" not in before else "an argument")
            raise UsageError(f"{what} is empty; give a value, or leave it out")


def explanation(kind: type, arguments: Sequence[str]) -> str:
    """The first slip in the arguments; empty where there is none that is known here."""
    options = options_of(kind)
    named = {option.name: option for option in options if option.name}
    places = [option for option in options if not option.name]
    given, words = list[Option](), [*arguments]
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
