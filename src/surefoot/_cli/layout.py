"""Text laid out for a terminal of any width: no word and no number is broken; a table that is too wide becomes records.

A line is a sequence of parts, each a text and its style; none ends in blanks. A word that is longer than the line keeps one to
itself, whole: the terminal folds it, and copies it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

Part = tuple[str, str]
Line = list[Part]

WORD = re.compile(r"\s?(\s*\S+(?: × \S+|(?<=\d) (?:%|s|dB)(?!\w))*)")
"""What stays whole: a word, with what follows it in 9.55 % or 2 × 10⁻³, and blanks before it beyond the first."""
READABLE = 20
"""A column of words is not made narrower than this."""
INDENT = "  "


def cells(text: str) -> int:
    """The width of a text on a terminal, where some characters are as wide as two."""
    from rich.cells import cell_len

    return cell_len(text)


def words(text: str) -> list[str]:
    """What stays whole on a line."""
    return WORD.findall(text)


def filled(tokens: Iterable[Part], width: int, first: str = "", hanging: str = "") -> list[Line]:
    """Tokens with blanks between them on lines of at most ``width`` cells; the ``first`` and the others after their indents."""
    lines: list[Line] = []
    line, used = [(first, "")], cells(first)
    empty = True
    for token, style in tokens:
        text = token
        if not empty and used + 1 + cells(text) > width:
            lines.append(line)
            line, used, empty, text = [(hanging, "")], cells(hanging), True, text.lstrip()
        blank = "" if empty else " "
        line.append((blank + text, style))
        used, empty = used + len(blank) + cells(text), False
    return [*lines, line]


def paragraph(text: str, width: int, style: str = "", hanging: str = "") -> list[Line]:
    """The lines of a text; each keeps its indent where it is folded, and text that fits is as it was."""
    found: list[Line] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        fits = cells(line) <= width
        tokens = [line.strip()] if fits else words(line.strip())
        found += filled(((token, style) for token in tokens), width, indent, indent + hanging)
    return found


def pairs(items: Mapping[str, str], width: int) -> list[Line]:
    """Names and values in two columns; a value below its name where there is no room beside it."""
    column = max((cells(name) for name in items), default=0) + 2 * len(INDENT)
    beside = width - column >= READABLE
    found: list[Line] = []
    for name, value in items.items():
        indent = " " * column if beside else 2 * INDENT
        lines = paragraph(value, width - len(indent))
        indented = [[(indent, ""), *line] for line in lines]
        if beside:
            indented[0][0] = (f"{INDENT}{name}".ljust(column - cells(name) + len(name)), "dim")
        else:
            found += paragraph(f"{INDENT}{name}", width, "dim")
        found += indented
    return found


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Part]], numeric: Iterable[int], width: int, rule: str = "─"
) -> list[Line]:
    """A table with the names of its columns above a rule, those with ``numeric`` indices to the right; where there is no room for
    it, a record for each row."""
    right = set(numeric)
    natural, least = [], []
    for index, name in enumerate(columns):
        texts = [row[index][0] for row in rows]
        widest = max((cells(line) for text in texts for line in text.split("\n")), default=0)
        natural.append(max(widest, cells(name)))
        inside = [name] if index in right else [name, *texts]
        longest = max((cells(word.lstrip()) for text in inside for word in words(text)), default=0)
        least.append(max(longest, widest if index in right else min(widest, READABLE)))
    space = "   " if sum(natural) + 3 * (len(columns) - 1) <= width else "  "
    widths = _narrowed(natural, least, width - len(space) * (len(columns) - 1))
    if widths is None:
        return _records(columns, rows, width)
    lines = _row([(name, "dim") for name in columns], widths, right, space)
    lines.append([(rule * (sum(widths) + len(space) * (len(columns) - 1)), "")])
    for row in rows:
        lines += _row(row, widths, right, space)
    return lines


def _narrowed(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Widths that fit, the widest columns made narrower first; ``None`` where none do."""
    widths = list(natural)
    while sum(widths) > room:
        able = [index for index, width in enumerate(widths) if width > least[index]]
        if not able:
            return None
        widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _row(row: Sequence[Part], widths: Sequence[int], right: set[int], space: str) -> list[Line]:
    """The lines of a row, each cell folded in its column."""
    folded = [
        ["".join(part for part, _ in line) for line in paragraph(text, width)]
        for (text, _), width in zip(row, widths, strict=True)
    ]
    lines: list[Line] = []
    for number in range(max(map(len, folded), default=0)):
        line: Line = []
        owed = ""  # blanks are written before what follows them, so that none ends a line
        for index, texts in enumerate(folded):
            text = texts[number] if number < len(texts) else ""
            free = " " * (widths[index] - cells(text))
            before, after = (free, "") if index in right else ("", free)
            if text:
                line += [(owed + before, ""), (text, row[index][1])]
                owed = ""
            owed += (before if not text else "") + after + space
        lines.append(line)
    return lines


def _records(columns: Sequence[str], rows: Sequence[Sequence[Part]], width: int) -> list[Line]:
    """Each row as a title, the cells up to the first that has a named column, and what else there is, named, below it."""
    titled = next((index for index, name in enumerate(columns) if name), 0) + 1
    found = filled([(word, "dim") for word in words(columns[titled - 1])], width)
    for row in rows:
        title = [(f" {text}" if index else text, style) for index, (text, style) in enumerate(row[:titled]) if text]
        tokens = [(word, style) for text, style in title for word in words(f" {text}")]
        found += filled(tokens, width, hanging=2 * INDENT)
        items = _items(columns[titled:], [text for text, _ in row[titled:]])
        short: list[Part] = []
        for number, item in enumerate(items, 1):
            if cells(item) <= 2 * (width - len(INDENT)) // 3:  # several share a line
                short.append((item if number == len(items) else f"{item};", ""))
                continue
            found += filled(short, width, INDENT, INDENT) if short else []
            found += filled(((word, "") for word in words(item)), width, INDENT, 2 * INDENT)
            short = []
        found += filled(short, width, INDENT, INDENT) if short else []
    return found


def _items(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Names with their cells; a cell without a name stands between those beside it, as a relation does."""
    items: list[str] = []
    joined = False
    for name, text in zip(names, texts, strict=True):
        if not text:
            continue
        item = f"{name} {text}".strip()
        if items and (joined or not name):
            items[-1] += f" {item}"
        else:
            items.append(item)
        joined = not name
    return items
