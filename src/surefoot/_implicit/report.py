"""The part of a report that is about implicit ReLU networks alone: sizes, and how little or much the features move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .._core.registry import system_named
from .._report.canvas import BOUNDS, DASHES, RUN, iteration_axis, level, logarithmic, rendered
from .._report.facts import Facts
from .._report.markup import Markup, figure, keys, paragraph, section
from .._report.training import HARDLY, training
from .._report.wording import count, number
from .._report.write import Part
from .equilibrium import dead_units
from .near import NEAR_A_FIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEANING = "the certificate is about these weights, trained as they are: an exact fit near them, not a readout of random features"
"""Of the theorems near a fit."""


@dataclass(frozen=True)
class Features:
    """The equilibrium on the training rows along a run.

    Attributes:
        movement: ‖Z_t - Z_0‖_F/‖Z_0‖_F by iteration.
        contraction: upper bound of γ‖A‖ by iteration.
        allowed: of the movement by the certificate, relative too; ``None`` where it says nothing.
        dead: units that are 0 on every row at the start.
    """

    movement: list[float]
    contraction: list[float]
    allowed: float | None
    dead: int


def part(facts: Facts) -> Part | None:
    """The section on the features, with its plot; ``None`` where there is nothing to say of them."""
    movement = features_of(facts)
    if movement is None:
        return None
    png, svg = plot(movement)
    own, before = features(facts, movement, svg), training(facts)
    if before is None:
        return Part(own, {"features": png})
    return Part(Markup(f"{before.section}\n{own}"), {**before.plots, "features": png})


def features_of(facts: Facts) -> Features | None:
    """``None`` where nothing was recorded or Z_0 = 0, and where the problem's arrays were not loaded."""
    run = facts.run
    if not run.rows or not run.problem:
        return None
    net, _ = system_named(run.certificate.system).rebuild(run.certificate.problem["kind"], run.problem, run.initial)
    Z = net.equilibrium(run.problem["X"]).Z
    norm = float(torch.linalg.vector_norm(Z))
    if not norm > 0.0:
        return None
    q = run.certificate.quantities
    sigma = q.get("sigma", q.get("sigma_min_Z"))
    known = bool(facts.in_force) and facts.in_force[0].iteration == 0 and "f" in q and sigma is not None
    measured = run.measured_rows
    return Features(
        movement=[row["feature_movement"] / norm for row in measured],
        contraction=[row["contraction"] for row in measured],
        allowed=q["f"] * sigma / norm if known and sigma is not None else None,
        dead=len(dead_units(Z)),
    )


def plot(shown: Features) -> tuple[bytes, str]:
    """Movement of the features and the bound of γ‖A‖ against the iteration: PNG and SVG."""
    said = (
        f"The features move by at most {number(max(shown.movement), 3, 'up')} of their norm; the bound of γ‖A‖ goes from "
        f"{number(shown.contraction[0], towards='up')} to {number(shown.contraction[-1], towards='up')}."
    )
    return rendered("features", lambda: _figure(shown), "Movement of the features", said)


def features(facts: Facts, shown: Features, drawing: str) -> Markup:
    """The section of the page."""
    run = facts.run
    (N, d), (m, p) = run.problem["X"].shape, run.initial["b"].shape
    gamma = float(run.initial["gamma"])
    moved = max(shown.movement)
    items = [
        ("Samples N", count(N), f"{count(d)} inputs, {count(p)} output{'' if p == 1 else 's'}"),
        ("Width m", count(m), f"units that are 0 on every sample at the start (dead): {count(shown.dead)}"),
        (
            "γ‖A‖, upper bound",
            number(shown.contraction[-1], towards="up"),
            f"at the end; {number(shown.contraction[0], towards='up')} at the start; γ is {number(gamma)}",
        ),
        ("Movement of the features", number(moved, 3), "largest ‖Z − Z₀‖ during the run, relative to ‖Z₀‖"),
    ]
    bound = (
        ""
        if shown.allowed is None
        else " Dashed, above: what the certificate allows. The distance may be rounding alone."
    )
    caption = (
        "Above: distance of the features Z to those at the start, relative to their norm, on a logarithmic scale. "
        "Below: an upper bound of γ‖A‖, the contraction factor of the fixed-point map; the equilibrium exists while it is "
        f"below 1.{bound}"
    )
    return section("Features", paragraph(_sentence(facts, moved)), keys(items), figure(drawing, "features", caption))


def _sentence(facts: Facts, moved: float) -> str:
    share = f"The features moved by at most {number(moved, 3, 'up')} of their norm"
    if facts.run.certificate.theorem in NEAR_A_FIT:
        return f"{share} in this run, which began near an exact fit, however far they had moved before: {MEANING}."
    if moved >= HARDLY:
        return f"{share}: this run trained the features, too."
    if facts.in_force:
        return (
            f"{share}. That is what the theorem rests on, and its price: it proves the convergence of what is in effect a "
            "linear readout of random equilibrium features, not that features are learned. It says nothing of test error."
        )
    return f"{share}: what was trained is in effect a linear readout of random equilibrium features."


def _figure(shown: Features) -> Figure:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7.4, 5.2), layout="constrained")
    above, below = drawn.subplots(2, 1)
    last = len(shown.movement) - 1
    positive = [value if value > 0.0 else float("nan") for value in shown.movement]
    marker = "o" if len(positive) < 30 else None
    above.set_title("Movement of the features")
    above.plot(range(len(positive)), positive, color=RUN, linewidth=2.0, marker=marker, markersize=4)
    seen = [value for value in positive if value > 0.0]
    if shown.allowed is not None and shown.allowed > 0.0:
        level(above, shown.allowed, "what the certificate allows", BOUNDS[0], DASHES[1])
        seen.append(shown.allowed)
    above.set_ylabel("‖Z − Z₀‖ / ‖Z₀‖")
    iteration_axis(above, last)
    logarithmic(above, seen)
    above.set_xlabel("")
    below.set_title("Upper bound of the contraction factor γ‖A‖")
    below.plot(range(len(shown.contraction)), shown.contraction, color=RUN, linewidth=2.0, marker=marker, markersize=4)
    level(below, 1.0, "from 1 on an equilibrium need not exist")
    below.set_ylim(0.0, 1.2 * max(1.0, *shown.contraction))
    below.set_ylabel("bound of γ‖A‖")
    iteration_axis(below, last)
    return drawn
