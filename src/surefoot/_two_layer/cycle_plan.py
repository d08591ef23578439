"""Which steps ``two-layer/prescribed`` repeats for ever: those of ``sequences`` on the spectrum of the kernel at a state, of the
length and in the order whose guaranteed rate is best."""

from __future__ import annotations

import math

import numpy as np

from surefoot_check.rigor.bounds import Array
from surefoot_check.two_layer.blocks import Cycle, Problem, State, cycle
from surefoot_check.two_layer.prescribed import MAX_CYCLE

from .sequences import calm_orders, chebyshev_count

SHARES = (0.25, 0.5, 1.0)
"""Lengths that are tried, as shares of the Chebyshev count."""
ORDERS = 2
"""Orders that are tried of each length."""


def best_cycle(problem: Problem, state: State, relative_gap: float) -> Array:
    """τ (T,), in the units of ``problem``; empty where no cycle contracts from this state, for all that is known.

    ``relative_gap``: whose Chebyshev count the lengths are shares of.
    """
    if not (problem.strong_convexity > 0.0 and state.lower > 0.0):
        return np.zeros(0)
    low, high = state.lower * problem.strong_convexity, state.upper * problem.smoothness
    count = chebyshev_count(low, high, relative_gap)
    lengths = {max(1, min(MAX_CYCLE, round(share * count))) for share in SHARES}
    tried = [tau for length in sorted(lengths) for tau in calm_orders(length, low, high)[:ORDERS]]
    found = [(_rate(cycle(problem, state, tau), len(tau)), index) for index, tau in enumerate(tried)]
    rate, index = min(found)
    return tried[index] if rate < 1.0 else np.zeros(0)


def _rate(found: Cycle | None, length: int) -> float:
    """The guaranteed factor of ‖Λ^½e‖_F a step; 1 where there is none."""
    return 1.0 if found is None else math.exp(math.log(found.factor) / length)
