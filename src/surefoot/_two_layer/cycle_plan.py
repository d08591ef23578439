"""Which steps ``two-layer/prescribed`` repeats for ever: those of ``sequences`` on the spectrum of the kernel at a state, of the
length and in the order whose guaranteed rate is best."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from surefoot_check.rigor.bounds import Array
from surefoot_check.two_layer.blocks import LEAST, Cycle, Problem, State, cycle
from surefoot_check.two_layer.prescribed import MAX_CYCLE

from .sequences import calm_orders, chebyshev_count

SHARES = (0.25, 0.5, 1.0)
"""Lengths that are tried, as shares of the Chebyshev count."""
ORDERS = 2
"""Orders that are tried of each length."""
ROUNDING = 1e-12
"""Of a part of the gap that just reaches a target."""


@dataclass(frozen=True)
class Repeated:
    """Steps τ (T,), in the units of the problem they were found for, and what is guaranteed of their repetition."""

    steps: Array
    guarantee: Cycle

    @property
    def rate(self) -> float:
        """The guaranteed factor of ‖Λ^½e‖_F a step."""
        return self.guarantee.factor ** (1.0 / len(self.steps))

    def count_to(self, ratio: float) -> float:
        """Steps after which the gap is guaranteed to be at most this part of the first; ``inf`` where no factor below 1 is left
        in floats."""
        parts, kept = (self.guarantee.residuals[1:] / self.guarantee.residuals[0]) ** 2, self.guarantee.factor**2
        excess = math.log(parts.min() / ratio)
        if excess > 0.0 and not kept < 1.0:
            return math.inf
        rounds = math.ceil(excess / -math.log(kept)) if excess > 0.0 else 0
        reached = parts * kept**rounds <= ratio * (1.0 + ROUNDING)
        return rounds * len(parts) + int(np.argmax(reached)) + 1


def best_cycle(problem: Problem, state: State, relative_gap: float) -> Repeated | None:
    """That of the best rate; ``None`` where no cycle contracts from this state, for all that is known.

    ``relative_gap``: whose Chebyshev count the lengths are shares of.
    """
    if not (problem.strong_convexity > 0.0 and state.lower >= LEAST):
        return None
    low, high = state.lower * problem.strong_convexity, state.upper * problem.smoothness
    count = chebyshev_count(low, high, relative_gap)
    lengths = {max(1, min(MAX_CYCLE, round(share * count))) for share in SHARES}
    tried = [tau for length in sorted(lengths) for tau in calm_orders(length, low, high)[:ORDERS]]
    found = [Repeated(tau, guarantee) for tau in tried if (guarantee := cycle(problem, state, tau)) is not None]
    return min(found, key=lambda it: it.rate, default=None)
