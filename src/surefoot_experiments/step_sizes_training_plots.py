"""The plots of trained step sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from surefoot._core import charts
from surefoot._step_sizes.compare import LOWEST, Comparison

from .step_sizes_runs import (
    GD,
    ITERATIONS,
    Run,
    Size,
    gradient_descent,
)
from .step_sizes_training_runs import LEARNED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = (LEARNED, GD, "GD 1.5/β", "GD 1.98/β", "FISTA", "silver", "OGM", "subgame-perfect", "Chebyshev", "CGLS")
NEAR = 1e-7
"""Down to this part of the start the second row of the methods goes, where most of them are told apart."""
WORST = -100.0
"""Improvements in percent below this are cut off in plots."""


def draw_training(runs: Mapping[str, Run], seed: int) -> Figure:
    """Loss, improvement and first iterations, a row for each run."""
    figure, axes = charts.grid(len(runs), 3, panel=(4.0, 3.3))
    for line, (label, run) in zip(axes, runs.items(), strict=True):
        _panels(line, label, run, seed)
    return charts.finish(
        figure,
        axes,
        "Training of learned step sizes; thin: the network of the epoch, else the best so far",
        "F - F*, summed over the problems",
    )


def draw_course(ax: Axes, run: Run, colour: str, label: str | None = None) -> None:
    """The improvement at T of the network of each epoch, thin, whether or not it is the best so far."""
    reference = gradient_descent(run.setting.size.problems(run.setting.seed))[-1]
    values = [max(WORST, 100.0 * (1.0 - gap / reference)) for gap in run.gaps]
    ax.plot(range(len(values)), values, color=colour, linewidth=0.7, alpha=0.7, label=label)


def _panels(line: Sequence[Axes], label: str, run: Run, seed: int) -> None:
    reference = gradient_descent(run.setting.size.problems(seed))
    last, trajectories, ratio = line
    last.plot(range(len(run.gaps)), run.gaps, color=charts.COLOURS[3], label="network of the epoch", linewidth=0.9)
    best = list(accumulate(run.gaps, min))
    last.plot(range(len(best)), best, color=charts.COLOURS[0], label="best so far", linewidth=1.6)
    last.axhline(reference[-1], color="black", linestyle="--", linewidth=1.2, label="gradient descent, 1/β")
    last.set_yscale("log")
    last.set_xlabel("epoch")
    charts.style(last, f"{label}: objective at T = {ITERATIONS}")
    shown = run.marks[1:][:: max(1, (len(run.marks) - 1) // 4)]
    if shown[-1] is not run.last:
        shown = [*shown, run.last]
    trajectories.plot(range(len(reference)), reference, color="black", linestyle="--", linewidth=1.2)
    for colour, mark in zip(charts.COLOURS[1:], shown, strict=False):
        trajectories.plot(
            range(len(mark.objectives)),
            mark.objectives,
            color=colour,
            linewidth=1.4,
            label=f"epoch {mark.epochs:,}",
        )
    trajectories.set_yscale("log")
    trajectories.set_xlabel("iteration t")
    charts.style(trajectories, f"{label}: objective along the iterations")
    draw_course(ratio, run, charts.COLOURS[3])
    x = [mark.epochs for mark in run.marks]
    ratio.plot(x, [100.0 * m.at_end for m in run.marks], "o-", color=charts.COLOURS[0], markersize=4, label="at T")
    ratio.plot(
        x, [100.0 * m.mean for m in run.marks], "s-", color=charts.COLOURS[2], markersize=4, label="mean over t ≤ T"
    )
    ratio.axhline(0.0, color="black", linestyle="--", linewidth=1.2)
    ratio.set_xlabel("epoch")
    charts.style(ratio, f"{label}: improvement over gradient descent, %")


def draw_methods(comparisons: Sequence[tuple[Size, Comparison]]) -> Figure:
    """F - F* on fresh problems by iteration, a column for each size: all of it, and its upper part."""
    figure, axes = charts.grid(2, len(comparisons), panel=(3.7, 3.1))
    for column, (size, comparison) in enumerate(comparisons):
        curves, start = [], 0.0
        for colour, name in zip(charts.COLOURS, METHODS, strict=True):
            if name not in comparison:
                continue
            fresh = comparison[name].fresh
            assert fresh is not None
            start = float(fresh.curves[:, 0].mean())
            curves.append(charts.Curve(name, colour, fresh.curves.clamp(min=LOWEST * start).tolist()))
        for line, lowest in zip(axes, (None, NEAR * start), strict=True):
            charts.draw(line[column], curves, title=str(size), logarithmic=False)
            if lowest is not None:
                line[column].set_ylim(lowest, None)
    title = f"Fresh problems, mean over them; schedules are those for T = {comparisons[0][1].iterations}"
    return charts.finish(figure, axes, title, "F - F*")
