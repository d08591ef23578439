"""Rigorous enclosures of the base quantities of two-layer linear networks on concrete arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arrays import FormatError, numbers
from ..problems import LARGEST, LINEAR_MAPS, LinearMapProblem, one_of
from ..rigor.approximation import Approximation
from ..rigor.balls import arb_matrix
from ..rigor.bounds import FAST, Array, Level
from ..rigor.intervals import Interval, bounded, squared, sum_of
from .imbalance import measure

FIXED: tuple[str, ...] = ()


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> LinearMapProblem:
    """A loss of a linear map."""
    return one_of(LINEAR_MAPS, kind, arrays, level, "two-layer networks")


def read_weights(arrays: Mapping[str, Array], problem: LinearMapProblem, name: str) -> dict[str, Array]:
    """W1 (n, h) and W2 (m, h), float64, of the arrays of the file ``name``."""
    weights = {key: numbers(arrays.get(key), f"{name}: {key}", LARGEST, 2) for key in ("W1", "W2")}
    W1, W2 = weights.values()
    if (len(W1), len(W2)) != problem.shape:
        raise FormatError(f"{name}: W1 or W2 does not fit the problem")
    if W1.shape[1] != W2.shape[1]:
        raise FormatError(f"{name}: W1 and W2 differ in width")
    return weights


def sizes(problem: LinearMapProblem, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """n, m, width h, and whether the loss is quadratic."""
    n, m = problem.shape
    return {"n": n, "m": m, "h": weights["W1"].shape[1], "quadratic": problem.quadratic}


def end_to_end(weights: Mapping[str, Array], level: Level) -> Approximation:
    """W1 W2ᵀ (n, m) with its error."""
    return Approximation(*level.product(weights["W1"], weights["W2"].T))


def exact_map(weights: Mapping[str, Array]) -> Any:
    """W1 W2ᵀ as an ``arb_mat``."""
    return arb_matrix(weights["W1"]) * arb_matrix(weights["W2"]).transpose()


def gap_upper(problem: LinearMapProblem, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the gap."""
    return problem.gap_upper(end_to_end(weights, problem.level))


def gap_exact(problem: LinearMapProblem, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the gap in ball arithmetic."""
    return problem.gap_exact(end_to_end(weights, problem.level), lambda: exact_map(weights))


def base_quantities(
    problem: LinearMapProblem, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """Enclosures of every quantity in ``constants.DIRECTIONS`` that exists for this problem.

    Those that need a unique minimiser are left out where there is none, and so is every one whose upper end is not finite (no
    strong convexity).
    """
    of, at = measure(weights["W1"], weights["W2"], problem.level), end_to_end(weights, problem.level)
    found: dict[str, Interval] = {
        "smoothness": problem.smoothness(),
        "strong_convexity": problem.strong_convexity(),
        "lambda_plus": of.plus,
        "lambda_minus": of.minus,
        "lambda_n": of.nth,
        "lambda_m": of.mth,
        "initial_gap": (0.0, problem.gap_upper(at)),
        "sigma_max_squared": sum_of([squared(*norm) for norm in of.norms]),
    }
    if problem.unique_optimum and problem.strong_convexity()[0] > 0.0:
        found["optimum_sigma_min"], found["optimum_sigma_max"] = problem.optimum_singular_values()
        found["initial_distance"] = problem.distance(at)
    return bounded(found)
