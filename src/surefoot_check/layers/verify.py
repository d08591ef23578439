"""The checks of a directory of layers.

L1: the steps are within the range in which every layer lowers the objective, and its weights are convex combinations.
L2: what is published of each stored iterate is true of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..rigor.bounds import FAST, UNIT_ROUNDOFF, Level, down, up
from ..rigor.intervals import Interval, quotient_of
from ..statement import Inequality
from ..verdict import Outcome, Report, digits
from .constants import constants
from .files import Stored, read
from .one_layer import PRODUCER, Layer, Point, layer, point
from .problems import Problems
from .sectors import admissible

THEOREM = "layers"


@dataclass
class Tally:
    """One statement about every layer: the line of the worst one."""

    name: str
    worst: tuple[int, Outcome, str] | None = None
    count: int = 0

    def add(self, t: int, certain: bool, impossible: bool, detail: str) -> None:
        """The decision on layer t: it is true for certain, false for certain, or neither."""
        outcome = Outcome.ACCEPT if certain else Outcome.REJECT if impossible else Outcome.UNDECIDED
        self.count += 1
        order = [Outcome.ACCEPT, Outcome.UNDECIDED, Outcome.REJECT]
        if outcome is not Outcome.ACCEPT and (self.worst is None or order.index(outcome) > order.index(self.worst[1])):
            self.worst = (t, outcome, detail)

    def close(self, report: Report, accepted: str = "") -> None:
        """Add the line."""
        if self.worst is None:
            report.add("L2", f"{self.name}, in each of {self.count} layers", Outcome.ACCEPT, accepted)
        else:
            t, outcome, detail = self.worst
            report.add("L2", f"{self.name}: layer {t + 1}", outcome, detail)


def verify(directory: Path, record: Mapping[str, object], level: Level, report: Report) -> None:
    """Add the checks of a directory, and what they leave open, to the report."""
    report.theorem = THEOREM
    stored = read(directory, record, level)
    agree = Outcome.ACCEPT if stored.hashes_agree else Outcome.REJECT
    report.add("L1", "the arrays are those of the certificate (sha256)", agree)
    _check_hypotheses(stored, report)
    if report.outcome is not Outcome.ACCEPT:
        return
    problems, rough = (Problems(stored.batch, stored.beta, which) for which in (level, FAST))
    first = point(problems, stored.x[0])
    published = stored.conclusion
    report.decide(Inequality("the first objective", first.objective[1], "<=", published.initial), "L2")
    last = _check_layers(stored, problems, rough, first, report)
    report.decide(Inequality("the last objective", last.objective[1], "<=", published.final), "L2")
    if report.outcome is Outcome.ACCEPT:
        _check_constants(stored, problems, report)


def _check_hypotheses(stored: Stored, report: Report) -> None:
    """The range, β, and the weights."""
    low, high = stored.range
    report.decide(Inequality("the relative steps are not negative: lo >= 0", low, ">=", 0.0), "L1")
    report.decide(Inequality("the relative steps are at most 2: hi <= 2", high, "<=", 2.0), "L1")
    ratios = [quotient_of(s, float(b)) for s, b in zip(stored.batch.smoothness, stored.beta, strict=True)]
    reach: Interval = max(a for a, _ in ratios), up(high * max(b for _, b in ratios))
    name = "no step exceeds 2/smoothness: hi s <= 2"
    outcome = Outcome.ACCEPT if reach[1] <= 2.0 else Outcome.REJECT if high * reach[0] > 2.0 else Outcome.UNDECIDED
    report.add("L1", name, outcome, f"{digits(reach[1])} <= 2")
    sums = stored.weights.sum(axis=2)
    off, allowed = float(np.abs(sums - 1.0).max()), 4.0 * stored.weights.shape[2] * UNIT_ROUNDOFF
    convex = bool((stored.weights >= 0.0).all()) and off <= allowed
    detail = f"sums within {off:.2g} of 1, least weight {float(stored.weights.min()):.3g}"
    name = f"the weights of every sector are convex combinations, within {allowed:.2g}"
    report.add("L1", name, Outcome.ACCEPT if convex else Outcome.REJECT, detail)
    if stored.z is not None:
        lam = stored.batch.lam  # pyright: ignore[reportAttributeAccessIssue]
        feasible = bool((np.abs(stored.z) <= lam[None, :, None]).all())
        report.add("L1", "|z| <= lam", Outcome.ACCEPT if feasible else Outcome.REJECT)


def _check_layers(stored: Stored, problems: Problems, rough: Problems, first: Point, report: Report) -> Point:
    """Every statement about one layer; the last iterate."""
    outputs = Tally("the iterate is the layer's output, up to the rounding of float64")
    sectors = Tally("the coordinates are in their sectors, up to the rounding of float64")
    falls = Tally("the objective does not increase, up to rounding")
    after = Tally("the objective is at most the published one")
    against = Tally("the objective is at most that after a constant step of the grid, up to rounding")
    published = Tally("the published objective after the best constant step is a lower bound")
    lower = Tally("no layer of these sectors goes below the published lower bound")
    gaps = Tally("the objective is within the published gap of the best layer of these sectors")
    at, roundings, distances, excess = first, [0.0], [0.0], []
    for t, facts in enumerate(stored.facts):
        z = None if stored.z is None else stored.z[t]
        rows = stored.weights[t], stored.sectors[t]
        proved = layer(problems, rough, at, stored.x[t + 1], stored.grid, *rows, z)
        low, high = proved.after.objective
        outputs.add(t, proved.as_computed, not proved.as_computed, f"an entry is {proved.distance:.3g} away")
        wrong = _outside(stored, problems, at, t)
        sectors.add(t, wrong == 0, wrong > 0, f"{wrong} are not")
        allowed = up(at.objective[1] + proved.rounding)
        falls.add(t, high <= allowed, low > allowed, f"{digits(high)} <= {digits(allowed)}")
        after.add(t, high <= facts.objective, low > facts.objective, f"{digits(high)} <= {digits(facts.objective)}")
        least, most = min(a for a, _ in proved.constants), min(b for _, b in proved.constants)
        allowed = up(least + proved.rounding)
        against.add(t, high <= allowed, low > up(most + proved.rounding), f"{digits(high)} <= {digits(allowed)}")
        claim = facts.best_constant
        published.add(t, claim <= least, claim > most, f"{digits(claim)} <= {digits(least)}")
        _check_bounds(t, proved, facts.lower_bound, facts.gap, most, lower, gaps)
        at = proved.after
        roundings.append(proved.rounding)
        distances.append(proved.distance)
        excess.append(facts.gap / facts.objective if facts.objective > 0.0 else 0.0)
    outputs.close(report, f"entries within {max(distances):.3g}")
    sectors.close(report)
    for tally in (falls, after):
        tally.close(report)
    against.close(report, f"rounding {max(roundings):.3g} at most")
    published.close(report)
    lower.close(report)
    gaps.close(report, f"at most {max(excess):.3g} of the objective")
    return at


def _check_bounds(t: int, proved: Layer, claim: float, gap: float, constant: float, lower: Tally, gaps: Tally) -> None:
    """The lower bound and the gap of a layer; constant steps are layers, so that their objectives may refute both."""
    low = proved.after.objective[0]
    bound = down(low - proved.gap)
    lower.add(t, claim <= bound, claim > constant, f"{digits(claim)} <= {digits(bound)}")
    gaps.add(t, proved.gap <= gap, low - constant > gap, f"{digits(proved.gap)} <= {digits(gap)}")


def _outside(stored: Stored, problems: Problems, at: Point, t: int) -> int:
    """How many coordinates are not in their sectors."""
    radius = PRODUCER * at.gradient.radius[:, :, 0]
    inside = admissible(at.x, at.gradient.value[:, :, 0], radius, stored.boundaries, stored.sectors[t])
    return int((~inside).sum())


def _check_constants(stored: Stored, problems: Problems, report: Report) -> None:
    """The best constant step, and whether the layers are as good."""
    claim, T = stored.conclusion, stored.depth
    steps = np.unique(np.append(stored.grid, np.clip(claim.step, *stored.range)))
    found = constants(problems, stored.x[0], T, steps)
    bound, most = found.least(), min(high for _, high in found.objectives)
    which = "a P of the grid" if found.slopes is None else f"a P from {steps[0]:g} to {steps[-1]:g}"
    name = f"{T} steps of {which} go no lower than the published best constant"
    outcome = Outcome.ACCEPT if claim.constant <= bound else Outcome.UNDECIDED
    outcome = Outcome.REJECT if claim.constant > most else outcome
    report.add("L2", name, outcome, f"{digits(claim.constant)} <= {digits(bound)}")
    ratio = f"{digits(claim.final)} against {digits(claim.constant)}"
    if claim.final <= claim.constant:
        report.add("L2", f"the layers go at least as low as {T} steps of {which}", Outcome.ACCEPT, ratio)
    else:
        report.notes.append(f"{T} steps of one constant may go lower than the layers: {ratio}")
    report.notes.append(
        "the statements are about the stored iterates of the training problems, each from the one before it: nothing is said of "
        "other problems, or of how far rounding takes the whole network from exact arithmetic"
    )
