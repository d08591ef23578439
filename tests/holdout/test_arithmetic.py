"""Binomial tails, ranks and coverages against exact fractions; Smirnov's test against all divisions of small samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import flint
import numpy as np
import pytest
from scipy.stats import binom, ks_2samp

from surefoot._holdout.bounds import coverage_bound
from surefoot.learned import problems_needed
from surefoot_check.checker import PRECISION
from surefoot_check.holdout import binomial
from surefoot_check.holdout.curve import MOST_POINTS, band_rank, band_ranks, points
from surefoot_check.holdout.ranks import MOST, order_test, smirnov, thinned
from surefoot_check.rigor.balls import ball, rational


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    """That of the checker."""
    with flint.ctx.workprec(PRECISION):
        yield


def tail(m: int, n: int, p: float) -> Fraction:
    """P(Bin(n, p) ≥ m), exactly."""
    exact = Fraction(p)
    return sum((math.comb(n, j) * exact**j * (1 - exact) ** (n - j) for j in range(m, n + 1)), Fraction(0))


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("p", [1e-9, 0.3, 0.5, 0.99, 1.0 - 1e-9])
def test_tails_contain_the_exact_value(n: int, p: float) -> None:
    for m in range(n + 2):
        found = binomial.at_least(m, n, ball(p))
        with flint.ctx.workprec(600):
            assert found.contains(rational(tail(m, n, p)))
        assert found.rad() <= 2.0**-85 * found.mid()


@pytest.mark.parametrize(("n", "p"), [(600, 0.99), (20_000, 0.5), (300_000, 0.999)])
def test_long_tails_agree_with_scipy(n: int, p: float) -> None:
    deviation = math.sqrt(n * p * (1.0 - p))
    for z in (-6.0, -1.0, 0.0, 1.0, 4.0):
        m = min(n, round(n * p + z * deviation))
        assert float(binomial.at_least(m, n, ball(p))) == pytest.approx(binom.sf(m - 1, n, p), rel=1e-9)


@pytest.mark.parametrize("n", [1, 24, 53])
def test_a_tail_that_is_equal_to_the_risk_is_enough(n: int) -> None:
    """2⁻ⁿ, exactly: ``problems_needed`` and the rank must not differ."""
    confidence = 1.0 - 2.0**-n
    assert binomial.rank(n, 0.5, confidence) == problems_needed(0.5, confidence) == n


def least_rank(n: int, coverage: float, confidence: float) -> int | None:
    """By exact fractions."""
    found = (r for r in range(1, n + 1) if 1 - tail(r, n, coverage) >= Fraction(confidence))
    return next(found, None)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.99])
@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.99])
def test_the_rank_is_the_least(coverage: float, confidence: float) -> None:
    for n in (1, 3, 8, 40):
        assert binomial.rank(n, coverage, confidence) == least_rank(n, coverage, confidence)


def test_a_tie_that_balls_do_not_decide_is_too_few() -> None:
    assert binomial.rank(1, 0.5, 0.5) == 1  # P(Bin(1, ½) ≤ 0) is ½, exactly
    assert least_rank(3, 0.5, 0.5) == 2
    assert binomial.rank(3, 0.5, 0.5) == 3  # of P(Bin(3, ½) ≥ 2) the terms are rounded
    assert problems_needed(0.5, 0.75) == 2


NEEDED = {
    0.8: (11, 14, 21, 31),
    0.9: (22, 29, 44, 66),
    0.95: (45, 59, 90, 135),
    0.99: (230, 299, 459, 688),
    0.999: (2302, 2995, 4603, 6905),
}
"""The table of docs/theorems/holdout.md, for confidences of 90, 95, 99 and 99.9 %."""


def test_the_numbers_of_the_page() -> None:
    """docs/theorems/holdout.md."""
    page = (Path(__file__).parents[2] / "docs/theorems/holdout.md").read_text()
    for coverage, needed in NEEDED.items():
        assert f"| {100 * coverage:g} % | " + " | ".join(f"{n:,}" for n in needed) + " |" in page
    ranks = band_ranks(600)
    assert f"{len(ranks)} ranks of 600" in page
    last = coverage_bound(600, 600, 0.99, len(ranks))
    assert f"it is {100 * last:.2f} %, where the band of Dvoretzky" in page
    assert f"is {100 * (1.0 - math.sqrt(math.log(100) / 1200)):.2f} %; that is the better one below" in page


def test_how_many_problems_are_needed() -> None:
    for coverage, needed in NEEDED.items():
        assert tuple(problems_needed(coverage, q) for q in (0.9, 0.95, 0.99, 0.999)) == needed
    for n, r in ((458, None), (459, 459), (661, 661), (662, 661), (837, 836), (838, 836)):
        assert binomial.rank(n, 0.99, 0.99) == r
    with pytest.raises(ValueError, match=r"coverage is 1\.0"):
        problems_needed(1.0, 0.9)
    with pytest.raises(TypeError, match="confidence"):
        problems_needed(0.9, "high")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"10\^15"):
        problems_needed(math.nextafter(1.0, 0.0), 0.99)


@pytest.mark.parametrize("n", [1, 5, 30])
@pytest.mark.parametrize("confidence", [0.2, 0.999])
def test_a_coverage_is_proved_and_no_larger_one_is(n: int, confidence: float) -> None:
    failing = 1 - Fraction(confidence)
    for m in range(n + 1):
        p = coverage_bound(m, n, confidence)
        assert p == 0.0 if m == 0 else tail(m, n, p) <= failing
        more = p * (1.0 + 1e-9)
        assert m == 0 or more >= 1.0 or tail(m, n, more) > failing
        assert binomial.is_largest(p, m, n, binomial.failing(confidence))
        assert m == 0 or not binomial.is_largest(p * (1.0 - 1e-6), m, n, binomial.failing(confidence))
        assert m == 0 or not binomial.is_proved(min(p * (1.0 + 1e-6), 1.0 - 1e-16), m, n, binomial.failing(confidence))


def test_points_of_the_curve_and_ranks_of_the_band() -> None:
    assert points(np.array([3, -1, 0, 3, 7])) == [(0, 1), (3, 3), (7, 4)]
    assert points(np.array([-1, -1])) == []
    many = points(np.arange(10_000))
    assert len(many) == MOST_POINTS
    assert (many[0], many[-1]) == ((0, 1), (9999, 10_000))
    ranks = band_ranks(600)
    assert (len(ranks), ranks[-3:], ranks[0] >= 1, ranks == sorted(set(ranks))) == (49, [598, 599, 600], True, True)
    assert [band_rank([2, 5], m) for m in (1, 2, 4, 5, 9)] == [0, 2, 2, 5, 5]


def every_division(values: list[int], n: int) -> Iterator[tuple[list[int], list[int]]]:
    for chosen in combinations(range(len(values)), n):
        yield [values[i] for i in chosen], [v for i, v in enumerate(values) if i not in chosen]


def distance(first: list[int], second: list[int]) -> Fraction:
    """D, exactly."""
    at = sorted({*first, *second})
    shares = [
        (Fraction(sum(v <= t for v in first), len(first)), Fraction(sum(v <= t for v in second), len(second)))
        for t in at
    ]
    return max(abs(a - b) for a, b in shares)


@pytest.mark.parametrize(
    "values", [[1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 1, 2, 2, 5, 5, 9], [0, 0, 0, 0, 0, 0, 1, 1], [4] * 8]
)
@pytest.mark.parametrize("n", [1, 3, 4])
def test_smirnov_is_the_share_of_divisions_as_far_apart(values: list[int], n: int) -> None:
    divisions = list(every_division(values, n))
    distances = [distance(*division) for division in divisions]
    for division, observed in zip(divisions, distances, strict=True):
        share = sum(d >= observed for d in distances) / len(distances)
        p = smirnov(np.array(division[0]), np.array(division[1]))
        assert share <= p <= share * (1.0 + 1e-12)


def test_smirnov_of_larger_samples_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    for n, m, shift in ((40, 30, 0.0), (300, 200, 0.3), (100, 400, 1.0)):
        a, b = rng.normal(size=n), rng.normal(shift, size=m)
        ranks = np.argsort(np.argsort(np.concatenate([a, b])))
        p = smirnov(ranks[:n], ranks[n:])
        assert p == pytest.approx(float(ks_2samp(a, b, method="exact").pvalue), rel=1e-8)  # pyright: ignore


def test_the_order_test_sees_a_drift_and_puts_failures_last() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(10, 60, 400)
    assert order_test(counts) > 0.01
    assert order_test(np.sort(counts)) < 1e-30
    failing = np.where(np.arange(400) < 100, -1, counts)  # a quarter of them, all at the beginning
    assert order_test(failing) < 1e-10
    assert order_test(np.array([5])) == 1.0
    assert len(thinned(np.arange(10 * MOST + 1))) <= MOST
