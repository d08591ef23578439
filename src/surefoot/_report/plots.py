"""The three plots of a run: gap, step sizes, margins of the hypotheses."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from surefoot_check.text import visible

from .._core.certificate import Certificate, Condition
from .._core.run import Run
from .._core.status import RunStatus
from .drawing import drawing
from .facts import Facts
from .wording import count, margin, number, power_of_ten, sides

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#1f2328", "#8a9099", "#fefefe"
RUN, LATER, GOOD, BAD = "#0072b2", "#56b4e9", "#0072b3", "#d55e01"
BOUNDS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00")
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 3)))
"""Colours of Okabe and Ito, distinct for colour-blind readers; each bound also has its own dashes, the fifth
other ones than the first, whose colour it has."""
VARIABLES = {
    INK: "--ink", FAINT: "--faint", PAPER: "--paper", RUN: "--blue", LATER: "--sky", GOOD: "--blue", BAD: "--red",
    BOUNDS[0]: "--red", BOUNDS[1]: "--green", BOUNDS[2]: "--pink", BOUNDS[3]: "--orange",
}  # fmt: skip
"""Colours of the plots and the style variables of the page that stand for them, so that they follow light and dark."""
LOWEST, HIGHEST = 1e-300, 1e300
"""Limits of a logarithmic axis, within which it can be laid out."""
LETTER = 0.0115
"""Width of a letter of the words beside a bar, per width of the axes, with room to spare."""
POINTS = 600
"""Points of a drawn bound."""
STYLE = {
    "text.parse_math": False,  # names come from files: a dollar sign is a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "surefoot",
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.titlesize": 12.0,
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
}


def gap(facts: Facts) -> tuple[bytes, str]:
    """Gap against iteration with every guaranteed bound: PNG and SVG."""
    return rendered("gap", lambda: _gap(facts))


def steps(facts: Facts) -> tuple[bytes, str]:
    """Step sizes against iteration with the guaranteed floor step: PNG and SVG."""
    return rendered("steps", lambda: _steps(facts))


def conditions(facts: Facts) -> tuple[bytes, str]:
    """log10 margins of the hypotheses of the run's theorem: PNG and SVG."""
    return rendered("conditions", lambda: _conditions(facts.run.certificate), narrow=False)


def rendered(name: str, draw: Callable[[], Figure], narrow: bool = True) -> tuple[bytes, str]:
    """What ``draw`` draws in the style of the reports: a PNG, and markup for ``figure`` whose ids start with ``name``.

    Where it cannot be laid out for a ``narrow`` screen, it scrolls there.
    """
    import matplotlib

    png = io.BytesIO()
    # ticks out of sight may overflow
    with warnings.catch_warnings(), matplotlib.rc_context(cast(Any, STYLE)), np.errstate(over="ignore"):
        warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks
        figure = draw()
        figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
        return png.getvalue(), drawing(figure, name, VARIABLES, narrow)


def _axes(title: str, height: float, legend_rows: int = 0) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, height + 0.2 * legend_rows), layout="constrained")
    axes: Axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis over these positive values; lines may leave it: a far one does not press the others."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = (min(values), max(values)) if values else (1.0, 1.0)
    room = max(1.0, 10.0 * low / high) ** 0.5 * (high / low) ** 0.06  # at least one power of ten in sight
    axes.set_ylim(max(low / room / 1.1, LOWEST), min(high * room * 1.1, HIGHEST))
    if high / low < 100.0:  # name values between powers of ten, too
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def _tick(value: float) -> str:
    if not 0.0 < value < math.inf:  # a tick out of sight, beyond what a float can hold
        return ""
    exponent = math.log10(value)
    return power_of_ten(round(exponent)) if abs(exponent - round(exponent)) < 1e-9 else number(value, 2)


def iteration_axis(axes: Axes, last: int) -> None:
    """Label and lay out the x axis of a plot over the iterations 0 … ``last``, with whole numbers as ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlabel("iteration")
    axes.set_xlim(-0.015 * max(last, 1), 1.03 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _grid(start: int, end: int) -> list[int]:
    return sorted({round(float(t)) for t in np.linspace(start, end, min(POINTS, max(end - start, 0) + 1))})


def _curve(certificate: Certificate, start: int, end: int) -> tuple[list[int], list[float]]:
    """A certificate's bound from iteration ``start`` of the run on, zeros left out (the axis is logarithmic)."""
    points = [(t, certificate.bound(t - start)) for t in _grid(start, end)]
    return [t for t, _ in points], [value if value > 0.0 else math.nan for _, value in points]


def _reached(target: float, iteration: float) -> str:
    if not iteration < math.inf:
        return f"does not reach {number(target, 3)}"
    return f"{number(target, 3)} by iteration {count(iteration)}"


def _gap(facts: Facts) -> Figure:
    run, bounds = facts.run, facts.bounds
    later = [phase for phase in run.adopted if phase.certificate.holds]
    figure, axes = _axes(facts.words.title, 4.0, 3 + len(bounds) + bool(later))
    last = max(run.iterations, len(run.rows) - 1)
    for index, bound in enumerate(bounds):
        own = run.certificate.theorem in bound.theorems and bool(facts.in_force)
        name = visible(" and ".join(bound.theorems), 90) + (
            " (followed by this run)" if own else " (for its own steps)"
        )
        label = f"bound of {name}: {_reached(facts.target, bound.iterations)}"
        style = {"color": BOUNDS[index % len(BOUNDS)], "linestyle": DASHES[index % len(DASHES)]}
        axes.plot(*_curve(bound.certificate, 0, max(last, 1)), linewidth=1.4, label=label, **style)
    for index, phase in enumerate(later):
        best = min(facts.reaches(candidate) for candidate in later)
        label = f"certified again ({len(later)} ×): {_reached(facts.target, best)}"
        named: dict[str, Any] = {"label": label} if index == 0 else {"gid": label}  # one entry of the legend
        axes.plot(*_curve(phase.certificate, phase.iteration, last), color=LATER, linewidth=1.0, **named)
    values = [value if 0.0 < value < math.inf else math.nan for value in run.gaps]
    marker = "o" if len(values) < 30 else None
    axes.plot(range(len(values)), values, color=RUN, linewidth=2.6, marker=marker, markersize=4, label="this run")
    marked = [t for t in facts.checkpoints if t < len(values)]
    if marked:
        axes.plot(
            marked, [values[t] for t in marked], "o", markersize=7, markerfacecolor=PAPER, markeredgecolor=RUN,
            markeredgewidth=1.6, label="stored checkpoint, open to the checker",
        )  # fmt: skip
    seen = [value for value in values[: _drawn(run)] if value > 0.0] or [
        b.certificate.initial_gap for b in bounds if b.certificate.initial_gap > 0.0
    ]
    seen += _levels(axes, facts, seen or [1.0])
    if run.status is RunStatus.DIVERGED:
        text = "diverged: the last gap is far above this scale"
        axes.text(0.99, 0.05, text, transform=axes.transAxes, ha="right", color=BAD)
    axes.set_ylabel("gap")
    iteration_axis(axes, last)
    logarithmic(axes, seen)
    figure.legend(loc="outside lower left")
    return figure


def _drawn(run: Run) -> int:
    """How many gaps the scale is made for: not the one that diverged."""
    return run.iterations if run.status is RunStatus.DIVERGED else len(run.rows)


def _levels(axes: Axes, facts: Facts, values: Sequence[float]) -> list[float]:
    """The target and the rounding level as horizontal lines, where they do not press the run into a corner."""
    drawn = []
    low, high = min(values), max(values)
    reach = low * min(1e-3, low / high)  # at most as much empty room below the run as the run itself takes
    for level, text in ((facts.target, "target"), (facts.run.resolution, "rounding level")):
        if reach <= level and level > 0.0 and not (text == "target" and level == facts.run.resolution):
            drawn.append(level)
            axes.axhline(level, color=FAINT, linewidth=1.0, linestyle=":")
            axes.annotate(
                text, (0.0, level), xycoords=("axes fraction", "data"), xytext=(6, 3), textcoords="offset points",
                color=INK, fontsize=9,
            )  # fmt: skip
    return drawn


def _steps(facts: Facts) -> Figure:
    run = facts.run
    figure, axes = _axes("Step sizes", 3.2, 2)
    taken = run.step_sizes
    last = max(run.iterations - 1, 1)
    marker = "o" if len(taken) < 30 else None
    axes.plot(
        range(len(taken)),
        taken,
        color=RUN,
        linewidth=1.6,
        marker=marker,
        markersize=4,
        label=f"taken ({visible(run.rule, 60)})",
    )
    floor = [_floor(facts, t) for t in _grid(0, last)]
    known = [step for step in floor if step == step]
    if known:
        label = f"step that the guarantee rests on (the first: {number(known[0])})"
        axes.step(_grid(0, last), floor, where="post", color=BOUNDS[0], linestyle=DASHES[1], linewidth=1.4, label=label)
    if not taken:
        axes.text(0.5, 0.5, "no step was taken", transform=axes.transAxes, ha="center", va="center", fontsize=12)
    axes.set_ylabel("step size η")
    iteration_axis(axes, last)
    logarithmic(axes, [*taken, *known])
    figure.legend(loc="outside lower left")
    return figure


def _floor(facts: Facts, iteration: int) -> float:
    """The floor step of the certificate in force at an iteration of the run; NaN where there is none."""
    phase = [p for p in facts.run.phases if p.iteration <= iteration][-1]
    if not phase.certificate.holds:
        return math.nan
    step = phase.certificate.segment(iteration - phase.iteration).step
    return step if step > 0.0 else math.nan


def _conditions(certificate: Certificate) -> Figure:
    hypotheses = certificate.conditions
    figure, axes = _axes(f"Hypotheses of {visible(certificate.theorem, 60)}", 0.8 + 0.62 * max(len(hypotheses), 1))
    margins = [c.margin for c in hypotheses if c.margin is not None and math.isfinite(c.margin)]
    widest = max([abs(value) for value in margins], default=0.0)
    reach = 1.1 * max(widest, 0.5)
    left = -reach if min(margins, default=0.0) < 0.0 else 0.0
    for row, condition in enumerate(hypotheses):
        _bar(axes, row, condition, left, reach)
    axes.set_ylim(len(hypotheses) - 0.3, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    if margins:
        axes.set_xlim(left, reach)
        axes.axvline(0.0, color=INK, linewidth=1.2)
        axes.set_xlabel("margin in powers of ten (right of 0: holds, left: fails)")
    else:
        axes.set_xlim(0.0, 1.0)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    return figure


def _bar(axes: Axes, row: int, condition: Condition, left: float, right: float) -> None:
    """One hypothesis: its name above, then a bar, or both sides in words where a ratio says nothing.

    The axis goes from ``left`` to ``right``; the words stand in the bar if they fit, else beside it where there is room.
    """
    colour = GOOD if condition.holds else BAD
    verdict = "holds" if condition.holds else "fails"
    place: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "textcoords": "offset points",
        "annotation_clip": False,
    }
    name = f"{'✓' if condition.holds else '✗'} {visible(condition.name, 95)}"
    axes.annotate(name, (0.0, row - 0.32), xytext=(4, 0), va="center", fontsize=9.5, **place)
    if condition.margin is None or not math.isfinite(condition.margin):
        text = f"{verdict}: {sides(condition)}"
        axes.annotate(text, (0.0, row + 0.02), xytext=(18, 0), va="center", color=colour, fontsize=9.5, **place)
        return
    value = condition.margin
    axes.barh(row + 0.08, value, height=0.3, color=colour)
    text = f"{margin(value)}: {sides(condition)}"
    needed = len(text) * LETTER * (right - left)
    inside = abs(value) > needed
    if inside or value < 0.0:  # what does not fit into a bar to the left stands right of 0
        place_at, forward = 0.0, inside == (value >= 0.0)
    else:  # right of the bar; if that is too far, left of 0
        place_at, forward = (value, True) if right - value > needed or left == 0.0 else (0.0, False)
    axes.annotate(
        text, (place_at, row + 0.08), xytext=(6 if forward else -6, 0), textcoords="offset points", va="center",
        ha="left" if forward else "right", color=PAPER if inside else INK, fontsize=8.5,
    )  # fmt: skip
