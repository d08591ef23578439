"""How a theorem is used: its free choices and its schedule, which are searched in floats. The checker only verifies them."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surefoot_check.numbers import Quantities
from surefoot_check.statement import Schedule, Theorem

from .filling import FilledWhenRead

OWN_STEP = "own_step"
"""Under this name a constant step of one's own stands among the quantities that ``parameters`` and ``schedule`` of a plan take.
It is published as the step of the schedule."""
LIMIT = "the step is at most the largest that the theorem admits"
"""The condition that a constant step of one's own may fail."""


def nothing_to_choose(q: Quantities) -> dict[str, float]:
    """The parameters of a theorem without free choices."""
    return {}


def chosen_step(q: Quantities) -> float:
    """``Plan.largest`` of a theorem with the step among its choices, which are those for a step of one's own or the largest."""
    return q["eta"]


@dataclass(frozen=True)
class Plan:
    """A theorem, what computes its schedule where its conditions hold, and what chooses its free ``parameters``; in floats.

    Attributes:
        theorem: of the checker.
        schedule: from all quantities the guaranteed gap, as segments of constant rate.
        parameters: from the measured quantities the free choices by name; none by default.
        recertifiable: whether it can be evaluated at later iterates; not where it speaks of initial weights alone.
        untrainable: why no run is trained by it, and what to do; empty where one is.
        largest: the largest constant step that the choices among the quantities admit, for a theorem that may be asked about one
            (``OWN_STEP``). ``parameters`` then choose for that step; where nothing admits it, what admits the largest.

    Example:
        >>> from surefoot_check.statement import Segment, Theorem
        >>> class Halves(Theorem):  # in docs/extending.md with conditions and obligations
        ...     conditions = obligations = lambda self, *quantities: []
        >>> halved = lambda q: [Segment(0, None, q["initial_gap"], 0.5, 0.1)]
        >>> plan = sf.extending.Plan(Halves(), halved)
        >>> plan.schedule({"initial_gap": 8.0})
        [Segment(start=0, count=None, level=8.0, decrease=0.5, main_step=0.1, other_step=0.0)]
    """

    theorem: Theorem
    schedule: Callable[[Quantities], Schedule]
    parameters: Callable[[Quantities], dict[str, float]] = nothing_to_choose
    recertifiable: bool = True
    untrainable: str = ""
    largest: Callable[[Quantities], float] | None = None


class Plans(UserDict[str, Plan]):
    """Of the theorems of all systems, by their ids."""

    data: Any = FilledWhenRead()


PLANS = Plans()
