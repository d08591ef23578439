"""Schedules of the theorems on learned matrix inverses, in floats."""

from __future__ import annotations

from collections.abc import Callable

from surefoot_check.inverse import interval, order
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment

from .._core.plans import Plan
from . import training_theorem

ROUNDING = 2.0**-50
SMALLEST = 1e-300
"""No published level lies below: smaller numbers lose their relative accuracy in floats."""


def layered(q: Quantities, level: Callable[[int], float]) -> Schedule:
    """One segment for each layer's gap, ``level(k)`` for k ≥ 1; the last one is endless."""
    count = int(q["K"])
    levels = [float(q["initial_gap"]), *(level(k) for k in range(1, count + 1))]
    return [Segment(k, 1 if k < count else None, value, 0.0) for k, value in enumerate(levels)]


def interval_levels(q: Quantities) -> Schedule:
    """The published residuals."""
    return layered(q, lambda k: float(interval.level(q, k)))


def order_levels(q: Quantities) -> Schedule:
    """e_0^(L^k)."""
    return layered(q, lambda k: _published(q, k))


def _published(q: Quantities, k: int) -> float:
    """The level with slack, and with what L^k times the rounding error of the logarithm can change."""
    rounding = float(int(q["L"]) ** k) * ROUNDING
    return max(min(float(order.level(q, k)) * (1.0 + SLACK + rounding), float(q["initial_gap"])), SMALLEST)


def training_rate(q: Quantities) -> Schedule:
    """One segment whose iterations are steps of training."""
    decrease = float(training_theorem.decrease(q)) * (1.0 - SLACK)
    return [Segment(0, None, float(q["initial_gap"]), decrease, 1.0 / float(q["smoothness"]))]


PLANS = (
    Plan(interval.THEOREM, interval_levels),
    Plan(order.THEOREM, order_levels),
    Plan(training_theorem.THEOREM, training_rate),
)
"""In the order in which they are listed."""
