"""What a reproduced experiment hands back: tables, figures, and ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surefoot._core.charts import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | int | float | bool | None
"""A plain value; ``None`` where there is none (a limit that was not reached, a mean of nothing)."""

Progress = Callable[[str], None]
"""Told one line of text before each part of an experiment."""


@dataclass(frozen=True)
class Table:
    """Rows of plain values, each as long as ``columns``; no NaN and no infinity."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row has {len(row)} cells for {len(self.columns)} columns")
            if any(isinstance(cell, float) and not math.isfinite(cell) for cell in row):
                raise ValueError(f"table {self.title!r}: {row} has a value that is not finite; use None")

    def column(self, name: str) -> list[Cell]:
        """The cells of one column; ``ValueError`` if there is none of that name."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def records(self) -> list[dict[str, Cell]]:
        """Each row by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Plot(NamedTuple):
    """A PNG's file name, and what draws it (matplotlib is imported by the call)."""

    file: str
    draw: Callable[[], Figure]

    def save(self, directory: Path) -> Path:
        """Write the PNG into ``directory``, by rename."""
        path = directory / self.file
        save(self.draw(), path)
        return path


class Finding(NamedTuple):
    """Ours beside the paper's.

    ``agrees`` is ``None`` where the paper claims nothing, or nothing that a number can decide; ``why`` says what
    decided.
    """

    claim: str
    measured: str
    agrees: bool | None
    why: str


@dataclass(frozen=True)
class Experiment:
    """One reproduced figure or table of a paper.

    Attributes:
        name: ``"two-layer/fig1"`` and the like.
        title: what it shows.
        reference: the paper and the place in it.
        tables: the numbers.
        figures: the plots, drawn on demand.
        findings: the paper's claims and what was measured.
        settings: everything that fixes the numbers, with what the paper leaves open.
        seconds: wall-clock time.
    """

    name: str
    title: str
    reference: str
    tables: tuple[Table, ...]
    figures: tuple[Plot, ...]
    findings: tuple[Finding, ...]
    settings: Mapping[str, Any]
    seconds: float = 0.0

    def table(self, title: str) -> Table:
        """The table with that title; ``KeyError`` if there is none."""
        for table in self.tables:
            if table.title == title:
                return table
        raise KeyError(title)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; figures by file name."""
        return {
            "name": self.name,
            "title": self.title,
            "reference": self.reference,
            "tables": [
                {"title": t.title, "columns": list(t.columns), "rows": [list(row) for row in t.rows]}
                for t in self.tables
            ],
            "figures": [plot.file for plot in self.figures],
            "findings": [finding._asdict() for finding in self.findings],
            "settings": dict(self.settings),
            "seconds": self.seconds,
        }
