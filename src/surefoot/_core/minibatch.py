"""What a theorem about mini-batches leaves to choose: step, radii, epochs and the schedule, in floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from surefoot_check.minibatch import Minibatch
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment

from .schedule import gap_at, iterations_to
from .usual import DELTA
from .validate import nonnegative, positive_integer

STEPS = (0.3, 0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.7, 1.85, 1.94)
"""γ of Theorem S, hω of S'."""
GROWTHS = (1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0)
"""g of Theorem S; that of S' is one of them times the least that δ_1 allows."""
FRACTIONS = (1 / 8, 1 / 64, 1 / 512)
"""x of Theorem S."""
SHARES = (0.4, 0.7)
"""δ_1/δ of Theorem S'."""
SETTLED = 1.0 - 1e-4
"""Share of the rate at the fit itself from which on there are no more epochs, …"""
EPOCHS = 60
"""… of which there are at most so many."""
ROOM = 1.0 + 1e-6
"""By how much a ball is larger than it must be."""

Quantity = dict[str, float]
OnBall = Callable[[float], Mapping[str, float]]


@dataclass(frozen=True)
class Sampling:
    """Batches of so many samples, drawn afresh at each step, and the probability with which a statement about them may fail."""

    size: int
    delta: float = DELTA

    @classmethod
    def of(cls, batch_size: Any, delta: Any, samples: int) -> Sampling:
        """Validated, of a number of samples.

        Raises:
            TypeError, ValueError: a number out of range.
        """
        size, chance = positive_integer("batch_size", batch_size), nonnegative("delta", delta)
        if samples < 2:
            raise ValueError(f"the loss has {samples} row; of mini-batches there must be at least 2 to draw from")
        if size > samples:
            raise ValueError(
                f"batch_size is {size}; batches are drawn without replacement from {samples} rows: use at most {samples}"
            )
        if not 0.0 < chance < 1.0:
            raise ValueError(
                f"delta is {delta!r}, the probability with which the statement may fail; take one between 0 and 1"
            )
        return cls(size, chance)


def choose(
    theorem: Minibatch, start: Mapping[str, float], on_ball: OnBall, batch: int, samples: int, delta: float, aim: float
) -> Quantity:
    """The choices, and the quantities on their balls, with the fewest guaranteed iterations to a relative gap of ``aim``; where
    nothing is guaranteed, those that come nearest.

    Args:
        start: the published ``initial_gap``, ``newton_step``, ``sigma_min_J``, and others that do not depend on a radius.
        on_ball: the published ``norm_J_ball``, ``lipschitz_J``, ``lipschitz_batch``, ``norm_batch``, ``second_moment`` and
            ``sigma``, the least singular value of J, by the radius of the ball; infinite and 0 where there is no bound.
        batch, samples: B and N.
        delta: of the statement.
    """
    on_ball = cache(on_ball)
    fit_ball = 2.0 * start["newton_step"] * ROOM
    shared = {**start, theorem.samples: float(samples), "batch": float(batch), "delta": delta, "fit_ball": fit_ball}
    shared["lipschitz_fit"] = on_ball(fit_ball)["lipschitz_J"]
    return min(_candidates(theorem, shared, on_ball), key=lambda q: _rank(theorem, q, aim))


def _rank(theorem: Minibatch, q: Quantity, aim: float) -> tuple[float, ...]:
    """The guaranteed iterations; where there are none, how many conditions fail, and by how much."""
    conditions = theorem.conditions(q)
    failed = [condition for condition in conditions if not condition.certain]
    if not failed:
        return iterations_to(schedule(theorem, q), aim), 0.0, 0.0
    margins = [-math.inf if condition.margin is None else condition.margin for condition in failed]
    return math.inf, -float(len(conditions) - len(failed)), -min(margins)


def _ways(delta: float) -> Iterator[tuple[float, float, float]]:
    """x, g and δ_1."""
    yield from ((x, g, 0.0) for x in FRACTIONS for g in GROWTHS)
    yield from ((0.0, g / math.sqrt(share * delta), share * delta) for share in SHARES for g in GROWTHS)


def _candidates(theorem: Minibatch, shared: Quantity, on_ball: OnBall) -> Iterator[Quantity]:
    near = (
        shared["sigma_min_J"] > 0.0 and 2.0 * shared["lipschitz_fit"] * shared["newton_step"] <= shared["sigma_min_J"]
    )
    for x, g, stay_delta in _ways(shared["delta"]) if near else [(FRACTIONS[0], GROWTHS[0], 0.0)]:
        q = {**shared, "fraction": x, "growth": g, "stay_delta": stay_delta}
        q["ball"] = q["inner_ball"] = (theorem.least_ball(q) if near else q["fit_ball"]) * ROOM
        there = on_ball(q["ball"])
        q |= {name: value for name, value in there.items() if name != "sigma"}
        q["sigma_ball"] = there["sigma"]
        if near and q["lipschitz_J"] * g * theorem.distance(q) < q["sigma_ball"]:
            q["inner_ball"] = theorem.least_inner_ball(q) * ROOM
        q["sigma_inner"] = on_ball(q["inner_ball"])["sigma"]
        size = q["norm_batch"] ** 2 if x > 0.0 else q["second_moment"]
        for step in STEPS:
            eta = step / size * q["batch"] / q[theorem.samples] * (1.0 - SLACK) if 0.0 < size < math.inf else 1.0
            yield _with_epoch(theorem, {**q, "eta": eta})


def _with_epoch(theorem: Minibatch, q: Quantity) -> Quantity:
    """The choices with T; 1 where there are no epochs."""
    c = theorem.derived({**q, "epoch": 1.0}).get("mean_decrease", 0.0)
    if not (0.0 < c < 1.0 and theorem.stays_surely(q)):
        return {**q, "epoch": 1.0}
    steps = math.log(1.0 / (q["fraction"] * q["delta"])) / -math.log1p(-c)
    return {**q, "epoch": max(1.0, float(math.ceil(steps * (1.0 + SLACK))))}


def schedule(theorem: Minibatch, q: Quantities) -> Schedule:
    """The start, the first epoch, and one segment an epoch until the rate hardly grows."""
    eta, c, T = float(q["eta"]), float(theorem.derived(q)["mean_decrease"]), int(q["epoch"])
    first = max(float(q["initial_gap"]), theorem.first_level(q) * (1.0 - c) * (1.0 + SLACK))
    segments = [Segment(0, 1, float(q["initial_gap"]), 0.0, eta)]
    segment = Segment(1, max(1, T - 1), first, c * (1.0 - SLACK), eta)
    best = float(theorem.contraction(q, 0.0)) * SETTLED if theorem.stays_surely(q) else 0.0
    while segment.decrease < best and len(segments) < EPOCHS:
        segments.append(segment)
        start = segment.start + int(segment.count or 0)
        later = Segment(start, T, gap_at(segment, start), 0.0, eta)
        decrease = float(theorem.later_contraction(q, later)) * (1.0 - SLACK)
        segment = Segment(start, T, later.level, decrease, eta)
    return [*segments, Segment(segment.start, None, segment.level, segment.decrease, eta)]
