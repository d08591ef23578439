"""What the theorems share that speak of a state: a point of the ball at which one number has not grown, however it was reached.

A size s(θ) falls along descent, √2 times the root of the gap; s_0 at the start. With m > 0 a bound of what makes it fall, which
changes at most Λ times as much as the weights on the ball of radius ρ, Λρ ≤ m, Q(x) = mx - ½Λx², s_0 ≤ Q(ρ) and
m*² = m² - 2Λs_0 > 0: V = s + Q(D), with D the distance to the start, does not increase, and D ≤ ρ* = 2s_0/(m + m*).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from ..numbers import Number, Quantities, sqrt
from ..statement import Inequality, Schedule, Theorem, chain, starts_with


def size(gap: Number) -> Number:
    """s of a gap ½s²."""
    return sqrt(2.0 * gap)


class StateTheorem(Theorem):
    """A theorem about states, by the names of its quantities."""

    locates = True
    rule = "certified-bb"
    constant_steps = True
    choices = ("ball", "eta")
    state: ClassVar[str]
    """The test, in its symbols."""
    least: ClassVar[str]
    """m."""
    bend: ClassVar[str]
    """Λ."""
    start: ClassVar[str]
    """s_0, derived from the initial gap."""
    kept: ClassVar[str]
    """m*."""

    @abstractmethod
    def floor(self, q: Quantities) -> Inequality:
        """What the floor step satisfies."""

    @abstractmethod
    def fall(self, q: Quantities, gap: Number) -> Number:
        """What a step η takes of a size that stays at least that of this gap, relative to it."""

    def reach(self, q: Quantities, x: Number) -> Number:
        """Q(x)."""
        return x * (q[self.least] - 0.5 * q[self.bend] * x)

    def potential(self, q: Quantities, gap: Number, distance: Number) -> Number:
        """V of a point, which must not exceed s_0."""
        return size(gap) + self.reach(q, distance)

    def left(self, q: Quantities) -> Number:
        """m*²."""
        return q[self.least] * q[self.least] - 2.0 * q[self.bend] * size(q["initial_gap"])

    def derived(self, q: Quantities) -> dict[str, Number]:
        """s_0; m* and ρ* where there are any."""
        values: dict[str, Number] = {self.start: size(q["initial_gap"])}
        if self.bend not in q or not self.left(q) > 0.0 or not q[self.least] > 0.0:
            return values
        values[self.kept] = sqrt(self.left(q))
        values["radius"] = 2.0 * values[self.start] / (q[self.least] + values[self.kept])
        return values

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        yield Inequality("the ball is not negative", q["ball"], ">=", 0.0)
        yield Inequality("eta > 0", q["eta"], ">", 0.0)
        yield self.floor(q)
        for segment, following in zip(schedule, [*schedule[1:], None], strict=True):
            yield from starts_with(segment, q["eta"])
            part = self.fall(q, 0.0 if following is None else following.level)
            yield Inequality("the decrease is the theorem's", part * (2.0 - part), ">=", segment.decrease)
