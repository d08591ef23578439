"""How a theorem is used: its free choices and its schedule, which are searched in floats. The checker only verifies them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from surefoot_check.numbers import Quantities
from surefoot_check.statement import Schedule, Theorem


def nothing_to_choose(q: Quantities) -> dict[str, float]:
    """The parameters of a theorem without free choices."""
    return {}


@dataclass(frozen=True)
class Plan:
    """A theorem, what computes its schedule where its conditions hold, and what chooses its free ``parameters``; in floats.

    Attributes:
        recertifiable: whether it can be evaluated at later iterates; not where it speaks of initial weights alone.
        untrainable: why no run is trained by it, and what to do; empty where one is.
    """

    theorem: Theorem
    schedule: Callable[[Quantities], Schedule]
    parameters: Callable[[Quantities], dict[str, float]] = nothing_to_choose
    recertifiable: bool = True
    untrainable: str = ""


PLANS: dict[str, Plan] = {}
"""Of the theorems of all systems, by their ids."""
