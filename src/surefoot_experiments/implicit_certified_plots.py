"""The plots of certificates and of the trade-off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot._core import charts

from .implicit_certified_runs import LABELS, RATIO
from .result import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_certificates(table: Table) -> Figure:
    """Guaranteed iterations by size, a line for each theorem."""
    figure, axes = charts.grid(1, 1, panel=(5.2, 3.6))
    ax = axes[0][0]
    markers = {**dict(zip(LABELS.values(), ("o-", "s-", "^-"), strict=True)), "needed": "x"}
    for (column, style), colour in zip(markers.items(), (*charts.COLOURS[:3], "k"), strict=True):
        values = [(place, value) for place, value in enumerate(table.column(column)) if isinstance(value, int | float)]
        ax.plot(*zip(*values, strict=True), style, color=colour, label=column, linewidth=1.4)
    ax.set_yscale("log")
    ax.set_xticks(range(len(table.rows)), [f"{row[0]}\n{row[1]}" for row in table.rows])
    ax.set_xlabel("N (above) and m (below)")
    charts.style(ax, f"iterations to a loss ratio of {RATIO:g}")
    return charts.finish(figure, axes, "Guaranteed iterations, medians", "iterations")


def draw_tradeoff(table: Table, N: int, m: int) -> Figure:
    """Guaranteed and executed iterations, and feature movement, by scale."""
    figure, axes = charts.grid(1, 2, panel=(4.4, 3.4))
    records = table.records()
    least = min(float(r["beta"] or 0) for r in records if r["certified"])

    def points(column: str, certified: bool | None = None) -> tuple[list[float], list[float]]:
        kept = [r for r in records if r[column] is not None and (certified is None or r["certified"] is certified)]
        return [float(r["beta"] or 0) for r in kept], [float(r[column] or 0) for r in kept]

    left, right = axes[0]
    left.plot(*points("guaranteed"), "o-", color=charts.COLOURS[0], markersize=4, label="guaranteed")
    left.plot(*points("needed"), "x-", color=charts.COLOURS[1], markersize=5, linewidth=1.0, label="needed by the run")
    left.set_ylabel("iterations", fontsize=8)
    right.plot(
        *points("feature movement", True), "o", color=charts.COLOURS[2], markersize=4, label="movement, certified"
    )
    right.plot(
        *points("feature movement", False), "o", color=charts.COLOURS[2], mfc="white", label="movement, not certified"
    )
    for ax, title in (
        (left, f"iterations to a loss ratio of {RATIO:g}"),
        (right, "relative feature movement |Z-Z0|/|Z0|"),
    ):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.axvline(least, color="#7F7F7F", linestyle=":", label="least certified beta")
        ax.set_xlabel("beta")
        ax.tick_params(which="minor", labelsize=7)
        charts.style(ax, title)
    return charts.finish(
        figure, axes, f"Scale of the initial weights, N = {N}, m = {m}, gamma beta fixed", "iterations"
    )
