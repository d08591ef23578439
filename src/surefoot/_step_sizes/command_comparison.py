"""The table of methods that stands beside what was trained: on the screen, in its file, and its values for JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._cli.screen import Screen
from .._core.io import write_atomic
from .compare import Comparison, Row

TABLE = "comparison.txt"
"""In the directory of the training."""


def show_comparison(screen: Screen, directory: Path, comparison: Comparison) -> None:
    """Say it, and write it into the directory."""
    screen.heading("Comparison", "gap F - F* after the same number of iterations")
    screen.say(comparison.table())
    write_atomic(directory / TABLE, f"{comparison.table()}\n".encode())


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
