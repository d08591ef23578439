"""The help text of a command: how it is called, what it does, and its options, those that are used most at the head."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from .described import Option, options_of

WIDEST, LEAST = 100, 24
LEFT = 24
"""Columns of the options where the text stands beside them."""
NARROW = 64
"""A terminal with fewer columns has the text below."""
FIRST = (
    "data",
    "target",
    "solver",
    "kernel",
    "problem",
    "size",
    "problems",
    "matrices",
    "count",
    "classes",
    "samples",
    "loss",
)
"""The options at the head: what it is about. Those of the system follow, in the order in which it has them."""
LAST = ("theorem", "step", "steps", "max_iterations", "tolerance", "epochs", "out", "resume", "require_certificate")
"""The options at the end of the same group: of what theorem, how far, and where to."""
GROUPS = {
    "reading a table": ("separator", "decimal", "categories", "missing"),
    "seldom needed": (
        *("rcond", "intercept", "merge", "project", "std", "scale", "moved", "scaling", "batch", "delta", "seed"),
        *("engine", "certify_every", "keep_problem", "gradient", "expansion", "sectors", "objective"),
        *("white", "turn_kernel", "power", "tile", "shift", "keep_solutions", "system"),
        *("minutes", "device", "crop", "time_limit"),
    ),
    "what is printed": ("quiet", "json"),
}
"""The other groups, by their titles."""
HELP = Option("-h, --help", "", (), False, False, "Print this text.", "")


def text_of(kind: type, program: str) -> str:
    """The help text of a command as wide as the terminal, at most ``WIDEST`` columns and at least ``LEAST``."""
    width = columns()
    options = options_of(kind)
    lines = [*_usage(options, program, width)]
    for part in inspect.cleandoc(kind.__doc__ or "").split("\n\n"):
        lines += ["", *wrapped(part, width)]
    for title, members in _grouped(options):
        lines += ["", f"{title}:"]
        for option in members:
            lines += _described(option, width)
    return "\n".join(lines)


def columns() -> int:
    """Of help texts."""
    return max(LEAST, min(WIDEST, shutil.get_terminal_size().columns))


def wrapped(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """The lines of a paragraph; words stay whole."""
    return textwrap.wrap(
        " ".join(text.split()),
        max(width, len(indent) + 12),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _usage(options: Sequence[Option], program: str, width: int) -> list[str]:
    places = [option.value for option in options if not option.name]
    needed = [option.shown for option in options if option.name and option.required]
    return wrapped(" ".join(["usage:", program, *places, *needed, "[OPTIONS]"]), width, "  ", "")


def _grouped(options: Sequence[Option]) -> Iterator[tuple[str, list[Option]]]:
    """The titles of the groups, and what is in each; those that are empty are left out."""
    rare = {f"--{name.replace('_', '-')}" for names in GROUPS.values() for name in names}
    places = [option for option in options if not option.name]
    rest = [option for option in options if option.name and option.name not in rare]
    if places:
        yield "arguments", places
    if rest:
        yield "options", _in_order(rest)
    for title, names in GROUPS.items():
        here = {f"--{name.replace('_', '-')}" for name in names}
        members = [option for option in options if option.name in here]
        members += [HELP] if title == [*GROUPS][-1] else []
        if members:
            yield title, members


def _in_order(options: Sequence[Option]) -> list[Option]:
    """Those at the head first, then those of the system, then those at the end."""

    def place(option: Option) -> int:
        name = option.name[2:].replace("-", "_")
        return FIRST.index(name) - len(FIRST) if name in FIRST else LAST.index(name) + 1 if name in LAST else 0

    return sorted(options, key=place)


def _described(option: Option, width: int) -> list[str]:
    about, left = f"{option.about} {option.default}".strip(), f"  {option.shown}"
    if option.choices and len(left) > width:
        about, left = f"One of {', '.join(option.choices)}. {about}", f"  {option.name} NAME".rstrip()
    if width >= NARROW and len(left) + 2 <= LEFT:
        return wrapped(about, width, " " * LEFT, f"{left:<{LEFT}}") or [left]
    return [left, *wrapped(about, width, " " * (LEFT if width >= NARROW else 6))]
