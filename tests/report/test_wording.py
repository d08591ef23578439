"""Numbers and names as reports write them."""

from __future__ import annotations

import math

import pytest

from surefoot._core.certificate import Condition
from surefoot._report.wording import (
    both,
    by_family,
    count,
    distance,
    factor,
    in_terminal,
    margin,
    number,
    ratio,
    safe_side,
    symbolic,
)


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


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.00001234567, "1.235 × 10⁻⁵", "1.234 × 10⁻⁵"),
        (-12.34567, "−12.34", "−12.35"),
        (0.05, "0.05", "0.05"),
        (1234567.0, "1.235 × 10⁶", "1.234 × 10⁶"),
        (999.99, "1,000", "999.9"),
        (1.0 - 1e-9, "1", "0.9999"),
        (-1e7, "−10⁷", "−10⁷"),
    ],
)
def test_what_is_guaranteed_is_rounded_to_the_safe_side(value: float, up: str, down: str) -> None:
    assert number(value, towards="up") == up
    assert number(value, towards="down") == down


def condition(left: float, relation: str, right: float, holds: bool) -> Condition:
    usable = left > 0.0 and right > 0.0 and math.isfinite(left) and math.isfinite(right)
    logs = math.log10(left / right) if usable else None
    return Condition("c", left, relation, right, holds, logs if logs is None or relation[0] == ">" else -logs)


def test_sides_of_a_hypothesis_read_as_what_is_decided() -> None:
    assert both(condition(0.1234561, "<", 0.1234569, True)) == ("0.1234561", "0.1234569")
    assert both(condition(1.0 - 1e-8, "<", 1.0, True)) == ("0.99999999", "1")
    assert both(condition(1.0 - 1e-8, "<=", 1.0, True)) == ("1", "1")
    assert both(condition(2.345671, ">=", 1.000011, True)) == ("2.345", "1.001")
    assert both(condition(1.0 + 1e-8, "<=", 1.0, False)) == ("1.00000001", "1")
    assert both(condition(0.0, ">", 0.0, False)) == ("0", "0")
    assert both(condition(math.nan, "<", 1.0, False)) == ("not a number", "1")
    assert both(condition(math.inf, "<=", 1.0, False)) == ("∞", "1")


def test_measured_quantities_are_rounded_to_the_side_on_which_they_may_err() -> None:
    towards = safe_side("feed-forward/local")
    assert (towards("initial_gap"), towards("sigma_min_J"), towards("radius")) == ("up", "down", "nearest")
    assert safe_side("implicit/spectral")("mass[1]") == "up"
    assert safe_side("of-a-reader/any")("initial_gap") == "nearest"


def test_margins_without_a_ratio_are_differences() -> None:
    assert margin(condition(11.49996, ">", 0.0, True)) == "11.49 to spare"
    assert distance(condition(11.49996, ">", 0.0, True)) == math.inf
    assert margin(condition(2.70001, "<=", 0.0, False)) == "short by 2.701"
    assert distance(condition(2.70001, "<=", 0.0, False)) == -math.inf
    assert margin(condition(0.0, "<=", 0.0, True)) == "met exactly"
    assert distance(condition(0.0, "<=", 0.0, True)) == 0.0
    assert margin(condition(0.0, ">", 0.0, False)) == "the sides are equal"
    assert margin(condition(math.nan, ">", 0.0, False)) == "a side is not a number"
    assert math.isnan(distance(condition(math.nan, ">", 0.0, False)))


SYMBOLS = {"node_max": ("z²", ""), "node_min": ("σ²", ""), "l3": ("λ₃", ""), "g0": ("γ₀", ""), "c": ("c", "")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("imbalance and margin: alpha1 > 0", "imbalance and margin: α₁ > 0"),
        ("the residual is small: 2 Lambda r0 < sigma_min(J)^2", "the residual is small: 2 Λ r₀ < σ_min(J)²"),
        ("step below 1/K_bar: eta0 K_bar0 < 1", "step below 1/K̄: η₀ K̄₀ < 1"),
        ("gamma beta ||W||^2 <= 1", "γ β ‖W‖² ≤ 1"),
        ("(19): 16 Q l3^2 |X|_F^2/(1-g0)^2 <= alpha^2", "(19): 16 Q λ₃² ‖X‖_F²/(1−γ₀)² ≤ α²"),
        ("the nodes lie apart: node_max > 1.001 node_min", "the nodes lie apart: z² > 1.001 σ²"),
        ("all coefficients are 1: max |C - 1| <= 0", "all coefficients are 1: max |C − 1| ≤ 0"),
        ("smin(A)^2 >= 4 sqrt(2 e^3) sqrt(gap)", "σ_min(A)² ≥ 4 √(2 e³) √(gap)"),
        ("(1-exp(-eta0^c))(1-Delta)", "(1−exp(−η₀ᶜ))(1−Δ)"),
        ("descent of Theorem I: L' <= L - (eta - eta^2 K'(eta)/2) |grad L|^2",
         "descent of Theorem I: L′ ≤ L − (η − η² K′(η)/2) ‖∇L‖²"),
        ("eta is at most the theorem's step", "η is at most the theorem's step"),
        ("s-(t) stays at least (1-theta) alpha1", "s₋(t) stays at least (1−θ) α₁"),
        ("no pre-activation reaches a kink", "no pre-activation reaches a kink"),
    ],
)  # fmt: skip
def test_names_are_written_in_the_symbols_of_the_papers(name: str, said: str) -> None:
    assert symbolic(name, SYMBOLS) == said
    assert in_terminal(name, SYMBOLS, "utf-8") == said
    assert in_terminal(name, SYMBOLS, "ascii") == name


def test_factors_margins_and_counts() -> None:
    assert factor(0.173) == "0.827"
    assert factor(4.236e-9) == "1 − 4.236 × 10⁻⁹"
    assert factor(0.0) == "1 (no rate)"
    assert factor(0.0123456) == "0.9877"
    assert ratio(0.0) == "0 % to spare"
    assert ratio(math.log10(1.05049)) == "5.04 % to spare"
    assert ratio(-1.0) == "short by a factor of 10"
    assert ratio(math.log10(4.3219)) == "4.32 times to spare"
    assert ratio(-math.log10(4.3219)) == "short by a factor of 4.33"
    assert ratio(400.0) == "10⁴⁰⁰ times to spare"
    assert count(math.inf) == "none"
    assert count(10**9) == "1,000,000,000"
    assert count(5435970149) == "more than 10⁹"


def test_quantities_of_one_name_are_a_family() -> None:
    single, families = by_family({"f": 1.0, "mass[0]": 2.0, "mass[1]": 3.0})
    assert single == {"f": 1.0}
    assert families == {"mass": [2.0, 3.0]}
