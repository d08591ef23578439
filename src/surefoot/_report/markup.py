"""Small pieces of HTML; every text that enters is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from surefoot_check.text import visible


class Markup(str):
    """Text that is HTML already.

    Example:
        >>> from surefoot.extending import report as sr
        >>> print(sr.paragraph("a < b, ", sr.Markup("<b>b < c</b>")))  # the text is escaped, the markup stays
        <p>a &lt; b,  <b>b < c</b></p>
    """


def text(value: str, limit: int = 2000) -> Markup:
    """Any text, escaped; markup as it is."""
    return value if isinstance(value, Markup) else Markup(escape(visible(value, limit)))


def code(value: str) -> Markup:
    """A name or command as code."""
    return Markup(f"<code>{text(value)}</code>")


def command(*lines: str) -> Markup:
    """Lines for a terminal."""
    said = "\n".join(map(text, lines))
    return Markup(f'<pre class="command">{said}</pre>')


def paragraph(*parts: str, kind: str = "") -> Markup:
    """A paragraph of text and markup.

    Args:
        parts: with a blank between them; text is escaped.
        kind: its class in the style sheet; "" for none.

    Example:
        >>> from surefoot.extending import report as sr
        >>> print(sr.paragraph("every unit is < 1", kind="note"))
        <p class="note">every unit is &lt; 1</p>
    """
    opening = f'<p class="{kind}">' if kind else "<p>"
    return Markup(f"{opening}{' '.join(text(part) for part in parts)}</p>")


def named(name: str, *parts: str) -> Markup:
    """A paragraph that starts with what it is about."""
    return paragraph(Markup(f"<b>{text(name)}:</b>"), *parts)


def identifier(title: str) -> str:
    """A heading as the id of its section."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "section"


def section(title: str, *parts: str) -> Markup:
    """A heading and what follows it; a page has each title once.

    Args:
        title: text, of which the id is made.
        parts: text, which is escaped, and markup; empty ones are left out.

    Example:
        >>> from surefoot.extending import report as sr
        >>> print(sr.section("My units", sr.paragraph("All are used.")))
        <section>
        <h2 id="my-units">My units</h2>
        <p>All are used.</p>
        </section>
    """
    name = identifier(title)
    heading = f'<h2 id="{name}">{text(title)}</h2>'
    return Markup("\n".join(["<section>", heading, *(text(part) for part in parts if part), "</section>"]))


def folded(summary: str, *parts: str) -> Markup:
    """What is shown when asked for."""
    return Markup(f"<details><summary>{text(summary)}</summary>\n{''.join(map(text, parts))}</details>")


def verdict_box(kind: str, badge: str, *parts: str) -> Markup:
    """The first lines of a page: ``kind`` is ``ok``, ``warn`` or ``bad``; the badge says it in words and by its sign."""
    return Markup(
        f'<section class="verdict {kind}" aria-labelledby="verdict"><h2 class="badge" id="verdict">{text(badge)}</h2>\n'
        f"{''.join(map(text, parts))}</section>"
    )


class Cell:
    """A table cell with a class: ``n`` for numbers, ``text``, ``whole`` (one line), ``good``, ``fail``, ``hash``."""

    def __init__(self, content: str, kind: str = "") -> None:
        self.content, self.kind = content, kind

    def under(self, head: str) -> str:
        """As HTML, under the head of its column."""
        kind = f' class="{self.kind}"' if self.kind else ""
        return f'<td{kind} data-label="{text(head)}">{text(self.content)}</td>'


class Label(Cell):
    """A cell that names its row; on a narrow screen it is the heading of a record."""

    def under(self, head: str) -> str:
        """As HTML, under the head of its column."""
        kind = f' class="{self.kind}"' if self.kind else ""
        return f'<th scope="row"{kind} data-label="{text(head)}">{text(self.content)}</th>'


def verdict(holds: bool, yes: str = "holds", no: str = "fails") -> Cell:
    """A cell that says whether something holds, by sign, word and colour."""
    return Cell(f"✓ {yes}", "good") if holds else Cell(f"✗ {no}", "fail")


def numeric(content: str) -> Cell:
    """A right-aligned cell."""
    return Cell(content, "n")


def table(head: Sequence[str], rows: Iterable[Sequence[Cell | str]], caption: str = "") -> Markup:
    """A table that scrolls sideways where it is too wide, and is stacked on a narrow screen.

    Args:
        head: of each column; heads that start with # stand over numbers.
        rows: cells, or their text.
        caption: what it is, for readers who hear it.

    Example:
        >>> from surefoot.extending import report as sr
        >>> table = sr.table(["unit", "#norm"], [["first", "0.5"], ["second", "0.25"]])
        >>> table.count("<tr>"), '<th scope="col" class="n">norm</th>' in table
        (3, True)
    """
    names = [name.removeprefix("#") for name in head]
    kinds = [' class="n"' if name.startswith("#") else "" for name in head]
    heads = "".join(f'<th scope="col"{kind}>{text(name)}</th>' for kind, name in zip(kinds, names, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(
            (cell if isinstance(cell, Cell) else Cell(cell)).under(name) for cell, name in zip(row, names, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    said = f'<caption class="hidden">{text(caption)}</caption>' if caption else ""
    return scrolling(
        f"<table>{said}<thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table>", caption or ", ".join(names)
    )


def scrolling(content: str, name: str) -> Markup:
    """Markup in a box that scrolls sideways, by keyboard too; ``name`` is for readers who hear it."""
    return Markup(f'<div class="wide" role="group" tabindex="0" aria-label="{text(name)}">{content}</div>')


def keys(items: Iterable[tuple[str, str, str]]) -> Markup:
    """Name, value and remark of each key number.

    Args:
        items: (name, value, remark), texts or markup; a remark may be empty.

    Example:
        >>> from surefoot.extending import report as sr
        >>> print(sr.keys([("K", "4.0", "largest eigenvalue of XᵀX")]))
        <dl class="keys"><div><dt>K</dt><dd>4.0<small>largest eigenvalue of XᵀX</small></dd></div></dl>
    """
    blocks = (
        f"<div><dt>{text(name)}</dt><dd>{text(value)}{f'<small>{text(remark)}</small>' if remark else ''}</dd></div>"
        for name, value, remark in items
    )
    return Markup(f'<dl class="keys">{"".join(blocks)}</dl>')


def figure(drawing: str, name: str, caption: str) -> Markup:
    """A drawing with its caption.

    Args:
        drawing: markup, such as an SVG element.
        name: of which the ids are made, "plot-name" and "name-caption".
        caption: text or markup.

    Example:
        >>> from surefoot.extending import report as sr
        >>> drawing = sr.Markup('<svg viewBox="0 0 9 9"><circle r="4" cx="4" cy="4"/></svg>')
        >>> sr.figure(drawing, "disc", "A unit disc.").startswith('<figure id="plot-disc"><svg')
        True
    """
    return Markup(
        f'<figure id="plot-{name}">{drawing}<figcaption><p id="{name}-caption">{text(caption)}</p></figcaption></figure>'
    )
