"""Binomial tails in ball arithmetic, and what follows from them: ranks, coverages, and how many problems are needed.

X is the number of n independent problems that have a property of probability p. (docs/theorems/holdout.md)
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ..rigor.balls import ball, rational

EVERY = 16
"""Terms of a tail between two looks at what remains of it."""
NEGLIGIBLE = 2.0**-90
"""Share of a tail at which the remainder is bounded instead of summed."""
CLOSE = 1e-9
"""A published coverage is the largest that is proved, up to this share of it."""
MOST_NEEDED = 10**15
"""More problems than this nobody can ask for."""


def at_least(m: int, n: int, p: Any) -> Any:
    """A ball that contains P(X ≥ m), of a ball p within (0, 1).

    The terms of a tail away from the mean fall at least geometrically, with the ratio of the last two: that bounds the rest.
    """
    if m <= 0:
        return ball(1.0)
    if m > n:
        return ball(0.0)
    if m > n * float(p):
        return _tail(m, n, p, 1 - p)
    return 1 - _tail(n - m + 1, n, 1 - p, p)  # of the failures


def _tail(m: int, n: int, p: Any, q: Any) -> Any:
    """Σ_{j ≥ m} C(n, j) pʲ qⁿ⁻ʲ, 1 ≤ m ≤ n."""
    from flint import arb

    if m == n:
        return p**n  # exact where p and n are small, so that a tail may be equal to what it is compared with
    odds = p / q
    term = total = arb.bin_uiui(n, m) * p**m * q ** (n - m)
    for j in range(m, n):
        ratio = odds * (n - j) / (j + 1)
        term = term * ratio
        total = total + term
        if (j - m) % EVERY == 0 and ratio < 1:
            rest = term * ratio / (1 - ratio)
            if rest < total * NEGLIGIBLE:
                return total.union(total + rest)
    return total


def failing(confidence: float) -> Any:
    """1 - confidence."""
    return 1 - ball(confidence)


def enough(r: int, n: int, coverage: float, confidence: float) -> bool:
    """Whether it is certain that P(X ≤ r - 1) ≥ confidence for p = coverage."""
    return bool(at_least(r, n, ball(coverage)) <= failing(confidence))


def rank(n: int, coverage: float, confidence: float) -> int | None:
    """The least r ≤ n that is ``enough``; ``None`` where n is too small for any."""
    if not enough(n, n, coverage, confidence):
        return None
    low, high = 0, n  # 0 is not enough, n is
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle, n, coverage, confidence) else (middle, high)
    return high


def problems_needed(coverage: float, confidence: float) -> int:
    """The least n with coverageⁿ ≤ 1 - confidence: so many problems a statement needs, all of which are solved.

    Raises:
        ValueError: more than 10¹⁵.
    """
    share = ball(coverage)
    guess = float((failing(confidence).log() / share.log()).upper())
    if not guess <= MOST_NEEDED:
        raise ValueError(f"coverage {coverage!r} and confidence {confidence!r} need more than 10^15 problems")
    n = max(1, math.floor(guess) - 1)
    while not bool(share**n <= failing(confidence)):
        n += 1
    return n


def is_proved(p: float, m: int, n: int, failing: Any) -> bool:
    """Whether it is certain that P(X ≥ m) ≤ failing for this p in [0, 1): a coverage of at least p is then proved by m of n."""
    return p == 0.0 or bool(at_least(m, n, ball(p)) <= failing)


def is_largest(p: float, m: int, n: int, failing: Any) -> bool:
    """Whether it is certain that no coverage is proved that is larger by more than the share ``CLOSE``."""
    if m == 0:
        return p == 0.0
    more = p * (1.0 + CLOSE)
    return more >= 1.0 or bool(at_least(m, n, ball(more)) > failing)


def shared_failing(confidence: float, parts: int) -> Any:
    """(1 - confidence)/parts."""
    return failing(confidence) * rational(Fraction(1, parts))
