"""What a theorem is to this package: base quantities, conditions, and what makes a published schedule follow from them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from itertools import chain as chained
from itertools import takewhile
from typing import ClassVar, Literal

from .numbers import Number, Quantities, exp, larger, log

Relation = Literal["<", "<=", ">", ">="]

SLACK = 1e-9
"""Relative distance that a published number keeps from what was computed: far above rounding, far below what matters."""


OPPOSITE: dict[Relation, Relation] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Inequality:
    """One inequality with both sides, in one arithmetic."""

    name: str
    left: Number
    relation: Relation
    right: Number

    @property
    def certain(self) -> bool:
        """Whether it certainly holds (NaN, and balls that overlap, count as not certain)."""
        match self.relation:
            case "<":
                return bool(self.left < self.right)
            case "<=":
                return bool(self.left <= self.right)
            case ">":
                return bool(self.left > self.right)
            case ">=":
                return bool(self.left >= self.right)

    @property
    def opposite(self) -> Inequality:
        """What is true where this is false."""
        return Inequality(self.name, self.left, OPPOSITE[self.relation], self.right)

    @property
    def margin(self) -> float | None:
        """log10 of the ratio of the larger to the smaller side as the relation wants it (positive: it holds).

        ``None`` where a ratio says nothing: a side that is not positive.
        """
        left, right = float(self.left), float(self.right)
        if not (left > 0.0 and right > 0.0 and math.isfinite(left) and math.isfinite(right)):
            return None
        ratio = math.log10(left) - math.log10(right)
        return -ratio if self.relation in ("<", "<=") else ratio


@dataclass(frozen=True)
class Segment:
    """From iteration ``start``, for ``count`` iterations (``None``: for ever), the guaranteed gap falls by the factor
    ``1 - decrease`` an iteration, from ``level``. A step is the witness for the checker: the floor step that achieves that
    decrease. Where the theorem has floors of two kinds, ``other_step`` is that of the second; the one not taken is 0."""

    start: int
    count: int | None
    level: Number
    decrease: Number
    main_step: Number = 0.0
    other_step: Number = 0.0

    @property
    def step(self) -> Number:
        """The floor step."""
        return larger(self.main_step, self.other_step)


Schedule = list[Segment]


def converted(schedule: Schedule, number: Callable[[float], Number]) -> Schedule:
    """The schedule with its numbers in another arithmetic; iterations stay integers."""
    return [Segment(s.start, s.count, *map(number, (s.level, s.decrease, s.main_step, s.other_step))) for s in schedule]


class Theorem(ABC):
    """A convergence theorem for one system.

    ``base`` names the quantities that are measured on the arrays, ``choices`` what is chosen freely and published with them; the
    schedule is published too. How they are found is not the checker's business. Every method takes the quantities, and the
    schedule's numbers, in one arithmetic: as floats, as balls or traced. Where it compares them, what it does then must be
    sound whether or not the comparison is certain.
    """

    id: ClassVar[str]
    version: ClassVar[int] = 1
    statement: ClassVar[str]
    reference: ClassVar[str]
    provable: ClassVar[bool] = True
    """False for a theorem that the library evaluates and that is never accepted of a run: its statement as printed is false, or
    is about the flow, or its constants have no rigorous bounds. The checker's own are all provable."""
    claims: ClassVar[tuple[str, ...]] = ("L1", "L2")
    """What a certificate that holds claims: L1 its hypotheses and schedule, L2 that stored iterates lie under the bound."""
    positive_steps: ClassVar[bool] = True
    """Whether every step of its schedule is positive above the optimum. False for layers and a flow, which have none, and for
    learned steps, which may be 0."""
    counts_time: ClassVar[bool] = False
    """Whether its schedule counts units of time of the gradient flow: then it says nothing of the iterations of a run."""
    locates: ClassVar[bool] = False
    """Whether its quantity ``radius`` bounds how far from the weights the point lies that descent reaches."""
    rule: ClassVar[str]
    """The step rule it speaks of by default."""
    constant_steps: ClassVar[bool] = False
    """Whether it speaks of a constant step of one's own: where the schedule has one step, the rule may be "constant"."""
    base: ClassVar[tuple[str, ...]]
    choices: ClassVar[tuple[str, ...]] = ()
    """Names of the free choices, which are published and verified."""
    sequences: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Names of further ones, of each of which a certificate publishes the first so many as it needs."""

    def chosen(self, published: Container[str]) -> list[str]:
        """The names of the choices, given those that are published."""
        taken = (takewhile(published.__contains__, names) for names in self.sequences)
        return [*self.choices, *chained.from_iterable(taken)]

    def derived(self, q: Quantities) -> dict[str, Number]:
        """Quantities that follow from base and parameters, by their symbols in ASCII."""
        return {}

    @abstractmethod
    def conditions(self, q: Quantities) -> list[Inequality]:
        """The hypotheses, each with both sides."""

    def sublinear(self, q: Quantities) -> Number | None:
        """c of a guarantee that the gap after t ≥ 1 iterations is at most c/t, which the schedule follows in steps, at these
        quantities; ``None`` for a theorem without such a guarantee. For people: what is checked is the schedule."""
        return None

    def probability(self, q: Quantities) -> Number:
        """Of what the schedule claims, for theorems about random steps; 1 for all others."""
        return 1.0

    @abstractmethod
    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        """What must be certain for ``schedule`` to be guaranteed, given the conditions."""


def chain(q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
    """The obligations that every schedule has: it starts at the initial gap, without gaps or overlaps, and each
    level is at least what the segment before leaves."""
    expected_start, reached = 0, q["initial_gap"]
    for index, segment in enumerate(schedule):
        where = f"segment {index}"
        yield Inequality(f"{where}: starts where the one before ends", segment.start, "<=", expected_start)
        yield Inequality(f"{where}: leaves no iteration out", segment.start, ">=", expected_start)
        yield Inequality(f"{where}: level is at least the gap reached", segment.level, ">=", reached)
        yield Inequality(f"{where}: decrease is not negative", segment.decrease, ">=", 0.0)
        yield Inequality(f"{where}: decrease is below 1", segment.decrease, "<", 1.0)
        if segment.count is None:
            yield Inequality(f"{where}: only the last is endless", index, ">=", len(schedule) - 1)
            return
        yield Inequality(f"{where}: has iterations", segment.count, ">=", 1)
        expected_start = segment.start + segment.count
        reached = segment.level * exp(segment.count * log(1.0 - segment.decrease))
    yield Inequality("the last segment is endless", 1.0, "<", 0.0)


def starts_with(segment: Segment, step: Number) -> Iterator[Inequality]:
    """The obligations of a segment whose one step is the published first step."""
    yield Inequality("the step is at most the first step", segment.main_step, "<=", step)
    yield Inequality("the step is at least the first step", segment.main_step, ">=", step)
    yield Inequality("there is no other step", segment.other_step, "<=", 0.0)


def one_rate(q: Quantities, schedule: Schedule, step: Number, decrease: Number) -> Iterator[Inequality]:
    """The obligations of a schedule whose every step is ``step`` and takes at least the part ``decrease`` of the gap."""
    yield from chain(q, schedule)
    for segment in schedule:
        yield from starts_with(segment, step)
        yield Inequality("the decrease is the theorem's", decrease, ">=", segment.decrease)


def one_each(
    schedule: Schedule, count: int, what: str, level: Callable[[int], Number], step: Callable[[int], Number]
) -> Iterator[Inequality]:
    """The obligations of a schedule with a segment for each of ``count`` iterations, which ``what`` calls by name, and one for
    ever after: each level is at least the gap ``level(t)``, whether it falls or not, and each step is ``step(t)``."""
    yield Inequality(f"there is a segment for each {what}", len(schedule), "<=", count + 1)
    yield Inequality(f"no {what} is left out", len(schedule), ">=", count + 1)
    for t, segment in enumerate(schedule):
        where = f"segment {t}"
        yield Inequality(f"{where}: starts at its {what}", segment.start, "<=", t)
        yield Inequality(f"{where}: does not start before its {what}", segment.start, ">=", t)
        if t + 1 < len(schedule):
            lasts = -1 if segment.count is None else segment.count
            yield Inequality(f"{where}: lasts one {what}", lasts, "<=", 1)
            yield Inequality(f"{where}: ends after its {what}", lasts, ">=", 1)
        elif segment.count is not None:
            yield Inequality("the last segment is endless", 1.0, "<", 0.0)
        yield Inequality(f"{where}: the gap is constant", segment.decrease, "<=", 0.0)
        yield Inequality(f"{where}: decrease is not negative", segment.decrease, ">=", 0.0)
        yield Inequality(f"{where}: its step is at most the prescribed one", segment.main_step, "<=", step(t))
        yield Inequality(f"{where}: its step is at least the prescribed one", segment.main_step, ">=", step(t))
        yield Inequality(f"{where}: there is no other step", segment.other_step, "<=", 0.0)
        yield Inequality(f"{where}: level is at least the gap", segment.level, ">=", level(t))
