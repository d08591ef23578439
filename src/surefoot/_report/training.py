"""The section on the training before a run, which ``sf.watch`` has seen: when a fit was guaranteed, and how far the features
moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._core.near_a_fit.history import History, Seen
from .canvas import BOUNDS, DASHES, INK, RUN, iteration_axis, level, logarithmic, rendered
from .facts import Facts
from .markup import Markup, figure, keys, paragraph, section
from .wording import count, number
from .write import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HARDLY = 1e-2
"""Features that moved by less than this part of their norm are as good as fixed."""


Item = tuple[str, str, str]


def training(facts: Facts) -> Part | None:
    """The section with its plot, where ``sf.watch`` left its history in the run's directory."""
    history = history_of(facts)
    if history is None:
        return None
    png, svg = rendered(
        "training",
        lambda: drawn(history.looks),
        "Loss, margin and movement of the features",
        _sentence(history.certified or history.looks[-1]),
    )
    return Part(_training(facts, history, svg), {"training": png})


def shares(moved: Sequence[float]) -> str:
    """How far features moved, by hidden layer, for people."""
    return ", ".join(number(share, 2) for share in moved) or "none"


def history_of(facts: Facts) -> History | None:
    """What was seen of the training; ``None`` where there is nothing, or it is of another problem."""
    if facts.run.directory is None:
        return None
    history = History.read(facts.run.directory)
    if history is None or not history.looks:
        return None
    arrays = facts.run.certificate.arrays
    same = all(arrays.get(name) == hashed for name, hashed in history.problem.items())
    return history if same else None


def _training(facts: Facts, history: History, drawing: str) -> Markup:
    first, last = history.certified, history.looks[-1]
    point = facts.words.points[history.theorem]
    items: list[Item] = [
        (
            "First guarantee",
            "none" if first is None else f"iteration {count(first.iteration)}",
            f"of {point}; {count(len(history.looks))} looks, the last at iteration {count(last.iteration)}",
        ),
        ("Loss", number(last.loss), "at the last look, of all rows"),
        ("Margin", number(last.margin), "at the last look; more than 1 is a guarantee"),
        (
            "Movement of the features",
            shares(last.moved),
            f"of their norm{', by hidden layer' if len(last.moved) > 1 else ''}, from the start of the training",
        ),
    ]
    caption = (
        "The training before this run, as sf.watch saw it: the loss; the margin, which a guarantee needs above 1 (looks with the "
        "margin 0 are left out); and how far the features of each hidden layer have moved, relative to their norm. It was not "
        "checked, apart from the weights that the run starts from."
    )
    return section("Training", paragraph(_sentence(first or last)), keys(items), figure(drawing, "training", caption))


def _sentence(seen: Seen) -> str:
    """What the movement means."""
    when = "When the guarantee was found" if seen.holds else "At the last look"
    if not seen.moved:
        return f"{when}, no features could be measured: there is no hidden layer, or numbers were not finite."
    said = f"{when}, the features had moved by {shares(seen.moved)} of their norm"
    if max(seen.moved) >= HARDLY:
        return f"{said}: the features were trained, too, and the guarantee is about the trained ones."
    return f"{said}: what was trained is in effect a linear readout of the initial features."


def drawn(looks: Sequence[Seen]) -> Figure:
    """Loss, margin and movement of the features, one above the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 7.2), layout="constrained")
    above, middle, below = figure.subplots(3, 1)
    times = [seen.iteration for seen in looks]
    first = next((seen.iteration for seen in looks if seen.holds), None)
    marker = "o" if len(looks) < 30 else None
    for axes, name, label, values in (
        (above, "Loss of the training", "loss", [seen.loss for seen in looks]),
        (middle, "Margin: how far from a guarantee", "margin", [seen.margin for seen in looks]),
    ):
        shown = [value if 0.0 < value < math.inf else math.nan for value in values]
        axes.set_title(name)
        axes.set_ylabel(label)
        axes.plot(times, shown, color=RUN, linewidth=2.0, marker=marker, markersize=4)
        seen = [value for value in shown if value > 0.0]
        logarithmic(axes, [*seen, 1.0] if axes is middle else seen)
        if not seen:
            text = "0 at every look" if axes is middle else "not finite at any look"
            axes.text(0.5, 0.3, text, transform=axes.transAxes, ha="center")
    level(middle, 1.0, "above 1: a guarantee")
    below.set_title("Movement of the features")
    below.set_ylabel("‖a − a₀‖ / ‖a₀‖")
    for layer in range(max(len(seen.moved) for seen in looks)):
        moved = [seen.moved[layer] if layer < len(seen.moved) else math.nan for seen in looks]
        style = {"color": (RUN, *BOUNDS)[layer % 5], "linestyle": DASHES[layer % 4]}
        below.plot(times, moved, linewidth=1.8, label=f"hidden layer {layer + 1}", marker=marker, markersize=4, **style)
    if len(below.lines) > 1:
        below.legend(loc="best")
    below.set_ylim(0.0, 1.1 * max((share for seen in looks for share in seen.moved), default=0.0) or 1.0)
    for axes in (above, middle, below):
        _guaranteed_from(axes, first, axes is above)
        iteration_axis(axes, times[-1])
        axes.set_xlabel("step of the training" if axes is below else "")
    return figure


def _guaranteed_from(axes: Axes, first: int | None, named: bool) -> None:
    """A vertical line at the first guarantee."""
    if first is None:
        return
    axes.axvline(first, color=BOUNDS[1], linewidth=1.4, linestyle=DASHES[1])
    if named:
        axes.annotate(
            "guaranteed from here on", (first, 1.0), xycoords=("data", "axes fraction"), xytext=(-5, -12),
            textcoords="offset points", ha="right", color=INK, fontsize=9,
        )  # fmt: skip
