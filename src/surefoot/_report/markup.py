"""Small pieces of HTML; every text that enters is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from surefoot_check.text import visible


class Markup(str):
    """Text that is HTML already."""


def text(value: str, limit: int = 2000) -> Markup:
    """Any text, escaped; markup as it is."""
    return value if isinstance(value, Markup) else Markup(escape(visible(value, limit)))


def code(value: str) -> Markup:
    """A name or command as code."""
    return Markup(f"<code>{text(value)}</code>")


def paragraph(*parts: str, kind: str = "") -> Markup:
    """A paragraph of text and markup."""
    opening = f'<p class="{kind}">' if kind else "<p>"
    return Markup(f"{opening}{' '.join(text(part) for part in parts)}</p>")


def section(title: str, *parts: str) -> Markup:
    """A heading and what follows it."""
    return Markup("\n".join([f"<h2>{text(title)}</h2>", *(text(part) for part in parts if part)]))


def verdict(holds: bool, yes: str = "holds", no: str = "fails") -> Cell:
    """A cell that says whether something holds, by sign, word and colour."""
    return Cell(f"✓ {yes}", "good") if holds else Cell(f"✗ {no}", "fail")


class Cell:
    """A table cell with a class: ``n`` for numbers, ``text``, ``whole`` (one line), ``good``, ``fail``, ``hash``."""

    def __init__(self, content: str, kind: str = "") -> None:
        self.content, self.kind = content, kind

    def __str__(self) -> str:
        opening = f'<td class="{self.kind}">' if self.kind else "<td>"
        return f"{opening}{text(self.content)}</td>"


def numeric(content: str) -> Cell:
    """A right-aligned cell."""
    return Cell(content, "n")


def table(head: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> Markup:
    """A table that scrolls sideways on a narrow screen; heads that start with # stand over numbers."""
    heads = "".join(
        f'<th class="n">{text(name[1:])}</th>' if name.startswith("#") else f"<th>{text(name)}</th>" for name in head
    )
    cells = ([cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows)
    body = "\n".join(f"<tr>{''.join(map(str, row))}</tr>" for row in cells)
    return Markup(f'<div class="wide"><table><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table></div>')


def keys(items: Iterable[tuple[str, str, str]]) -> Markup:
    """Name, value and remark of each key number."""
    blocks = (
        f"<div><dt>{text(name)}</dt><dd>{text(value)}{f'<small>{text(remark)}</small>' if remark else ''}</dd></div>"
        for name, value, remark in items
    )
    return Markup(f'<dl class="keys">{"".join(blocks)}</dl>')


def figure(svg: str, name: str, caption: str) -> Markup:
    """A drawing with its caption; ``svg`` is markup from ``plots``."""
    return Markup(
        f'<figure><div class="wide">{svg}</div><figcaption id="{name}-caption">{text(caption)}</figcaption></figure>'
    )
