"""The ball of ``linear-resnet/local``: the least radius that contains the rest of the path."""

from __future__ import annotations

import math

from surefoot_check.linear_resnet.constants import Measured, pl_constant

INFLATION = 1.0 + 1e-6
"""Iterates approach the least fixed point from below and certify nothing; the result is inflated and verified by the theorem."""
LIMIT = 400


def least_radius(measured: Measured, gap: float, gamma: float) -> float | None:
    """A radius ϱ with 2√2/(2-γ) sqrt(gap/μ(ϱ)) ≤ ϱ, close to the least; ``None`` if the iteration finds none.

    ϱ ← Φ(ϱ) from 0 increases to the least feasible radius. Feasibility is not monotone, so there is no bisection; but any
    feasible radius will do, so that the limit is also guessed from the ratio of the last two increments (Aitken), and tried.
    """

    def needed(radius: float) -> float:
        mu = pl_constant(measured, radius)
        return 2.0 * math.sqrt(2.0) / (2.0 - gamma) * math.sqrt(gap / mu) if mu > 0.0 else math.inf

    radius, increment = 0.0, 0.0
    for count in range(LIMIT):
        following = needed(radius)
        if not math.isfinite(following):
            return None
        guess = following * INFLATION
        ratio = (following - radius) / increment if increment > 0.0 else 0.0
        if count % 4 == 3 and 0.0 < ratio < 1.0:
            guess = (following + (following - radius) * ratio / (1.0 - ratio)) * (1.0 + 1e-4)
        if (following - radius <= 1e-4 * following or count % 4 == 3) and needed(guess) <= guess:
            return guess
        increment, radius = following - radius, following
    return None
