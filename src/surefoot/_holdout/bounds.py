"""What follows from counts, each coverage rounded down until it is proved."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from surefoot_check.checker import PRECISION
from surefoot_check.holdout import binomial
from surefoot_check.holdout.curve import band_rank, band_ranks, points
from surefoot_check.holdout.ranks import order_test
from surefoot_check.holdout.record import Point

ROUNDED = 1e-13
"""Share by which a coverage is made smaller until it is proved."""


def evaluate(counts: np.ndarray, limit: int, coverage: float, confidence: float) -> dict[str, Any]:
    """The fields of a ``Record`` that follow from enough counts (n,) int64, -1 where a problem is not solved within the limit."""
    n, ordered = len(counts), np.sort(counts[counts >= 0])
    with precision():
        rank = binomial.rank(n, coverage, confidence)
    assert rank is not None
    iterations = int(ordered[rank - 1]) if rank <= len(ordered) else None
    return {
        "count": n,
        "limit": limit,
        "coverage": coverage,
        "confidence": confidence,
        "status": "fails" if iterations is None else "holds",
        "rank": rank,
        "iterations": iterations,
        "failures": n - len(ordered),
        "coverage_at_limit": coverage_bound(len(ordered), n, confidence),
        "curve": _curve(counts, confidence),
        "order_test": order_test(counts),
    }


def precision() -> AbstractContextManager[Any]:
    """That of the checker's balls."""
    import flint

    return flint.ctx.workprec(PRECISION)


def coverage_bound(m: int, n: int, confidence: float, parts: int = 1) -> float:
    """The Clopper-Pearson lower bound of a probability of which m of n events happened, with confidence 1 - (1-confidence)/parts:
    the largest p with P(Bin(n, p) ≥ m) ≤ (1-confidence)/parts, rounded down."""
    from scipy.special import betaincinv

    if m == 0:
        return 0.0
    p = min(float(betaincinv(m, n - m + 1, (1.0 - confidence) / parts)), math.nextafter(1.0, 0.0))
    shrink = ROUNDED
    with precision():
        failing = binomial.shared_failing(confidence, parts)
        while not binomial.is_proved(p, m, n, failing):
            p, shrink = p * (1.0 - shrink), 2.0 * shrink
    return p


def _curve(counts: np.ndarray, confidence: float) -> tuple[Point, ...]:
    n, ranks = len(counts), band_ranks(len(counts))
    band = {0: 0.0}
    curve = []
    for k, m in points(counts):
        rank = band_rank(ranks, m)
        if rank not in band:
            band[rank] = coverage_bound(rank, n, confidence, len(ranks))
        curve.append(Point(k, m, coverage_bound(m, n, confidence), band[rank]))
    return tuple(curve)
