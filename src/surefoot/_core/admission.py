"""Free choices for a constant step of one's own: the least value of a choice that admits it, in floats."""

from __future__ import annotations

import math
from collections.abc import Callable

NARROWINGS = 20
"""Of the search for the choice that admits the largest step; each leaves 0.62 of the range of its logarithm."""
HALVINGS = 14
"""Of the search for the least choice."""
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


def least_admitting(
    admits: Callable[[float], float], step: float, lowest: float, known: float, highest: float
) -> float:
    """About the least choice that admits a step; where none was found, that which admits the largest step of those tried.

    The choices that are tried do not depend on the step but for where the search ends: what admits a step is found for every
    smaller one.

    Args:
        admits: the largest step that a choice admits; with one maximum, or the search may miss the largest.
        step: what is to be admitted.
        lowest, highest: the range of choices, positive.
        known: the choice that is tried first: where steps come from that are certified without being asked for.
    """
    if admits(lowest) >= step:
        return lowest
    best = _admitting(admits, step, lowest, known, highest)
    if admits(best) < step:
        return best
    outside, inside = math.log(lowest), math.log(best)
    for _ in range(HALVINGS):
        middle = 0.5 * (outside + inside)
        if admits(math.exp(middle)) >= step:
            best, inside = math.exp(middle), middle
        else:
            outside = middle
    return best


def _admitting(admits: Callable[[float], float], step: float, lowest: float, known: float, highest: float) -> float:
    """The first choice tried that admits the step, else the best: the known one, and then by golden section."""
    best, most = known, admits(known)
    low, high = math.log(lowest), math.log(highest)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = admits(math.exp(left)), admits(math.exp(right))
    for _ in range(NARROWINGS):
        for place, value in ((left, at_left), (right, at_right)):
            if value > most:
                best, most = math.exp(place), value
        if most >= step:
            break
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = admits(math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = admits(math.exp(right))
    return best
