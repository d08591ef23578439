"""What the theorems on deconvolution share: V, the change from iterate to iterate, is monotone and at most D/t."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ..numbers import Number, Quantities
from ..statement import Inequality, Schedule, Theorem, chain, starts_with


class MonotoneChange(Theorem):
    """V_t never increases, V_t ≤ D/t for t ≥ 1, D ≥ ‖w_0 - w*‖_H²; the gap of the certificate is V_t, whose optimum is 0."""

    stands_for_step: ClassVar[str]
    """The parameter that a schedule has in the place of a step."""

    @abstractmethod
    def distance(self, q: Quantities) -> Number:
        """D."""

    def derived(self, q: Quantities) -> dict[str, Number]:
        return {"distance_bound": self.distance(q)}

    def sublinear(self, q: Quantities) -> Number | None:
        return self.distance(q)

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        # no level is above V_0; where each may be lower than the one before is for D/t to say
        yield from chain(q, [replace(segment, level=schedule[0].level) for segment in schedule])
        reach = self.distance(q)
        for index, segment in enumerate(schedule):
            yield from starts_with(segment, q[self.stands_for_step])
            yield Inequality(f"segment {index}: its level is constant", segment.decrease, "<=", 0.0)
            if index > 0 and not segment.level >= schedule[index - 1].level:
                yield Inequality(f"segment {index}: level is at least D/t", segment.level * segment.start, ">=", reach)
