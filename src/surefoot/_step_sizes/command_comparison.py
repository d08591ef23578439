"""The table of methods that stands beside what was trained: its file, and its values for JSON."""

from __future__ import annotations

from typing import Any

from .compare import Comparison, Row

TABLE = "comparison.txt"
"""In the directory of the training."""


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
