"""The part of a report that is about feed-forward networks alone: the training before the run, how far weights and features
have moved, and what the guarantee hangs on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from surefoot_check.feed_forward.enclosures import Measured
from surefoot_check.feed_forward.quantities import measured

from .._report.facts import Facts
from .._report.markup import Markup, figure, keys, paragraph, section
from .._report.plots import BOUNDS, DASHES, FAINT, INK, RUN, iteration_axis, logarithmic, rendered
from .._report.wording import count, number
from .._report.write import Part
from .engine import distance
from .features import features, moved
from .history import History, Seen
from .loss import NetworkLoss
from .planner import bends
from .system import FeedForwardSystem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HARDLY = 1e-2
"""Features that moved by less than this part of their norm are as good as fixed."""
LARGEST = 1000
"""Outputs on all rows up to which all singular values of the Jacobian are computed."""
SMALLEST = 5
"""How many of them are shown."""

Item = tuple[str, str, str]


def part(facts: Facts) -> Part:
    """The sections on the training and on the weights; the first where ``sf.watch`` left its history in the directory, with a
    plot."""
    history = _history(facts)
    if history is None:
        return Part(_place(facts), {})
    png, svg = rendered("training", lambda: _figure(history.looks))
    return Part(Markup(f"{_training(facts, history, svg)}\n{_place(facts)}"), {"training": png})


def _history(facts: Facts) -> History | None:
    """What was seen of the training; ``None`` where there is nothing, or it is of another problem."""
    if facts.run.directory is None:
        return None
    history = History.read(facts.run.directory)
    if history is None or not history.looks:
        return None
    arrays = facts.run.certificate.arrays
    same = all(arrays.get(name) == hashed for name, hashed in history.problem.items())
    return history if same else None


# -- the training ------------------------------------------------------------------------------------------------------


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
            _shares(last.moved),
            "of their norm, by hidden layer, from the start of the training",
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
    said = f"{when}, the features had moved by {_shares(seen.moved)} of their norm"
    if max(seen.moved) >= HARDLY:
        return f"{said}: the features were trained, too, and the guarantee is about the trained ones."
    return f"{said}: what was trained is in effect a linear readout of the initial features."


def _shares(shares: Sequence[float]) -> str:
    return ", ".join(number(share, 2) for share in shares) or "none"


def _figure(looks: Sequence[Seen]) -> Figure:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7.4, 7.2), layout="constrained")
    above, middle, below = drawn.subplots(3, 1)
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
    middle.axhline(1.0, color=FAINT, linestyle=":", linewidth=1.2)
    below.set_title("Movement of the features")
    below.set_ylabel("‖a − a₀‖ / ‖a₀‖")
    for layer in range(max(len(seen.moved) for seen in looks)):
        shares = [seen.moved[layer] if layer < len(seen.moved) else math.nan for seen in looks]
        style = {"color": (RUN, *BOUNDS)[layer % 5], "linestyle": DASHES[layer % 4]}
        below.plot(
            times, shares, linewidth=1.8, label=f"hidden layer {layer + 1}", marker=marker, markersize=4, **style
        )
    if below.lines:
        below.legend(loc="best")
    below.set_ylim(0.0, 1.1 * max((share for seen in looks for share in seen.moved), default=0.0) or 1.0)
    for axes in (above, middle, below):
        _guaranteed_from(axes, first, axes is above)
        iteration_axis(axes, times[-1])
        axes.set_xlabel("step of the training" if axes is below else "")
    return drawn


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


# -- the weights -------------------------------------------------------------------------------------------------------


def _place(facts: Facts) -> Markup:
    """How far weights and features go, and what the guarantee hangs on."""
    run, q = facts.run, facts.run.certificate.quantities
    size = distance(run.initial, {name: torch.zeros_like(W) for name, W in run.initial.items()})
    items: list[Item] = []
    if "radius" in q and run.certificate.holds and size > 0.0:
        point = facts.words.points[run.certificate.theorem]
        items.append(
            ("Radius", number(q["radius"] / size, 3), f"of the norm of the weights, within which {point} lies")
        )
    if run.problem:
        items += _of_problem(facts)
    return section("Weights and features", keys(items)) if items else Markup("")


def _of_problem(facts: Facts) -> list[Item]:
    """What needs the arrays of the problem."""
    run, system = facts.run, FeedForwardSystem()
    net, loss = system.rebuild(run.certificate.problem["kind"], run.problem, run.initial)
    before = features(net, loss.X)
    system.write(net, loss, run.final)
    shares = moved(before, features(net, loss.X))
    items: list[Item] = []
    if shares:
        items.append(
            ("Movement of the features", _shares(shares), "during the run, relative to their norm, by hidden layer")
        )
    if isinstance(loss, NetworkLoss):
        at = measured(*system.stored_at(loss, run.initial))
        assert isinstance(at, Measured)
        small = loss.merged[1].numel() <= LARGEST
        items += [*(_smallest(at) if small else ()), *_costliest(at, run.certificate.quantities.get("ball", 0.0))]
    return items


def _smallest(at: Measured) -> list[Item]:
    """The smallest singular values of the Jacobian, in floats."""
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(at.gram.value)[:SMALLEST], 0.0))
    name = "Smallest singular values of J" if len(values) > 1 else "Singular value of J"
    return [(name, ", ".join(number(float(value), 3) for value in values), "at the start of the run, in floats")]


def _costliest(at: Measured, radius: float) -> list[Item]:
    """Which layer has the largest share in Λ, by the eigenvector that belongs to it."""
    decomposed = [np.linalg.eigh(S) for S in bends(at, radius)]
    if not decomposed or len(decomposed[0][0]) < 2:
        return []
    _, vectors = min(decomposed, key=lambda found: float(found[0][-1]))
    shares = [100.0 * float(share) for share in np.square(vectors[:, -1])]
    layer = int(np.argmax(shares))
    by_layer = ", ".join(f"{number(share, 2)} %" for share in shares)
    return [
        ("Layer that costs most in Λ", f"layer {layer + 1}", f"{number(shares[layer], 2)} % of Λ; by layer: {by_layer}")
    ]
