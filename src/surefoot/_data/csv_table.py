"""Tables in text: cells between commas, semicolons, tabs or another separator."""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from .cells import Cells, TableOptions, shown
from .errors import DataError

_NUMBERS = {
    ".": re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII),
    ",": re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?", re.ASCII),
}
"""By the decimal sign."""
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_OTHER_NUMBER = re.compile(
    r"[+-]?(\d+([.,]\d*)?|[.,]\d+|\d{1,3}([ ',._\u00a0\u202f]\d{3})+([.,]\d+)?)([eE][+-]?\d+)?\s?%?", re.ASCII
)
"""A number with another decimal sign, separated thousands, or per cent."""
_LIKELY = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?", re.ASCII)
"""A number between separators, whatever the decimal sign is."""
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}([./])\d{1,2}\2\d{2,4}", re.ASCII)
_LONGEST_LINE = 1 << 25  # a million columns
_MISSING = frozenset({"", "?", "-", "na", "n/a", "nan", "null", "none"})
_SEPARATORS = ("\t", ";", ",")
"""Those that are looked for; the comma comes last, since it may be a decimal sign between the others."""


def read_csv(path: Path, options: TableOptions) -> Cells:
    """Read a table with at least two columns.

    The first row is a header where none of its cells is a number. Blank lines are skipped. A column of text has no number in any
    row.

    Raises:
        DataError: not UTF-8 text, no data rows, one column, ragged rows, two columns of one name, a number beyond float64 or
            written another way, a date, or text in a column of numbers; lines and columns are counted from 1.
    """
    separator = options.character or _separator(path)
    parser = _Parser(path, options.decimal)
    header: tuple[str, ...] | None = None
    width = 0
    for place, line, cells in _records(path, separator):
        if not width:
            width = len(cells)
            if width < 2:
                raise DataError(
                    f"{place}: one column found; expected features and a target, separated by commas, semicolons or tabs; "
                    "separator= takes another character (--separator on the command line)"
                )
            if not any(parser.number.fullmatch(cell) or _LIKELY.fullmatch(cell) for cell in cells):
                header = parser.header = _header(cells, place)
                continue
        if len(cells) != width:
            raise DataError(f"{place}: {len(cells)} cells, but the first row has {width}")
        parser.add(cells, line)
    if not parser.lines:
        raise DataError(f"{path}: {'only a header' if header else 'empty'}; expected at least one row of numbers")
    numbers = np.frombuffer(parser.values, dtype=np.float64).reshape(-1, width).copy()
    texts = {column: parser.texts_of(column, numbers) for column in sorted(parser.texts)}
    return Cells(
        name=path.name,
        source=str(path),
        names=header,
        numbers=numbers,
        texts=texts,
        place=lambda row: f"{path}, line {parser.lines[row]}",
        spelled=parser.spelled,
        hint="" if header else " (a header has no numbers)",
    )


class _Parser:
    """Takes the rows one after the other."""

    def __init__(self, path: Path, decimal: str) -> None:
        self.path = path
        self.decimal = decimal
        self.number = _NUMBERS[decimal]
        self.header: tuple[str, ...] | None = None
        self.values = array("d")
        self.lines = array("q")
        self.texts: dict[int, dict[int, str]] = {}
        """By column and row."""
        self.spelled = ""

    def add(self, cells: list[str], line: int) -> None:
        """Parse a row."""
        row = len(self.lines)
        self.lines.append(line)
        for column, cell in enumerate(cells):
            if self.number.fullmatch(cell):
                value = float(cell.replace(",", "."))
                if math.isinf(value):
                    raise DataError(f"{self._where(row, column)}: {cell} is beyond the range of float64")
                self.values.append(value)
                continue
            self.values.append(math.nan)
            if cell.lower() in _MISSING:
                self.spelled = self.spelled or f" ({cell!r})"
            else:
                self._refuse(cell, row, column)
                self.texts.setdefault(column, {})[row] = cell

    def texts_of(self, column: int, numbers: np.ndarray) -> list[str | None]:
        """The cells of a column that has text.

        Raises:
            DataError: it has numbers too.
        """
        texts = self.texts[column]
        of_numbers = np.flatnonzero(~np.isnan(numbers[:, column]))
        if of_numbers.size:
            row = next(iter(texts))
            other = int(of_numbers[0])
            hint = " (a header has no numbers)" if row == 0 and self.header is None else ""
            raise DataError(
                f"{self._where(row, column)}: {shown(texts[row])} is not a number{hint}, as that of line {self.lines[other]} is; "
                "correct it, or empty the cell where the value is missing"
            )
        return [texts.get(row) for row in range(len(numbers))]

    def _refuse(self, cell: str, row: int, column: int) -> None:
        """Raise ``DataError`` for what is neither a number as it should be written nor a category."""
        if _INFINITY.fullmatch(cell):
            raise DataError(f"{self._where(row, column)}: {cell} is not finite")
        if _DATE.fullmatch(cell):
            raise DataError(
                f"{self._where(row, column)}: {shown(cell)} is a date, not a number; give numbers, such as days since the first"
            )
        if _OTHER_NUMBER.fullmatch(cell):
            other = {".": ",", ",": "."}[self.decimal]
            raise DataError(
                f"{self._where(row, column)}: {shown(cell)} is not a number with the decimal sign {self.decimal!r}, no unit and "
                f"thousands not separated; decimal={other!r} takes the other sign (--decimal on the command line)"
            )

    def _where(self, row: int, column: int) -> str:
        named = f" ({shown(self.header[column])})" if self.header else ""
        return f"{self.path}, line {self.lines[row]}, column {column + 1}{named}"


def _records(path: Path, separator: str) -> Iterator[tuple[str, int, list[str]]]:
    """Where each row stands, for people and by its line, and its cells."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(_lines(file, path), strict=True, delimiter=separator)
            for record in reader:
                if record:
                    yield f"{path}, line {reader.line_num}", reader.line_num, [cell.strip() for cell in record]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save the table as UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV table ({error})") from error


def _separator(path: Path) -> str:
    """The one of tab, semicolon and comma that cuts the first two rows into as many cells, more than one; of several the one that
    leaves most numbers between them in the second row, in that order. The comma where none does.

    Raises:
        DataError: not UTF-8 text, or a line of boundless length.
    """
    if path.suffix.lower() == ".tsv":
        return "\t"
    shares = {}
    for separator in _SEPARATORS:
        try:
            rows = [cells for _, _, cells in islice(_records(path, separator), 2)]
        except DataError as error:
            if isinstance(error.__cause__, csv.Error):
                continue
            raise
        if rows and len(rows[0]) > 1 and len(rows[-1]) == len(rows[0]):
            shares[separator] = sum(bool(_LIKELY.fullmatch(cell)) for cell in rows[-1]) / len(rows[-1])
    return max(shares, key=lambda separator: shares[separator], default=",")


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    """The lines of the file, none of which takes more memory than the longest that a table has."""
    while line := file.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise DataError(f"{path}: a line has more than {_LONGEST_LINE} characters; this is no table of numbers")
        yield line


def _header(cells: list[str], place: str) -> tuple[str, ...]:
    if "" in cells:
        raise DataError(
            f"{place}: column {cells.index('') + 1} has no name in the header; "
            "name it, or delete it if it is a saved row index"
        )
    return tuple(cells)
