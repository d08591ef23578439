"""The plots of trained step sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from surefoot._core import charts
from surefoot._step_sizes.compare import Comparison

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

CONSTANT = "GD 1.98/β"


def draw_training(runs: Mapping[str, Run], seed: int) -> Figure:
    """Loss, improvement and first iterations, a row for each run."""
    figure, axes = charts.grid(len(runs), 3, panel=(4.0, 3.3))
    for line, (label, run) in zip(axes, runs.items(), strict=True):
        _panels(line, label, run, seed)
    return charts.finish(
        figure, axes, "Training of learned step sizes (best network so far)", "F - F*, summed over the problems"
    )


def _panels(line: Sequence[Axes], label: str, run: Run, seed: int) -> None:
    reference = gradient_descent(run.setting.size.problems(seed))
    last, trajectories, ratio = line
    last.plot(range(len(run.losses)), run.losses, color=charts.COLOURS[0], label="training", linewidth=1.6)
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
    x = [mark.epochs for mark in run.marks]
    ratio.plot(x, [100.0 * m.at_end for m in run.marks], "o-", color=charts.COLOURS[0], markersize=4, label="at T")
    ratio.plot(
        x, [100.0 * m.mean for m in run.marks], "s-", color=charts.COLOURS[2], markersize=4, label="mean over t ≤ T"
    )
    ratio.axhline(0.0, color="black", linestyle="--", linewidth=1.2)
    ratio.set_xlabel("epoch")
    charts.style(ratio, f"{label}: improvement over gradient descent, %")


def draw_methods(comparisons: Sequence[tuple[Size, Comparison]]) -> Figure:
    """F - F* on fresh problems by iteration, a panel for each size."""
    figure, axes = charts.grid(1, len(comparisons), panel=(3.7, 3.4))
    for ax, (size, comparison) in zip(axes[0], comparisons, strict=True):
        wanted = [GD, "GD 1.5/β", CONSTANT, "FISTA", "CGLS", LEARNED]
        curves = []
        for colour, name in zip(charts.COLOURS, wanted, strict=False):
            fresh = comparison[name].fresh
            assert fresh is not None
            lowest = 1e-8 * float(fresh.curves[:, 0].mean())  # where the rest is still told apart
            curves.append(charts.Curve(name, colour, fresh.curves.clamp(min=lowest).tolist()))
        charts.draw(ax, curves, title=str(size), logarithmic=False)
    return charts.finish(figure, axes, "Fresh problems, mean over them", "F - F*")
