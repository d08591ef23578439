"""Text from untrusted files as it may be shown: on a terminal, in a page, in a log."""

from __future__ import annotations

LONGEST = 1000
"""Characters of one text that are shown; names of arrays may have a million."""


def visible(text: str, limit: int = LONGEST) -> str:
    """Text on one line, at most ``limit`` long, without characters that move the cursor, colour, reorder or hide what follows.

    Whatever is no printable character of Unicode (control characters, escape sequences, line breaks, marks of writing
    direction, unpaired surrogates) is written as Python writes it: ``\\x1b``, ``\\n``, ``\\u202e``.
    """
    shown = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
