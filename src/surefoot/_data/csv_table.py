"""Comma-separated tables of numbers; the last column is the target."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import torch

from .dataset import Data
from .errors import DataError
from .holdout import holdout

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d{1,15}", re.ASCII)  # up to 15 digits are exact in float64
_LONGEST_LINE = 1 << 25  # a million columns
_MISSING = frozenset({"", "?", "-", "na", "n/a", "nan", "null", "none"})


def load_csv(path: Path, split_seed: int, test_fraction: float, drop_missing: bool = False) -> Data:
    """Read features X and a target Y (N, 1) from a table with at least two columns.

    The first row is a header where none of its cells is a number. A last column written in whole numbers
    throughout serves as class labels too. Blank lines are skipped, and so are rows with a missing value where
    ``drop_missing`` says so; a note counts them.

    Raises:
        DataError: not UTF-8 text, no data rows, one column, ragged rows, or a cell that is missing, not a
            number, or not finite; lines and columns are counted from 1.
    """
    header: list[str] | None = None
    rows: list[list[float]] = []
    whole_targets = True
    first = True
    width = dropped = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(_lines(file, path), strict=True)
            for record in reader:
                cells = [cell.strip() for cell in record]
                if not cells:
                    continue
                place = f"{path}, line {reader.line_num}"
                if first:
                    first = False
                    width = len(cells)
                    if width < 2:
                        raise DataError(
                            f"{place}: one column found; expected features and a target, separated by commas"
                        )
                    if not any(_NUMBER.fullmatch(cell) for cell in cells):
                        header = _header(cells, place)
                        continue
                if len(cells) != width:
                    raise DataError(f"{place}: {len(cells)} cells, but the first row has {width}")
                if drop_missing and any(cell.lower() in _MISSING for cell in cells):
                    dropped += 1
                    continue
                rows.append([_number(cell, column, header, place) for column, cell in enumerate(cells)])
                whole_targets = whole_targets and _INTEGER.fullmatch(cells[-1]) is not None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save the table as UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV table ({error})") from error
    if dropped and not rows:
        raise DataError(f"{path}: each of the {dropped} rows has a missing value; fill them in")
    if not rows:
        raise DataError(f"{path}: {'only a header' if header else 'empty'}; expected at least one row of numbers")
    table = torch.tensor(rows, dtype=torch.float64)
    Y = table[:, -1:].clone()
    return Data(
        X=table[:, :-1].clone(),
        Y=Y,
        labels=Y[:, 0].to(torch.int64) if whole_targets else None,
        split=holdout(len(Y), test_fraction, split_seed),
        name=path.name,
        feature_names=tuple(header[:-1]) if header else None,
        notes=(f"{dropped} of {dropped + len(rows)} rows dropped, which have a missing value",) if dropped else (),
    )


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    """The lines of the file, none of which takes more memory than the longest that a table has."""
    while line := file.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise DataError(f"{path}: a line has more than {_LONGEST_LINE} characters; this is no table of numbers")
        yield line


def _header(cells: list[str], place: str) -> list[str]:
    if "" in cells:
        raise DataError(
            f"{place}: column {cells.index('') + 1} has no name in the header; "
            "name it, or delete it if it is a saved row index"
        )
    return cells


def _number(cell: str, column: int, header: list[str] | None, place: str) -> float:
    named = f" ({header[column]!r})" if header else ""
    where = f"{place}, column {column + 1}{named}"
    if cell.lower() in _MISSING:
        raise DataError(f"{where}: missing value ({cell!r}); remove the row or fill it in")
    if _INFINITY.fullmatch(cell):
        raise DataError(f"{where}: {cell} is not finite")
    if not _NUMBER.fullmatch(cell):
        raise DataError(f"{where}: {cell!r} is not a number; encode categories as numbers (a header has no numbers)")
    value = float(cell)
    if math.isinf(value):
        raise DataError(f"{where}: {cell} is beyond the range of float64")
    return value
