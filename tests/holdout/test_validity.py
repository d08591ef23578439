"""What certificates state is true as often as they say, on distributions whose coverage is known exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binomtest, geom

from surefoot._holdout.bounds import coverage_bound, evaluate
from surefoot._holdout.shift import shift_test
from surefoot.learned import LeastSquares, certify_holdout

RECALIBRATIONS = 400
NEVER = 1e-4
"""Of an exact test that must not reject; the draws are seeded."""


def as_often_as(valid: int, confidence: float, alternative: str = "less") -> float:
    """p-value of so many valid statements, or fewer, of 400 if each is valid with this probability."""
    return float(binomtest(valid, RECALIBRATIONS, confidence, alternative=alternative).pvalue)  # pyright: ignore


def draws(kind: str, rng: np.random.Generator, size: int) -> np.ndarray:
    """Counts: with many ties, with hardly any, and with a tenth that is never solved."""
    if kind == "ties":
        return rng.geometric(0.5, size)
    if kind == "continuous":
        return rng.integers(0, 10**9, size)
    return np.where(rng.random(size) < 0.1, -1, rng.geometric(0.2, size))


def share_within(kind: str) -> Callable[[int], float]:
    """F."""
    return {
        "ties": lambda k: float(geom.cdf(k, 0.5)),
        "continuous": lambda k: (k + 1) / 10**9,
        "failures": lambda k: 0.9 * float(geom.cdf(k, 0.2)),
    }[kind]


@pytest.mark.parametrize("kind", ["ties", "continuous"])
def test_the_certified_count_covers_as_often_as_stated(kind: str) -> None:
    rng, F = np.random.default_rng(2), share_within(kind)
    samples = np.sort([draws(kind, rng, 44) for _ in range(RECALIBRATIONS)])
    found = evaluate(samples[0], 10**9, 0.9, 0.99)
    assert (found["rank"], found["iterations"]) == (44, samples[0, 43])
    valid, fewer = (sum(F(int(k)) >= 0.9 for k in samples[:, r - 1]) for r in (44, 43))
    assert as_often_as(valid, 0.99) > NEVER
    if kind == "continuous":
        assert as_often_as(fewer, 0.99) < NEVER  # a rank less is too few, and this test sees it


def test_pointwise_bounds_hold_at_one_count_and_the_band_at_all() -> None:
    rng, F = np.random.default_rng(3), share_within("failures")
    pointwise = band = all_pointwise = 0
    for _ in range(RECALIBRATIONS):
        curve = evaluate(draws("failures", rng, 20), 10**6, 0.8, 0.8)["curve"]
        pointwise += all(p.pointwise <= F(2) for p in curve if p.iterations <= 2)
        all_pointwise += all(p.pointwise <= F(p.iterations) for p in curve)
        band += all(p.simultaneous <= F(p.iterations) for p in curve)
    assert as_often_as(pointwise, 0.8) > NEVER
    assert as_often_as(band, 0.8) > NEVER
    assert as_often_as(all_pointwise, 0.8) < NEVER  # so that the two are not the same


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_what_is_stated_is_true_as_often_where_many_certificates_fail(coverage: float) -> None:
    rng, F = np.random.default_rng(4), share_within("failures")
    samples = [draws("failures", rng, 60) for _ in range(RECALIBRATIONS)]
    rank = evaluate(samples[0], 10**6, coverage, 0.95)["rank"]
    solved = [np.sort(counts[counts >= 0]) for counts in samples]
    at_limit = {m: coverage_bound(m, 60, 0.95) <= 0.9 for m in {len(counts) for counts in solved}}
    held = [len(counts) >= rank for counts in solved]
    valid = sum(
        F(int(counts[rank - 1])) >= coverage if holds else at_limit[len(counts)]
        for counts, holds in zip(solved, held, strict=True)
    )
    assert held.count(False) > 20
    assert as_often_as(valid, 0.95) > NEVER


@pytest.mark.parametrize("shifted", [False, True])
def test_the_shift_test_rejects_as_rarely_as_stated(shifted: bool) -> None:
    rng, rejected, rank = np.random.default_rng(5), 0, 26  # of 30, for 80 % with 75 %
    for _ in range(RECALIBRATIONS):
        counts, new = draws("failures", rng, 30), draws("ties" if shifted else "failures", rng, 20)
        ordered = np.sort(counts[counts >= 0])
        k = int(ordered[rank - 1]) if rank <= len(ordered) else None
        rejected += shift_test(counts, new, rank, k).p_value <= 0.1
    if shifted:
        assert rejected > 0.9 * RECALIBRATIONS
    else:
        assert as_often_as(rejected, 0.1, "greater") > NEVER


@pytest.mark.slow
def test_counts_of_solvers_cover_as_often_as_stated() -> None:
    """The distribution is that of 4,000 problems, each as likely, so that its coverage is known."""
    pool = LeastSquares.random(4000, 20, 32, seed=6)
    rng = np.random.default_rng(7)
    for solver in ("FISTA", "GD 1/β_p", "silver"):
        asked = {"gap": 1e-4, "relative_to": "start", "iterations": 511, "progress": False}
        counts = certify_holdout(solver, pool, **asked).counts.numpy()
        valid = 0
        for _ in range(RECALIBRATIONS):
            found = evaluate(counts[rng.integers(0, len(counts), 600)], 511, 0.99, 0.99)
            k = found["iterations"]
            share = float(((counts >= 0) & (counts <= (511 if k is None else k))).mean())
            valid += share >= (0.99 if k is not None else found["coverage_at_limit"])
        assert as_often_as(valid, 0.99) > NEVER
