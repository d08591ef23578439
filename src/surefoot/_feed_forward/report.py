"""The part of a report that is about feed-forward networks alone: the training before the run, how far weights and features
have moved, and what the guarantee hangs on."""

from __future__ import annotations

import numpy as np
import torch

from surefoot_check.feed_forward.enclosures import Measured
from surefoot_check.feed_forward.quantities import measured

from .._core.near_a_fit.features import moved
from .._report.facts import Facts
from .._report.markup import Markup, keys, section
from .._report.training import shares, training
from .._report.wording import number
from .._report.write import Part
from .engine import distance
from .features import features
from .loss import NetworkLoss
from .planner import bends
from .system import FeedForwardSystem

LARGEST = 1000
"""Outputs on all rows up to which all singular values of the Jacobian are computed."""
SMALLEST = 5
"""How many of them are shown."""

Item = tuple[str, str, str]


def part(facts: Facts) -> Part:
    """The sections on the training, where it was watched, and on the weights."""
    before = training(facts)
    if before is None:
        return Part(_place(facts), {})
    return Part(Markup(f"{before.section}\n{_place(facts)}"), before.plots)


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
    found = moved(before, features(net, loss.X))
    items: list[Item] = []
    if found:
        items.append(
            ("Movement of the features", shares(found), "during the run, relative to their norm, by hidden layer")
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
    parts = [100.0 * float(share) for share in np.square(vectors[:, -1])]
    layer = int(np.argmax(parts))
    by_layer = ", ".join(f"{number(share, 2)} %" for share in parts)
    return [
        ("Layer that costs most in Λ", f"layer {layer + 1}", f"{number(parts[layer], 2)} % of Λ; by layer: {by_layer}")
    ]
