"""The plot of the steps that a run took, above those that its guarantee rests on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surefoot_check.text import visible

from .canvas import BOUNDS, DASHES, RUN, iteration_axis, labelled, logarithmic, panel
from .facts import Facts
from .iterations import Iterations
from .wording import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(facts: Facts) -> Figure:
    """Step sizes by iteration on a logarithmic scale."""
    run = facts.run
    figure, axes = panel("Step sizes", 3.6)
    taken = run.step_sizes
    last = max(run.iterations - 1, 1)
    marker = "o" if len(taken) < 30 else None
    label = f"taken, by the rule {visible(run.rule, 60)}"
    drawn = axes.plot(range(len(taken)), taken, color=RUN, linewidth=1.6, marker=marker, markersize=4)
    labelled(drawn, label)
    handles = list(drawn)
    times = Iterations(last, last).grid(0, last)
    floor = [_floor(facts, t) for t in times]
    known = [step for step in floor if step == step]
    if known:
        label = f"that the guarantee rests on (the first: {number(known[0], towards='down')})"
        steps = axes.step(times, floor, where="post", color=BOUNDS[0], linestyle=DASHES[1], linewidth=1.6)
        labelled(steps, label)
        handles += steps
    if not taken:
        axes.text(0.5, 0.5, "no step was taken", transform=axes.transAxes, ha="center", va="center", fontsize=12)
    axes.set_ylabel("step size η")
    iteration_axis(axes, last)
    logarithmic(axes, [*taken, *known])
    figure.legend(handles=handles, loc="outside lower left", ncols=2)
    return figure


def description(facts: Facts) -> str:
    """What is to be seen, in words."""
    taken = facts.run.step_sizes
    if not taken:
        return "No step was taken."
    said = f"{len(taken):,} steps between {number(min(taken))} and {number(max(taken))}, by the rule {facts.run.rule}."
    first = _floor(facts, 0)
    return (
        said
        if math.isnan(first)
        else f"{said} The first step that the guarantee rests on is {number(first, towards='down')}."
    )


def _floor(facts: Facts, iteration: int) -> float:
    """The floor step of the certificate in force at an iteration of the run; NaN where there is none."""
    phase = [p for p in facts.run.phases if p.iteration <= iteration][-1]
    if not phase.certificate.holds:
        return math.nan
    step = phase.certificate.segment(iteration - phase.iteration).step
    return step if step > 0.0 else math.nan
