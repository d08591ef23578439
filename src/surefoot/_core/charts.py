"""Charts of curves: grids of panels with a mean and a band, one legend below all of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .io import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B5A2B", "#7F3FBF", "#7F7F7F")
"""Okabe and Ito's palette, safe for colour-blind readers, in a readable order, and three more."""

WIDE = 12.0
"""From this ratio of the longest to the shortest curve on, iterations are on a logarithmic axis."""


class Curve(NamedTuple):
    """Positive values by iteration, one sequence a repeat; a bound has a marker, and is dashed."""

    label: str
    colour: str
    repeats: Sequence[Sequence[float]]
    marker: str = ""


def mean_and_deviation(repeats: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of log10 by iteration, as far as the shortest repeat goes."""
    length = min(len(values) for values in repeats)
    logs = np.log10(np.array([values[:length] for values in repeats], dtype=float))
    return logs.mean(0), logs.std(0)


def grid(rows: int, columns: int, panel: tuple[float, float] = (3.7, 2.9)) -> tuple[Figure, list[list[Axes]]]:
    """A figure without pyplot, with room for the legend that ``finish`` puts below the panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(line) for line in axes]


def draw(
    ax: Axes, curves: Sequence[Curve], *, title: str, floor: float | None = None, logarithmic: bool | None = None
) -> None:
    """Curves over iterations on a logarithmic scale; solid mean of log10 with a band of one standard deviation.

    A bound is cut where it falls below ``floor``; iterations are ``logarithmic`` by default where lengths differ much.
    """
    data = [mean_and_deviation(curve.repeats) for curve in curves]
    if floor is not None:
        data = [_cut(mean, deviation, np.log10(floor)) for mean, deviation in data]
    lengths = [len(mean) for mean, _ in data]
    if logarithmic is None:
        logarithmic = max(lengths) > WIDE * min(lengths)
    runs = sum(not curve.marker for curve in curves)
    thickness = iter(np.linspace(3.0, 1.2, max(runs, 2)))  # later curves are thinner, so that equal ones all show
    for curve, (mean, deviation) in zip(curves, data, strict=True):
        x = np.arange(len(mean)) + (1 if logarithmic else 0)
        if curve.marker:
            ax.plot(
                x,
                10.0**mean,
                "--",
                color=curve.colour,
                label=curve.label,
                linewidth=1.0,
                marker=curve.marker,
                markersize=4,
                markevery=_marks(len(mean)),
            )
        else:
            ax.plot(x, 10.0**mean, color=curve.colour, label=curve.label, linewidth=float(next(thickness)))
        ax.fill_between(
            x,
            10.0 ** (mean - deviation),
            10.0 ** (mean + deviation),
            color=curve.colour,
            alpha=0.1 if curve.marker else 0.22,
            linewidth=0,
        )
    ax.set_yscale("log")
    if logarithmic:
        ax.set_xscale("log")
    ax.set_xlabel("iteration + 1 (log scale)" if logarithmic else "iteration")
    style(ax, title)


def _cut(mean: np.ndarray, deviation: np.ndarray, lowest: float) -> tuple[np.ndarray, np.ndarray]:
    below = np.flatnonzero(mean < lowest)
    end = int(below[0]) + 1 if len(below) else len(mean)
    return mean[:end], deviation[:end]


def _marks(length: int) -> list[int]:
    """About nine marks, evenly spread on a logarithmic axis for long curves and on a linear one for short curves."""
    if length > 300:
        return sorted({int(i) for i in np.geomspace(1, length, 12)} - {length})
    return list(range(0, length, max(1, length // 9)))


def style(ax: Axes, title: str) -> None:
    """Title, light grid, no frame at the top and right."""
    ax.set_title(title, fontsize=9)
    ax.tick_params(labelsize=8)
    ax.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.label.set_fontsize(8)


def finish(figure: Figure, axes: list[list[Axes]], title: str, ylabel: str) -> Figure:
    """One y label a row, one title, one legend for all panels below them."""
    for line in axes:
        line[0].set_ylabel(ylabel, fontsize=8)
    handles: dict[str, Any] = {}
    for line in axes:
        for ax in line:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(len(handles), 5 if len(axes[0]) > 1 else 2),
        fontsize=8,
        frameon=False,
    )
    figure.suptitle(title, fontsize=10)
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write the figure as a PNG, atomically."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_atomic(Path(path), buffer.getvalue())
