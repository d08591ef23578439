"""The constants of Theorem 3.6, from the statement in docs/theorems/linear-resnet.md rather than from the code under test."""

from __future__ import annotations

import math

import pytest

from surefoot._linear_resnet import sgd_theorems as theorems

Q = {
    "norm_A": 2.0,
    "norm_B": 3.0,
    "sigma_min_A": 1.5,
    "sigma_min_B": 2.5,
    "norm_X": 4.0,
    "sigma_min_X": 0.5,
    "samples": 10.0,
    "batch": 5.0,
    "depth": 3.0,
    "delta": 0.1,
    "initial_loss": 7.0,
    "target": 3e-4,
    "row_norm": 1.25,
}
LOW, HIGH, E = 1.5 * 2.5 * 0.5, 2.0 * 3.0 * 4.0, math.e
EPSILON = 1e-4
"""ε' = ε/3."""


@pytest.mark.parametrize("optimal_value", [0.0, 1e-9, 5.0])
def test_theorem_3_6_is_the_statement(optimal_value: float) -> None:
    q, T = {**Q, "optimal_value": optimal_value}, 1000
    found = theorems.condition(theorems.SGD, q)
    # J_low²/J_high ≥ sqrt(8e³) (n/b) log(L0/ε') sqrt(2 L0)
    right = math.sqrt(8.0 * E**3) * 2.0 * math.log(7.0 / EPSILON) * math.sqrt(14.0)
    assert found.left / found.right == pytest.approx(LOW**2 / HIGH / right)
    # η ≤ b J_low² ‖X‖²/(6e³ L n J_high⁴) min{ε'/(‖X‖²_{2,∞} L*), log²2 b/(3 n ‖X‖² log(T/δ) log(L0/ε'))}
    noise = EPSILON / (1.25**2 * optimal_value) if optimal_value else math.inf
    drift = math.log(2.0) ** 2 * 5.0 / (3.0 * 10.0 * 16.0 * math.log(T / 0.1) * math.log(7.0 / EPSILON))
    eta = 5.0 * LOW**2 * 16.0 / (6.0 * E**3 * 3.0 * 10.0 * HIGH**4) * min(noise, drift)
    assert theorems.step(theorems.SGD, q, T) == pytest.approx(eta)


@pytest.mark.parametrize("optimal_value", [0.0, 1e-9, 5.0])
def test_steps_and_step_size_of_theorem_3_6_determine_each_other(optimal_value: float) -> None:
    """T = log((L0 - L*)/ε')/x with x = η L J_low²/e and an η that the theorem allows; no smaller T has one."""
    q = {**Q, "optimal_value": optimal_value}
    count, step = theorems.fixed_point(q)
    total, x = math.log((7.0 - optimal_value) / EPSILON), step * 3.0 * LOW**2 / E
    assert count == pytest.approx(total / x, rel=1e-12)
    assert step <= theorems.step(theorems.SGD, q, count)
    assert total * E / (3.0 * LOW**2) / (count - 1) > theorems.step(theorems.SGD, q, count - 1)


def test_either_term_of_the_minimum_can_be_the_smaller() -> None:
    noisy, exact = (theorems.step(theorems.SGD, {**Q, "optimal_value": value}, 1000) for value in (5.0, 0.0))
    assert noisy < exact
