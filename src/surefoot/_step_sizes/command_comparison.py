"""The table of methods that stands beside what was trained: on the screen, in its file, and its values for JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot_check.text import counted

from .._cli.screen import Screen
from .._core.io import write_atomic
from .._problems import Problems
from .baselines import names
from .compare import HEAD, Comparison, Learned, Row, compare

TABLE = "comparison.txt"
"""In the directory of the training."""


def show_comparison(
    screen: Screen, directory: Path, problems: Problems, iterations: int, net: Learned, fresh: Problems
) -> Comparison:
    """Compare, after a line that says so as it may take as long as the training; say the table, and write it."""
    screen.heading("Comparison", "gap F - F* after the same number of iterations")
    methods = counted(len(names(problems)) + 1, "method")
    screen.say(
        f"  running {methods} for {counted(iterations, 'iteration')}, on fresh problems and those of the training …"
    )
    comparison = compare(problems, iterations, net, fresh=[fresh])
    for title, rows in comparison.tables():
        screen.heading(title)
        screen.table(HEAD, rows, numeric=range(1, len(HEAD)))
    for note in comparison.notes():
        screen.say(f"  {note}", style="dim")
    write_atomic(directory / TABLE, f"{comparison.table()}\n".encode())
    return comparison


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """Plain values."""
    return {
        "reference": comparison.reference,
        "iterations": comparison.iterations,
        "left_out": list(comparison.left_out),
        "methods": [_row_record(row) for row in comparison.rows],
    }


def _row_record(row: Row) -> dict[str, Any]:
    measures = ("gap", "bound", "improvement", "mean_improvement", "products", "worse")
    return {
        "method": row.method,
        "learned": row.learned,
        **{
            name: {measure: getattr(getattr(row, name), measure) for measure in measures}
            for name in ("training", "fresh")
        },
    }
