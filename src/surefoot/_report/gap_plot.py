"""The plot of a run's gap, with its guarantee: every bound up to the iteration at which it reaches the target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot_check.text import chance, visible

from .._core.claims import Kind
from .._core.recertification import Recertification
from .._core.status import RunStatus
from .canvas import (
    BAD,
    BOUNDS,
    DASHES,
    FAINT,
    INK,
    LATER,
    PAPER,
    RUN,
    WIDTH,
    iteration_axis,
    labelled,
    level,
    logarithmic,
)
from .drawing import LEGEND
from .facts import Bound, Facts
from .iterations import Iterations, locator, name
from .wording import MANY, count, iterations, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FARTHEST = 10**15
"""Iterations that the axis reaches at most."""
LONG = 95
"""Letters of a row; more are smaller ones."""
CHECKPOINT = "stored checkpoint, open to the checker"
HALO = 6.0
"""Width of the band along a bound that the run follows."""
ROW = 0.36
"""Height of a row below the plot, in inches."""


@dataclass(frozen=True)
class Promise:
    """What is guaranteed of the gap from some iteration on, as one kind of curve.

    Attributes:
        label: in words, with the iteration at which it reaches the target.
        phases: certificates, each from its iteration on.
        reached: when each reaches the target; ``inf`` if never.
        ends: where each curve ends: at the target, or else where it is as low as the run; ``inf`` if it never is.
        style: colour and dashes.
        own: whether the run follows it.
    """

    label: str
    phases: tuple[Recertification, ...]
    reached: tuple[float, ...]
    ends: tuple[float, ...]
    style: dict[str, Any]
    own: bool


def promises(facts: Facts) -> list[Promise]:
    """The bounds at the initial weights, then those of certificates that were adopted along the run."""
    found = [_at_the_start(facts, bound, index) for index, bound in enumerate(facts.bounds)]
    later = tuple(phase for phase in facts.run.adopted if phase.certificate.claim.bounds)
    if later:
        reached = tuple(facts.reaches(phase) for phase in later)
        times = "once" if len(later) == 1 else f"{len(later)} times"
        label = f"certified again {times} along the run, from iteration {count(later[0].iteration)} on: {_met(min(reached))}"
        ends = tuple(_end(facts, phase, at) for phase, at in zip(later, reached, strict=True))
        found.append(Promise(label, later, reached, ends, {"color": LATER, "linestyle": "-"}, True))
    return found


def _at_the_start(facts: Facts, bound: Bound, index: int) -> Promise:
    run, claim, phase = facts.run, bound.certificate.claim, Recertification(0, bound.certificate)
    own = run.certificate.theorem in bound.theorems and run.certified and run.certificate.holds
    follows = "followed by this run" if own else "not followed" if facts.stepless else "for its own steps"
    sure = bound.certificate.probability
    sure = "" if sure == 1.0 else f", with probability {chance(sure)}"
    falls = f" at most {number(claim.constant, 3, 'up')}/t;" if claim.kind is Kind.SUBLINEAR else ""
    end = _end(facts, phase, bound.iterations)
    reached = _met(bound.iterations)
    if bound.iterations == math.inf and end < math.inf:
        reached = f"the run's last gap by iteration {when(end)}"
    names = visible(" and ".join(bound.theorems), 60)
    style = {"color": BOUNDS[index % len(BOUNDS)], "linestyle": DASHES[index % len(DASHES)]}
    label = f"{names} ({follows}{sure}):{falls} {reached}"
    return Promise(label, (phase,), (bound.iterations,), (end,), style, own)


def _end(facts: Facts, phase: Recertification, reached: float) -> float:
    lowest = min((gap for gap in facts.run.gaps if gap > 0.0), default=facts.target)
    return reached if reached < math.inf else phase.iterations_to(lowest)


def _met(reached: float) -> str:
    return f"target by iteration {when(reached)}" if reached < math.inf else "target not reached"


def when(iteration: float) -> str:
    """An iteration, however late."""
    return count(iteration) if iteration <= MANY else number(iteration, 2, "up")


def ran(facts: Facts) -> int:
    """Iterations on record."""
    return max(facts.run.iterations, len(facts.run.rows) - 1, 0)


def description(facts: Facts) -> str:
    """What is to be seen, in words."""
    run = facts.run
    first, last, target = (
        number(facts.initial_gap, towards="up"),
        number(facts.final_gap),
        number(facts.target, towards="up"),
    )
    said = f"The gap goes from {first} to {last} in {iterations(run.iterations)}."
    bounds = [
        f" Bound of {promise.label}." if len(promise.phases) == 1 else f" {promise.label.capitalize()}."
        for promise in promises(facts)
    ]
    return f"{said} The target is {target}.{''.join(bounds) or ' No bound is drawn.'}"


def draw(facts: Facts) -> Figure:
    """Above: gap and bounds on a logarithmic scale. Below, as the legend: for the run and each bound a row that ends at its
    iteration."""
    from matplotlib.figure import Figure

    found = promises(facts)
    ends = [end for promise in found for end in promise.ends if end < math.inf]
    axis = Iterations(ran(facts), min(max(ends, default=0.0), FARTHEST))
    height = ROW * (len(found) + 1)
    figure = Figure(figsize=(WIDTH, 4.4 + height), layout="constrained")
    axes, rows = figure.subplots(2, 1, sharex=True, height_ratios=(3.6, height))
    axes.set_title(facts.gap_named[1], pad=10.0 if axis.linear else 18.0)
    for promise in found:
        _bound(axes, axis, promise)
    values = _run(axes, facts)
    values += [p.certificate.bound(0) for promise in found for p in promise.phases]
    values += _levels(axes, facts, found, values or [1.0])
    if _diverged(facts):
        text = "diverged: the last gap is far above this scale"
        axes.text(0.99, 0.95, text, transform=axes.transAxes, ha="right", va="top", color=BAD)
    axes.set_ylabel("gap")
    logarithmic(axes, values)
    _rows(rows, facts, axis, found)
    _lay_out(axis, axes, rows)
    return figure


def _lay_out(axis: Iterations, axes: Axes, rows: Axes) -> None:
    """The iteration axis; what is beyond the run is shaded where it is logarithmic."""
    if axis.linear:
        iteration_axis(rows, math.ceil(axis.end))
        return
    from matplotlib.ticker import FuncFormatter, NullLocator

    for panel in (axes, rows):
        panel.axvspan(axis.ran, axis.limits[1], color=FAINT, alpha=0.09, linewidth=0)
    axes.annotate(
        "logarithmic from here on", (axis.ran, 1.0), xycoords=("data", "axes fraction"), xytext=(2, 3),
        textcoords="offset points", color=INK, fontsize=8.5, va="bottom",
    )  # fmt: skip
    rows.set_xscale("function", functions=(axis.place, axis.at))
    rows.set_xlim(*axis.limits)
    rows.xaxis.set_major_locator(locator(axis))
    rows.xaxis.set_minor_locator(NullLocator())
    rows.xaxis.set_major_formatter(FuncFormatter(lambda value, _: name(value)))
    rows.set_xlabel("iteration")


def _diverged(facts: Facts) -> bool:
    return facts.run.status is RunStatus.DIVERGED


def _bound(axes: Axes, axis: Iterations, promise: Promise) -> None:
    """The curves of a promise, each up to its end; what the run follows has a halo, so that the run does not hide it."""
    for index, (phase, end, reached) in enumerate(zip(promise.phases, promise.ends, promise.reached, strict=True)):
        stop = min(end, axis.end)
        later = index + 1 < len(promise.phases)
        followed = min(stop, promise.phases[index + 1].iteration if later else stop) if promise.own else phase.iteration
        drawn = []
        for start, last, effects in ((phase.iteration, followed, HALO), (followed, stop, None)):
            if start < last:
                times = axis.grid(start, last)
                shown = [value if (value := phase.bound(t)) > 0.0 else math.nan for t in times]
                drawn += axes.plot(
                    times, shown, linewidth=1.5, zorder=2.0, path_effects=_halo(effects, promise), **promise.style
                )
        if reached < math.inf:
            colour = promise.style["color"]
            drawn += axes.plot([reached], [phase.bound(int(reached))], "D", markersize=6, color=colour, zorder=4)
        labelled(drawn, promise.label)


def _halo(width: float | None, promise: Promise) -> list[Any]:
    from matplotlib.patheffects import Normal, Stroke

    halo = [] if width is None else [Stroke(linewidth=width, foreground=promise.style["color"], alpha=0.35)]
    return [*halo, Normal()]


def _run(axes: Axes, facts: Facts) -> list[float]:
    """The gaps of the run; the positive ones, but for one that diverged."""
    run = facts.run
    values = [value if 0.0 < value < math.inf else math.nan for value in run.gaps]
    marker = "o" if len(values) < 30 else None
    drawn = axes.plot(range(len(values)), values, color=RUN, linewidth=2.0, marker=marker, markersize=3.5, zorder=3)
    labelled(drawn, "this run")
    marked = [t for t in facts.checkpoints if t < len(values)]
    if marked:
        points = axes.plot(
            marked, [values[t] for t in marked], "o", markersize=6.5, markerfacecolor=PAPER, markeredgecolor=RUN,
            markeredgewidth=1.6, zorder=3.5,
        )  # fmt: skip
        labelled(points, CHECKPOINT)
    shown = values[: run.iterations if _diverged(facts) else len(run.rows)]
    return [value for value in shown if value > 0.0]


def _levels(axes: Axes, facts: Facts, found: list[Promise], values: list[float]) -> list[float]:
    """The target, and the rounding level, as horizontal lines with their names; those in sight."""
    met = any(at < math.inf for promise in found for at in promise.reached)
    low, high = min(values), max(values)
    least = facts.target if met else low * min(1e-3, low / high)  # no more room below the run than it takes itself
    levels = {facts.target: f"target {number(facts.target, 3, 'up')}"}
    if facts.target == facts.run.resolution:
        levels = {facts.target: f"target, at the rounding level {number(facts.target, 3, 'up')}"}
    else:
        levels[facts.run.resolution] = f"rounding level {number(facts.run.resolution, 3, 'up')}"
    drawn = [at for at in levels if at > 0.0 and at >= least]
    for at in drawn:
        level(axes, at, levels[at])
    return drawn


def _rows(axes: Axes, facts: Facts, axis: Iterations, found: list[Promise]) -> None:
    """For the run and each promise a line to its iteration, and above it what it is: the legend of the drawing."""
    axes.set_gid(LEGEND)
    drawn = axes.plot([0, ran(facts)], [0.7, 0.7], color=RUN, linewidth=2.4)
    drawn += axes.plot([ran(facts)], [0.7], "o", color=RUN, markersize=5)
    labelled(drawn, "this run")
    said = f"this run: gap {number(facts.final_gap, 3)} after {iterations(facts.run.iterations)}"
    if facts.checkpoints:
        said += f"  (○ {CHECKPOINT})"
        labelled(axes.plot([], []), CHECKPOINT)
    _say(axes, 0, said)
    for row, promise in enumerate(found, 1):
        y, drawn = row + 0.7, []
        for phase, end, reached in zip(promise.phases, promise.ends, promise.reached, strict=True):
            stop = min(end, axis.end)
            effects = _halo(HALO if promise.own else None, promise)
            drawn += axes.plot([phase.iteration, stop], [y, y], linewidth=1.8, path_effects=effects, **promise.style)
            mark = "D" if reached < math.inf else ">"
            drawn += axes.plot([stop], [y], mark, markersize=6, color=promise.style["color"])
        labelled(drawn, promise.label)
        _say(axes, row, promise.label)
    axes.set_ylim(len(found) + 1.0, -0.15)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")


def _say(axes: Axes, row: int, said: str) -> None:
    text = axes.annotate(
        said, (0.0, row + 0.3), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points",
        va="center", fontsize=9.0 * min(1.0, LONG / len(said)),
    )  # fmt: skip
    text.set_in_layout(False)  # a long name does not make the plot narrower
