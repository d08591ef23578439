"""The checks of a directory of layers.

L1: the steps are within the range in which every layer lowers the objective, and its weights are convex combinations.
L2: what is published of each stored iterate is true of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rigor.bounds import FAST, UNIT_ROUNDOFF, Array, Level, down, up
from ...rigor.intervals import Interval, quotient_of
from ...statement import Inequality
from ...text import counted
from ...verdict import Outcome, Report, digits
from .constants import after_steps, least_between
from .entrywise import Enclosed
from .files import FORMAT, Facts, Stored, read
from .one_layer import PRODUCER, Point, Proved, first_point, prove
from .problems import Problems
from .sectors import admissible

WORST = (Outcome.ACCEPT, Outcome.UNDECIDED, Outcome.REJECT)


@dataclass
class Tally:
    """One statement about every layer, of which the worst decision is a line."""

    name: str
    outcome: Outcome = Outcome.ACCEPT
    where: str = "in every layer"
    detail: str = ""

    def add(self, t: int, certain: bool, impossible: bool, detail: str) -> None:
        """The decision on layer t: it is true for certain, false for certain, or neither."""
        outcome = Outcome.ACCEPT if certain else Outcome.REJECT if impossible else Outcome.UNDECIDED
        if WORST.index(outcome) > WORST.index(self.outcome):
            self.outcome, self.where, self.detail = outcome, f"not in layer {t + 1}", detail

    def at_most(self, t: int, value: Interval, limit: float) -> None:
        """The decision on layer t, of a number that is to be at most a limit."""
        self.add(t, value[1] <= limit, value[0] > limit, f"{digits(value[1])} <= {digits(limit)}")

    def close(self, report: Report, detail: str = "") -> None:
        """Add the line; the detail is of an accepted one."""
        accepted = self.outcome is Outcome.ACCEPT
        report.add("L2", f"{self.name}, {self.where}", self.outcome, detail if accepted else self.detail)


def verify(directory: Path, record: Mapping[str, object], level: Level, report: Report) -> None:
    """Add the checks of a directory, and what they leave open, to the report."""
    report.theorem = FORMAT.partition("/")[0].removeprefix("surefoot-")
    report.itemised = True
    stored = read(directory, record, level)
    agree = Outcome.ACCEPT if stored.hashes_agree else Outcome.REJECT
    report.add("L1", "the arrays are those of the certificate (sha256)", agree)
    _check_hypotheses(stored, report)
    if report.outcome is not Outcome.ACCEPT:
        return
    problems, rough = (Problems(stored.batch, stored.beta, which) for which in (level, FAST))
    _Layers(stored, problems, rough, report).check()
    if report.outcome is Outcome.ACCEPT:
        _check_constants(stored, problems, report)
        _note(stored, report)


def _check_hypotheses(stored: Stored, report: Report) -> None:
    """The range, β, and the weights."""
    low, high = stored.range
    report.decide(Inequality("the relative steps are not negative: lo >= 0", low, ">=", 0.0), "L1")
    report.decide(Inequality("the relative steps are at most 2: hi <= 2", high, "<=", 2.0), "L1")
    ratios = [quotient_of(s, float(b)) for s, b in zip(stored.batch.smoothness, stored.beta, strict=True)]
    least, reach = down(high * max(a for a, _ in ratios)), up(high * max(b for _, b in ratios))
    outcome = Outcome.ACCEPT if reach <= 2.0 else Outcome.REJECT if least > 2.0 else Outcome.UNDECIDED
    report.add("L1", "no step exceeds 2/smoothness: hi s <= 2", outcome, f"{digits(reach)} <= 2")
    off = float(np.abs(stored.weights.sum(axis=2) - 1.0).max())
    allowed, lowest = 4.0 * stored.weights.shape[2] * UNIT_ROUNDOFF, float(stored.weights.min())
    convex = Outcome.ACCEPT if lowest >= 0.0 and off <= allowed else Outcome.REJECT
    name = f"the weights of every sector are convex combinations, up to rounding ({allowed:.2g})"
    report.add("L1", name, convex, f"the least is {lowest:.3g}, sums are within {off:.2g} of 1")


class _Layers:
    """The statements about the iterates."""

    def __init__(self, stored: Stored, problems: Problems, rough: Problems, report: Report) -> None:
        self.stored, self.problems, self.rough, self.report = stored, problems, rough, report
        self.outputs = Tally("x is the layer's output, up to the rounding of float64")
        self.sectors = Tally("coordinates are in their sectors, up to the rounding of float64")
        self.falls = Tally("the objective does not increase, up to rounding")
        self.continues = Tally("a layer is at least as good as the step of the schedule, up to rounding")
        self.objectives = Tally("the objective is at most the published one")
        self.values = Tally("what the layer lowers is at most the published value")
        self.lower = Tally("no layer of one step in each sector goes below the published lower bound")
        self.gaps = Tally("the published gap is at least the value less the lower bound, rounded to nearest")

    def check(self) -> None:
        """All of them."""
        stored, claims = self.stored, self.stored.conclusion
        schedule = stored.schedule[:, None]
        at = first_point(self.problems, stored.x[0], schedule if stored.ahead else schedule[:0])
        distances, roundings, value_roundings, gaps = [], [], [], []
        start = float(np.abs(stored.x[0]).max())
        self.report.add("L2", "the start is 0", Outcome.REJECT if start else Outcome.ACCEPT)
        self._conclude("the first objective is at most the published one", at.objective, claims.start)
        (reached,) = after_steps(self.problems, stored.x[0], schedule)
        self._conclude("that of the schedule is at most the published one", reached, claims.schedule)
        for t, facts in enumerate(stored.facts):
            rest = schedule[t + 1 :] if stored.ahead else schedule[:0]
            layer = stored.weights[t], stored.sectors[t]
            proved = prove(self.problems, self.rough, at, stored.x[t + 1], stored.grid, *layer, rest)
            self._compare(t, at, proved)
            self._published(t, facts, proved)
            at = proved.after
            distances.append(proved.distance)
            roundings.append(proved.rounding)
            value_roundings.append(proved.value_rounding)
            gaps.append(facts.gap / facts.value if facts.value > 0.0 else 0.0)
        self._conclude("the last objective is at most the published one", at.objective, claims.final)
        self.outputs.close(self.report, f"entries within {max(distances):.3g}")
        self.sectors.close(self.report)
        self.falls.close(self.report, f"by {max(roundings):.3g} at most")
        if stored.ahead:
            self.continues.close(self.report, f"by {max(value_roundings):.3g} at most")
        self.objectives.close(self.report)
        self.values.close(self.report)
        self.lower.close(self.report)
        self.gaps.close(self.report, f"at most {max(gaps):.3g} of the value")

    def _conclude(self, name: str, value: Interval, claim: float) -> None:
        tally = Tally(name, where="")
        tally.at_most(0, value, claim)
        self.report.add("L2", name, tally.outcome, f"{digits(value[1])} <= {digits(claim)}")

    def _compare(self, t: int, before: Point, proved: Proved) -> None:
        """The iterate with the layer, and with the iterate before it."""
        stored, after = self.stored, proved.after
        self.outputs.add(t, proved.as_computed, not proved.as_computed, f"an entry is {proved.distance:.3g} away")
        wrong = self._outside(before.x, proved.rough, stored.sectors[t])
        self.sectors.add(t, wrong == 0, wrong > 0, f"{counted(wrong, 'coordinate')} not")
        self.falls.at_most(t, after.objective, up(before.objective[1] + proved.rounding))
        self.continues.at_most(t, after.value, up(before.value[1] + proved.value_rounding))

    def _outside(self, x: Array, gradient: Enclosed, sectors: NDArray[np.uint8]) -> int:
        """How many coordinates are not in their sectors."""
        v = gradient.quotient(self.problems.beta[:, None, None])
        radius = PRODUCER * v.radius[:, :, 0]
        return int((~admissible(x, v.value[:, :, 0], radius, self.stored.boundaries, sectors)).sum())

    def _published(self, t: int, facts: Facts, proved: Proved) -> None:
        """What is published of the layer; constant steps are layers, so that they may refute a lower bound."""
        after = proved.after
        self.objectives.at_most(t, after.objective, facts.objective)
        self.values.at_most(t, after.value, facts.value)
        bound = max(0.0, down(after.value[0] - proved.gap))  # objectives are not negative
        detail = f"{digits(facts.lower)} <= {digits(bound)}"
        self.lower.add(t, facts.lower <= bound, facts.lower > proved.constant, detail)
        apart = facts.value - facts.lower
        self.gaps.at_most(t, (apart, apart), facts.gap)


def _check_constants(stored: Stored, problems: Problems, report: Report) -> None:
    """The best constant step, and whether the layers are as good."""
    claim, depth, (low, high) = stored.conclusion, stored.depth, stored.range
    grid, which = stored.grid, "any one P of the grid"
    if not stored.batch.proximal:
        grid, which = np.unique([*grid, claim.step]), f"any one P from {low:g} to {high:g}"
    found = after_steps(problems, stored.x[0], np.tile(grid, (depth, 1)))
    least, most = (min(ends) for ends in zip(*found, strict=True))
    least = max(0.0, least)
    if not stored.batch.proximal:
        least = least_between(problems, stored.x[0], depth, grid)
    outcome = Outcome.ACCEPT if claim.constant <= least else Outcome.UNDECIDED
    outcome = Outcome.REJECT if claim.constant > most else outcome
    name = f"{counted(depth, 'step')} with {which} go no lower than the published best"
    report.add("L2", name, outcome, f"{digits(claim.constant)} <= {digits(least)}")
    if claim.final <= claim.constant:
        name = f"the layers go at least as low as {counted(depth, 'step')} with {which}"
        report.add("L2", name, Outcome.ACCEPT, f"{digits(claim.final)} <= {digits(claim.constant)}")
    else:
        excess = (claim.final - claim.constant) / claim.constant if claim.constant > 0.0 else np.inf
        report.notes.append(
            f"the best constant step may be better than the layers after as many steps, by {excess:.2g} of its objective at most"
        )


def _note(stored: Stored, report: Report) -> None:
    """What an accepted directory leaves open."""
    if stored.trained < stored.depth:
        report.notes.append(f"the record says that only {counted(stored.trained, 'layer')} were trained")
    report.notes.append(
        "the statements are about the stored iterates of the training problems, each from the one before it; of other problems "
        "only L1 says something: no layer raises their objectives where beta is at least their smoothness"
    )
    report.notes.append(
        "each layer is compared with others from the same iterate: nothing says that no network of as many layers is better"
    )
