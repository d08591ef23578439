"""Constants of a batch where the matrices or the scales are degenerate: no bound may come out on the wrong side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import step_sizes_reference as reference

from surefoot_check.step_sizes import enclosures as step_sizes
from surefoot_check.step_sizes.enclosures import load_problem


def loaded(kind: str, **arrays: Any) -> Any:
    return load_problem(kind, {name: np.asarray(value, dtype=np.float64) for name, value in arrays.items()})


def test_rows_of_zeros_make_no_loss_strongly_convex() -> None:
    """A tall matrix of rank 1: the nonzero rows are fewer than the columns. A linear rate would be false, and by far."""
    M = [[[1.0, 0.999], [0.0, 0.0], [0.0, 0.0]]]
    arrays = {"M": np.array(M), "Y": np.array([[1.0, 0.0, 0.0]]), "lam": np.array([0.01])}
    arrays["optimum"] = np.array([[0.99, 0.0]])
    problem = loaded("lasso-batch", **arrays)
    assert problem.strong_convexity == [0.0]
    at = reference.weights(arrays, 1.0, 1.5, x=np.array([[0.0, 0.99]]))
    made = reference.certificate("step-sizes/prox-rate", "lasso-batch", arrays, at)
    assert made.holds and made.quantities["loss_convexity_ratio"] == 0.0
    objective = reference.Reference(arrays, 0).objective
    least = objective(arrays["optimum"][0])
    for t, x in enumerate(reference.run(arrays, at, 100)):
        assert objective(x[0]) - least <= made.bound(t)


def test_strong_convexity_is_the_smallest_eigenvalue() -> None:
    """Of MᵀM, whatever rows and columns are zero or repeated."""
    g = np.random.default_rng(0)
    positive = 0
    for _ in range(200):
        rows, columns = g.integers(1, 6, 2)
        M = g.integers(-2, 3, (rows, columns)).astype(float)
        M[g.random(rows) < 0.3] = 0.0
        problem = loaded("lasso-batch", M=M[None], Y=np.ones((1, rows)), lam=np.ones(1), optimum=np.zeros((1, columns)))
        exact = float(np.linalg.eigvalsh(M.T @ M)[0])
        assert problem.strong_convexity[0] <= exact + 1e-13
        assert exact < 1e-10 or problem.strong_convexity[0] >= exact * (1.0 - 1e-5)
        positive += problem.strong_convexity[0] > 0.0
    assert 20 < positive < 180


def test_the_smallest_nonzero_eigenvalue_is_enclosed_for_any_rank() -> None:
    """Equal rows: 4 is that of [[1, 1], [1, 1]], which a claim of 3 does not contradict."""
    problem = loaded("least-squares-batch", M=np.ones((1, 2, 2)), Y=np.ones((1, 2)), optimum=np.full((1, 2), 0.5))
    low, high = problem.smallest[0]
    assert low == 0.0 and 4.0 <= high < 4.1


def test_a_bound_of_the_distance_that_overflows_is_left_out() -> None:
    arrays = {"M": np.eye(2)[None], "Y": np.ones((1, 2)), "lam": np.array([1e-250]), "optimum": np.ones((1, 2))}
    at = reference.weights({**arrays, "M": np.array([[[1.0, 0.0], [0.0, 0.0]]])}, 1.0, 1.5)
    problem = loaded("lasso-batch", **{**arrays, "M": np.array([[[1.0, 1.0], [1.0, 1.0]]])})
    found = step_sizes.base_quantities(problem, step_sizes.read_weights(at, problem, "test"), {})
    assert "radius_energy" not in found and "initial_gap" in found


@pytest.mark.parametrize("small", [1e-165, 1e-140])
def test_a_dual_excess_that_squares_to_zero_still_counts(small: float) -> None:
    """norm²/(2 l2), where norm² underflows and l2 is subnormal: of order 1 for the second, which no lower bound may ignore."""
    l2 = 5e-324
    problem = loaded("logistic-batch", M=[[[small]]], labels=[[1.0]], lam=[0.0], l2=[l2], optimum=[[0.0]])
    dual = problem.dual(0, np.zeros(1))
    # D(θ) for θ = 1/2 is log 2 - (small/2)²/(2 l2); that of θ = 0 is 0
    exact = math.log(2.0) - math.exp(2.0 * math.log(small / 2.0) - math.log(2.0) - math.log(l2))
    assert dual.value <= max(exact, 0.0) + 1e-15
