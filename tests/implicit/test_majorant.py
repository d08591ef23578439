"""The majorant of ``implicit/spectral``: 128 masses instead of a spectrum, and the schedule that follows from them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot._core.evaluation import evaluate
from surefoot._core.schedule import gap_at, iterations_to
from surefoot_check.checker import PRECISION
from surefoot_check.implicit import spectral
from surefoot_check.implicit.constants import MASSES, NODES, node_places
from surefoot_check.rigor.balls import ball
from surefoot_check.statement import Schedule, converted

Array = np.ndarray
Values = dict[str, Any]


def masses(eigenvalues: Array, squares: Array, node_min: float, node_max: float) -> list[float]:
    """Σ_i w_j(λ_i) squares_i, w_j the hat functions of the nodes."""
    places = node_places(node_min, node_max)
    assert places is not None
    return [float(np.interp(eigenvalues, places, hat) @ squares) for hat in np.eye(NODES)]


def proved_exactly(quantities: Values, schedule: Schedule) -> bool:
    """With the precision of the checker, which long schedules need."""
    with flint.ctx.workprec(PRECISION):
        exact = {name: ball(value) for name, value in quantities.items()}
        return all(o.certain for o in spectral.THEOREM.obligations(exact, converted(schedule, ball)))


def drawn_spectrum(seed: int) -> tuple[Array, Array, float]:
    """Eigenvalues with condition 1e2 … 1e6, squares of the components of a unit residual, the condition."""
    g = np.random.default_rng(seed)
    condition, size = 10.0 ** g.uniform(2, 6), int(g.integers(2, 200))
    eigenvalues = np.sort(np.exp(g.uniform(0.0, math.log(condition), size)))
    eigenvalues[0], eigenvalues[-1] = 1.0, condition
    components = g.standard_normal(size) * eigenvalues ** g.choice([0.0, 0.25, 0.5])
    return eigenvalues, (components / np.linalg.norm(components)) ** 2, condition


def frozen(seed: int, theta: float) -> tuple[Values, Array, Array]:
    """Base quantities of a network whose hidden layer hardly matters."""
    eigenvalues, squares, condition = drawn_spectrum(seed)
    q: Values = {"initial_gap": 0.5, "gamma": 1e-12, "norm_X": 1e-9, "norm_A": 1e-3, "norm_b": 0.0, "kappa": 0.0}
    q |= dict(zip(MASSES, masses(eigenvalues, squares, 1.0, condition), strict=True))
    q |= {"node_min": 1.0, "node_max": condition, "tau": 0.0, "delta": 0.0}
    q["eta"] = min(theta / condition, 2.0 / (1.0 + condition) * (1.0 - 1e-9))
    return q, eigenvalues, squares


def exact_model(eigenvalues: Array, squares: Array, eta: float, k: int) -> float:
    """p_k²."""
    rates = eta * eigenvalues
    beyond = np.where(rates < 1.0, -rates, rates - 2.0)  # |1 - ηλ| = 1 + beyond: not rounded away before the power
    logarithms = np.log1p(np.maximum(beyond, -1.0 + 2.0**-53))
    return float((squares * np.exp(2.0 * k * logarithms)).sum())


@given(seed=st.integers(0, 10**6), theta=st.sampled_from([0.3, 1.0, 1.5, 1.9]), k=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_majorant_lies_above_the_model_and_its_sum(seed: int, theta: float, k: int) -> None:
    q, eigenvalues, squares = frozen(seed, theta)
    majorant = spectral.Majorant(q)
    for count in (0, 1, k):
        assert majorant(count) ** 2 >= exact_model(eigenvalues, squares, q["eta"], count) * (1.0 - 1e-11)
    nu = (squares * np.maximum(1.0, q["eta"] * eigenvalues) ** 2 / eigenvalues).sum()
    assert majorant.nu_squared >= nu * (1.0 - 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_sums_and_blocks_bound_every_iteration(seed: int) -> None:
    """Marks far apart: the levels between them too lie above p_k + T_k, with an ε that matters."""
    eigenvalues, squares, _ = drawn_spectrum(seed)
    eigenvalues = np.maximum(eigenvalues, eigenvalues[-1] / 300.0)
    node_min, node_max = float(eigenvalues[0]), float(eigenvalues[-1])
    q: Values = {"initial_gap": 0.5, "gamma": 1e-12, "norm_X": 1e-9, "norm_A": 1e-3, "norm_b": 0.0}
    q |= {"kappa": 0.05 * node_min, "tau": 0.1 * node_min / math.sqrt(node_max), "delta": 0.0}
    q |= dict(zip(MASSES, masses(eigenvalues, squares, node_min, node_max), strict=True))
    q |= {"node_min": node_min, "node_max": node_max}
    quantities, conditions, schedule = evaluate(spectral.THEOREM, q)
    assert all(c.certain for c in conditions)
    eta, epsilon = quantities["eta"], quantities["epsilon"]
    T = total = 0.0
    for k in range(int(2 * quantities["horizon"])):
        p = math.sqrt(exact_model(eigenvalues, squares, eta, k))
        bound = gap_at([s for s in schedule if s.start <= k][-1], k)
        if 0 < k < quantities["horizon"]:
            assert bound >= 0.5 * (p + T) ** 2 * (1.0 - 1e-10)
            assert bound <= 0.5 * (p + T) ** 2 * 1.5
        total += eta * p
        T = (1.0 - eta * (node_min - epsilon)) * T + eta * epsilon * p
    assert total <= quantities["P"] <= 1.02 * total


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("theta", [1.0, 1.9])
def test_guaranteed_count_is_that_of_the_linear_model(seed: int, theta: float) -> None:
    q, eigenvalues, squares = frozen(seed, theta)
    _, conditions, schedule = evaluate(spectral.THEOREM, q)
    assert all(c.certain for c in conditions)
    for target in (1e-3, 1e-8):
        low, high = 0, int(60.0 / q["eta"])
        while high - low > 1:
            middle = (low + high) // 2
            reached = exact_model(eigenvalues, squares, q["eta"], middle) <= target
            low, high = (low, middle) if reached else (middle, high)
        assert high <= iterations_to(schedule, target) <= 1.01 * high + 1


def test_a_first_step_that_hardly_gains_is_proved() -> None:
    """Published masses sum to more than the residual, so that the model after one step may lie above the initial gap."""
    q, _, _ = frozen(0, 1.0)
    q |= dict.fromkeys(MASSES, 0.0) | {MASSES[0]: 1.0 + 1e-6, "node_max": 1e8, "eta": 1e-8}
    quantities, conditions, schedule = evaluate(spectral.THEOREM, q)
    assert all(c.certain for c in conditions)
    assert schedule[0].level == 0.5 == gap_at(schedule[0], 1) < schedule[1].level
    assert proved_exactly(quantities, schedule)


def test_floats_stay_below_the_slack_over_billions_of_iterations() -> None:
    """A spectrum of condition 1e10 and an ε that matters: 1e-10 a step must not be rounded to a multiple of 1e-16."""
    q, _, _ = frozen(1, 1.9)
    q |= dict.fromkeys(MASSES, 0.0) | {MASSES[j]: 1.0 / NODES for j in range(0, NODES, 2)}
    q |= {"node_max": 1e10, "eta": 1.9e-10, "kappa": 0.9}
    quantities, conditions, schedule = evaluate(spectral.THEOREM, q)
    assert all(c.certain for c in conditions)
    assert schedule[-1].start > 1e10
    assert proved_exactly(quantities, schedule)


@given(st.integers(1, 10**15))
def test_marks_are_increasing_and_end_at_the_horizon(horizon: int) -> None:
    marks = spectral.marks(float(horizon))
    assert marks[:2] == [0, 1]
    assert marks[-1] == horizon
    assert all(a < b for a, b in pairwise(marks))
    assert len(marks) < 600
