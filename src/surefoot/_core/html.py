"""Small tables for notebooks: HTML that needs nothing else and takes the colours of the page it stands in, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

CELL = "padding:.15em .8em .15em 0;text-align:left;vertical-align:top;border:0;background:none;white-space:normal"
GOOD, BAD = "#1a7f6b", "#c4562a"
"""Of the line beside a verdict; words say the same."""


def table(
    title: str, good: bool | None, heads: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()
) -> str:
    """A title, a table with these heads (none where they are empty), and lines below it; all are text, and escaped.

    Args:
        title: above the table.
        good: whether the verdict is good; ``None`` where there is none.
        heads, rows: of the table.
        notes: below it.
    """
    colour = {True: GOOD, False: BAD, None: "#8a9099"}[good]
    head = _row("th", heads)
    body = "".join(_row("td", row) for row in rows)
    table = f'<table style="border-collapse:collapse;margin:.3em 0"><thead>{head}</thead><tbody>{body}</tbody></table>'
    parts = [f'<div style="font-weight:600">{escape(title)}</div>', table if body else ""]
    parts += [f"<div>{escape(note)}</div>" for note in notes]
    return f'<div style="border-left:3px solid {colour};padding-left:.8em">{"".join(parts)}</div>'


def _row(tag: str, cells: Sequence[str]) -> str:
    """One row; none without cells."""
    opening = f'<{tag} style="{CELL}"' + (' scope="col">' if tag == "th" else ">")
    inner = "".join(f"{opening}{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>" if cells else ""
