"""Whether new problems are like the held-out ones, by exact tests of their counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from surefoot_check.holdout.ranks import smirnov, thinned, with_failures_last

from .._core.brief import brief


@dataclass(frozen=True)
class ShiftTest:
    """Tests of the hypothesis that held-out and new problems are exchangeable, by their counts under one solver.

    Each p-value is exact, ties included: under the hypothesis it is at most α with probability at most α. A small one shows
    that the problems differ, so that the certificate says nothing of them; a large one shows nothing.

    Attributes:
        problems: N new problems.
        exceeding: how many of them need more than the certificate's k; not solved counts as more.
        expected: of them, under the hypothesis, at most this many on average; ``None`` where the certificate fails.
        exceedance: probability of at least so many: they are at least so many of the largest pooled counts.
        ranks: p-value of Smirnov's test, over all permutations of the pooled counts.
        p_value: of both tests together: twice the smaller.
        counts: of the new problems (N,) int64, -1 where one is not solved.
    """

    problems: int
    exceeding: int
    expected: float | None
    exceedance: float
    ranks: float
    p_value: float
    counts: Tensor

    __repr__ = brief

    def shifted(self, level: float = 0.01) -> bool:
        """Whether exchangeability is rejected at this level."""
        return self.p_value <= level

    def __str__(self) -> str:
        more = ""
        if self.expected is not None:
            more = (
                f"{self.exceeding} of {self.problems} need more than the certificate's count, where at most "
                f"{self.expected:.3g} are expected (p = {self.exceedance:.3g}); "
            )
        verdict = (
            "these problems are not like the held-out ones, and the certificate says nothing of them"
            if self.shifted()
            else "no difference from the held-out problems is seen"
        )
        return f"{more}rank test p = {self.ranks:.3g}; together p = {self.p_value:.3g}: {verdict}"


def shift_test(held_out: np.ndarray, new: np.ndarray, rank: int, iterations: int | None) -> ShiftTest:
    """The tests of counts (n,) against new ones (N,); ``iterations`` is the count of that rank, if there is one."""
    from scipy.stats import hypergeom

    n, N = len(held_out), len(new)
    ranks = smirnov(thinned(with_failures_last(held_out)), thinned(with_failures_last(new)))
    exceeding, expected, exceedance = 0, None, 1.0
    if iterations is not None:
        exceeding = int(((new < 0) | (new > iterations)).sum())
        # E new ones lie above the r-th of the held-out ones just if E of the n - r + E largest are new
        exceedance = float(hypergeom.sf(exceeding - 1, n + N, N, n - rank + exceeding)) if exceeding else 1.0
        expected = N * (n - rank + 1) / (n + 1)
    p = min(1.0, 2.0 * min(ranks, exceedance))
    return ShiftTest(N, exceeding, expected, exceedance, ranks, p, torch.from_numpy(new))
