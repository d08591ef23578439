"""The options of a command, read off the dataclass that they are of: what is typed, what it takes, and what is said of it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from .._core.suggesting import did_you_mean

POSITIONAL = get_args(tyro.conf.Positional[str])[1]
NUMBERS: dict[type, tuple[Callable[[str], object], str]] = {int: (int, "a whole number"), float: (float, "a number")}


@dataclass(frozen=True)
class Option:
    """An option, or an argument without a name.

    Attributes:
        name: as it is typed; empty for an argument without one.
        value: what stands for its value in help texts; empty for a switch.
        takes: the types of its value; empty for a switch.
        required: whether it must be given.
        many: whether it takes all that follows.
        about: what it is for.
        default: what holds without it, in brackets; empty where nothing needs to be said.
    """

    name: str
    value: str
    takes: tuple[Any, ...]
    required: bool
    many: bool
    about: str
    default: str

    @property
    def shown(self) -> str:
        """With what stands for its value."""
        return f"{self.name} {self.value}".strip()

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that there are; empty where there are others."""
        return tuple(each for kind in self.takes if get_origin(kind) is Literal for each in get_args(kind))

    def refusal(self, value: str) -> str:
        """What is wrong with a value; empty if nothing is."""
        choices = self.choices
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


def options_of(kind: type) -> list[Option]:
    """The options of a command, in the order of its fields."""
    hints, documented = get_type_hints(kind, include_extras=True), _documented(kind)
    return [_option(field, hints[field.name], documented.get(field.name, "")) for field in fields(kind)]


def _option(field: Field[Any], hint: Any, documented: str) -> Option:
    told = getattr(hint, "__metadata__", ())
    bare = get_args(hint)[0] if told else hint
    takes = get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)
    choices = [each for kind in takes if get_origin(kind) is Literal for each in get_args(kind)]
    place, name = POSITIONAL in told, f"--{field.name.replace('_', '-')}"
    required = field.default is MISSING and field.default_factory is MISSING
    return Option(
        "" if place else name,
        "" if bare is bool else _told(told, "metavar") or "|".join(choices) or "VALUE",
        () if bare is bool else takes,
        required,
        place and get_origin(bare) is tuple,
        " ".join((_told(told, "help") or documented).split()),
        _default(field.default, required, _told(told, "help_behavior_hint")),
    )


def _told(told: tuple[Any, ...], what: str) -> Any:
    """Of the annotations, that of this name; ``None`` without one."""
    return next((found for each in told if (found := getattr(each, what, None)) is not None), None)


def _default(value: object, required: bool, hint: str | None) -> str:
    if hint is not None:
        return hint
    if required:
        return "(required)"
    if value is None or value is False or value == ():
        return ""
    return f"(default: {value:g})" if isinstance(value, float) else f"(default: {value})"


def _documented(kind: type) -> dict[str, str]:
    """The texts below the fields of a class and of those that it is made of."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if "__dataclass_fields__" not in vars(each):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                said = text.value if isinstance(text, ast.Expr) else None
                of_field = said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else ""
                found[field.target.id] = of_field
    return found
