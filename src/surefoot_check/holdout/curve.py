"""At which numbers of iterations coverages are published, and which ranks the band for all of them at once is made of."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

MOST_POINTS = 256
"""Of a curve; of more different counts those are taken that are evenly spread among them."""


def points(counts: np.ndarray) -> list[tuple[int, int]]:
    """(k, m): the different counts k of solved problems, and how many problems need at most k; -1 is a problem not solved."""
    values, numbers = np.unique(counts[counts >= 0], return_counts=True)
    solved = np.cumsum(numbers)
    taken = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).astype(np.int64))
    return [(int(values[i]), int(solved[i])) for i in taken]


def band_ranks(n: int) -> list[int]:
    """Ranks from n down to 1, in increasing order: the distances from n grow by 1, and by an eighth. They depend on n alone."""
    ranks, beyond = [], 0
    while beyond < n:
        ranks.append(n - beyond)
        beyond += max(1, beyond // 8)
    return ranks[::-1]


def band_rank(ranks: list[int], m: int) -> int:
    """The largest of the increasing ``ranks`` that is at most m; 0 where there is none."""
    place = bisect_right(ranks, m)
    return ranks[place - 1] if place else 0
