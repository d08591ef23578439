"""Text as it may be shown: of untrusted files on a terminal, in a page, in a log, and how many there are of something."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context

LONGEST = 1000
"""Characters of one text that are shown; names of arrays may have a million."""
MANY = 10**18
"""Numbers beyond it are said in three digits."""


def visible(text: str, limit: int = LONGEST) -> str:
    """Text on one line, at most ``limit`` long, without characters that move the cursor, colour, reorder or hide what follows.

    Whatever is no printable character of Unicode (control characters, escape sequences, line breaks, marks of writing
    direction, unpaired surrogates) is written as Python writes it: ``\\x1b``, ``\\n``, ``\\u202e``.
    """
    shown = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


def chance(probability: float) -> str:
    """A probability in 6 digits, rounded down; near 1 it is said by what is missing, rounded up: "0.99", "1 - 1e-09"."""
    if probability == 1.0 or f"{probability:g}" != "1":
        return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(float(probability)))):g}"
    missing = Context(prec=3, rounding=ROUND_CEILING).create_decimal(f"{1.0 - probability:.6g}")
    return f"1 - {float(missing):.3g}"


def counted(number: float, noun: str, several: str | None = None) -> str:
    """So many of them: "1 segment", "2 segments", "1e+30 segments"; ``several`` where an s does not make the plural."""
    many = f"{number:,}" if number < MANY else f"{number:.3g}"
    return f"{many} {noun if number == 1 else several or f'{noun}s'}"
