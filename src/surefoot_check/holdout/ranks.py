"""Smirnov's test of whether two samples come from one distribution, exact with ties: by the permutations of the pooled values."""

from __future__ import annotations

import numpy as np

from ..rigor.bounds import UNIT_ROUNDOFF, up
from ..rigor.intervals import TINY

Counts = np.ndarray
MOST = 2_000
"""Values of each sample that are compared."""


def smirnov(first: Counts, second: Counts) -> float:
    """Upper bound of P(D ≥ the observed D), D = sup |F_1 - F_2| of the empirical distributions.

    Given the pooled values, every choice of those that form the first sample is equally likely; so the level is exact, with ties
    too. By the s smallest values, i of which are of the first sample, a path goes from (0, 0); D is looked at where a value
    ends. What has reached D is taken out and summed, so that small probabilities keep their digits: all terms are positive.

    Args:
        first, second: int64, neither empty.
    """
    if len(first) > len(second):
        first, second = second, first
    n, m = len(first), len(second)
    values = np.concatenate([first, second])
    order = np.argsort(values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])) + 1, n + m)  # sizes of the pooled sets {T ≤ t}
    below = np.concatenate([[0], np.cumsum(order < n)])[ends]
    observed = int(np.abs(m * below - n * (ends - below)).max())
    if observed == 0:
        return 1.0
    at_end = set(ends.tolist())
    i = np.arange(n + 1)
    alive, out = np.zeros(n + 1), 0.0
    alive[0] = 1.0
    for s in range(1, n + m + 1):
        left = n + m - s + 1
        step = np.clip(m - (s - 1 - i), 0, None) / left * alive  # the value is of the second sample
        step[1:] += ((n - i[:-1]) / left) * alive[:-1]
        alive = step
        if s in at_end:
            reached = np.abs(m * i - n * (s - i)) >= observed
            out += float(alive[reached].sum())
            alive[reached] = 0.0
    size = n + m + 1
    return min(1.0, up(up(out * (1.0 + 8.0 * size * UNIT_ROUNDOFF), 2) + size * size * TINY))


def with_failures_last(counts: Counts) -> Counts:
    """Counts in which -1, a problem not solved, is larger than all others."""
    return np.where(counts < 0, np.iinfo(np.int64).max, counts)


def thinned(counts: Counts) -> Counts:
    """Evenly spread entries, ``MOST`` at most; which are left out does not depend on the values."""
    return counts[:: -(-len(counts) // MOST)]


def order_test(counts: Counts) -> float:
    """The p-value of ``smirnov`` for the first half against the second; 1 of one problem, which has no halves."""
    if len(counts) == 1:
        return 1.0
    ordered, half = with_failures_last(counts), len(counts) // 2
    return smirnov(thinned(ordered[:half]), thinned(ordered[half:]))
