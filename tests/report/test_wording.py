"""Numbers and names as reports write them."""

from __future__ import annotations

import math

import pytest

from surefoot._report.wording import by_family, count, factor, margin, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (940.1833630716451, "940.2"),
        (1234567, "1,234,567"),
        (26656.03, "26,660"),
        (-0.25, "−0.25"),
        (1e-10, "10⁻¹⁰"),
        (5.239108e-08, "5.239 × 10⁻⁸"),
        (9.99999, "10"),
        (0.000999999, "0.001"),
        (999999.7, "10⁶"),
        (math.inf, "∞"),
        (math.nan, "not a number"),
        (10**400, "more than 10³⁰⁸"),
    ],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    assert number(value) == text


def test_factors_margins_and_counts() -> None:
    assert factor(0.173) == "0.827"
    assert factor(4.236e-9) == "1 − 4.236 × 10⁻⁹"
    assert factor(0.0) == "1 (no rate)"
    assert margin(0.0) == "0 % to spare"
    assert margin(math.log10(1.05)) == "5 % to spare"
    assert margin(-1.0) == "short by a factor of 10"
    assert margin(400.0) == "10⁴⁰⁰ times to spare"
    assert count(math.inf) == "none"
    assert count(10**9) == "1,000,000,000"
    assert count(5435970149) == "more than 10⁹"


def test_quantities_of_one_name_are_a_family() -> None:
    single, families = by_family({"f": 1.0, "mass[0]": 2.0, "mass[1]": 3.0})
    assert single == {"f": 1.0}
    assert families == {"mass": [2.0, 3.0]}
