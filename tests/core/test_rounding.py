"""Numbers rounded to the side on which they are guaranteed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot._core.claims import Claim, Kind
from surefoot._core.rounding import EXACT, of_sides, plain

FLOATS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


@given(FLOATS, st.integers(1, EXACT))
def test_what_is_written_lies_on_the_safe_side(value: float, digits: int) -> None:
    assert float(plain(value, digits, "down")) <= value <= float(plain(value, digits, "up"))


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [(0.05, "0.05", "0.05"), (1.2345678, "1.23457", "1.23456"), (-1.2345678, "-1.23456", "-1.23457"), (0.0, "0", "0"),
     (math.inf, "inf", "inf"), (1234567.8, "1.23457e+06", "1.23456e+06")],
)  # fmt: skip
def test_numbers_in_ascii(value: float, up: str, down: str) -> None:
    assert (plain(value, towards="up"), plain(value, towards="down")) == (up, down)


@given(FLOATS, FLOATS, st.sampled_from(["<", "<=", ">", ">="]))
def test_both_sides_read_as_what_is_decided(left: float, right: float, relation: str) -> None:
    holds = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[relation]
    digits, of_left, of_right = of_sides(left, relation, right, holds)
    shown, beside = float(plain(left, digits, of_left)), float(plain(right, digits, of_right))
    assert {"<": shown < beside, "<=": shown <= beside, ">": shown > beside, ">=": shown >= beside}[relation] == holds


def test_factors_of_the_gap_are_rounded_up() -> None:
    assert Claim(Kind.RATE, 0.123456789, 0.123456789).factor(4) == "0.8766"
    assert Claim(Kind.RATE, 1.23456e-9, 1e-9).factor() == "1 - 1.234e-09"
    assert Claim(Kind.RATE, 0.0, 0.25).factor() == "0.75 in the end"
