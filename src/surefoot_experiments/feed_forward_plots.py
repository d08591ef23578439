"""Loss, margin and movement along a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot._core import charts

from .feed_forward_runs import Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_training(label: str, history: Sequence[Look]) -> Figure:
    """The loss, the margin σ0²/(2Λr0) where it was looked at, and how far the features have moved, by step."""
    figure, axes = charts.grid(1, 3, panel=(3.6, 3.0))
    loss, margin, movement = axes[0]
    steps = [look.step for look in history]
    loss.plot(steps, [look.loss for look in history], color=charts.COLOURS[0], marker="o", markersize=3)
    seen = [(look.step, look.margin) for look in history if look.margin]
    margin.plot(*zip(*seen, strict=True), color=charts.COLOURS[1], marker="o", markersize=4)
    margin.axhline(1.0, color="black", linewidth=0.8)
    for layer, values in enumerate(zip(*(look.moved for look in history), strict=True), 1):
        colour = charts.COLOURS[2 + layer]
        movement.plot(steps, values, color=colour, marker="o", markersize=3, label=f"hidden layer {layer}")
    for ax, title in (
        (loss, "loss"),
        (margin, "margin (guaranteed above 1)"),
        (movement, "movement of the features |a - a(0)|/|a(0)|"),
    ):
        ax.set_xlabel("step of the optimiser")
        charts.style(ax, title)
    loss.set_yscale("log")
    margin.set_yscale("log")
    movement.set_ylim(bottom=0.0)
    return charts.finish(figure, axes, label, "")
