"""The plot of gaps by iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot._core import charts

from .linear_resnet_training_runs import GRID, THEOREM, Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_gaps(runs: Runs, title: str) -> Figure:
    """Relative gaps by iteration: the step of the theorem, and the best of the grid."""
    figure, axes = charts.grid(1, 2, panel=(4.6, 3.4))
    labels = list(dict.fromkeys(label for label, _ in runs))
    for ax, step in zip(axes[0], (THEOREM, GRID), strict=True):
        curves = [
            charts.Curve(label, colour, runs[label, step].relative)
            for label, colour in zip(labels, charts.COLOURS, strict=False)
        ]
        heading = "step of Theorem 3.1" if step == THEOREM else "best step of a grid"
        charts.draw(ax, curves, title=heading, logarithmic=True)
    return charts.finish(figure, axes, f"Gradient descent, {title}", "relative gap (L(t)-L*)/(L(0)-L*)")
