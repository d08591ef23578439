"""Rigorous enclosures of the base quantities of two-layer linear networks on concrete arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import FormatError
from ..problems import Array, Interval, LinearMapProblem, Problem, Product, arb_matrix, product_of, read_arrays, squared
from ..rigor.bounds import FAST, Level, down, up
from ..rigor.gram import singular_extremes
from .imbalance import measure

FIXED: tuple[str, ...] = ()
"""Weights that training does not change."""


def _add(a: Interval, b: Interval) -> Interval:
    return max(0.0, down(a[0] + b[0])), up(a[1] + b[1])


def read_weights(arrays: Mapping[str, Array], problem: Problem, name: str) -> dict[str, Array]:
    """W1 (n, h) and W2 (m, h), float64, of the arrays of the file ``name``."""
    assert isinstance(problem, LinearMapProblem)
    n, m = problem.shape
    weights = read_arrays(arrays, {"W1": (n, None), "W2": (m, None)}, name)
    if weights["W1"].shape[1] != weights["W2"].shape[1]:
        raise FormatError(f"{name}: W1 and W2 differ in width")
    return weights


def sizes(problem: Problem, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """n, m, width h, and whether the loss is quadratic."""
    assert isinstance(problem, LinearMapProblem)
    n, m = problem.shape
    return {"n": n, "m": m, "h": weights["W1"].shape[1], "quadratic": problem.quadratic}


def end_to_end(weights: Mapping[str, Array], level: Level = FAST) -> Product:
    """W1 W2ᵀ (n, m) with its error."""
    return product_of(weights["W1"], weights["W2"], level)


def exact_map(weights: Mapping[str, Array]) -> Any:
    """W1 W2ᵀ as an ``arb_mat``."""
    return arb_matrix(weights["W1"]) * arb_matrix(weights["W2"]).transpose()


def gap_upper(problem: Problem, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the gap."""
    assert isinstance(problem, LinearMapProblem)
    return problem.gap_upper(end_to_end(weights, problem.level))


def gap_exact(problem: Problem, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the gap in ball arithmetic."""
    assert isinstance(problem, LinearMapProblem)
    return problem.gap_exact(end_to_end(weights, problem.level), lambda: exact_map(weights))


def base_quantities(
    problem: Problem, weights: Mapping[str, Array], quantities: Mapping[str, float] | None = None
) -> dict[str, Interval]:
    """Enclosures of every quantity in ``theorems.two_layer.DIRECTIONS`` that exists for this problem.

    ``quantities``: the published ones; with them s₋(0), which no theorem asks for, is left out. Those that need a unique
    minimiser are left out where there is none, and so is every one whose upper end is not finite (no strong convexity).
    """
    assert isinstance(problem, LinearMapProblem)
    W1, W2 = weights["W1"], weights["W2"]
    of, at = measure(W1, W2, problem.level), end_to_end(weights, problem.level)
    found: dict[str, Interval] = {
        "smoothness": problem.smoothness(),
        "strong_convexity": problem.strong_convexity(),
        "lambda_plus": of.plus,
        "lambda_minus": of.minus,
        "lambda_n": of.nth,
        "lambda_m": of.mth,
        "initial_gap": (0.0, problem.gap_upper(at)),
        "sigma_max_squared": _add(*(squared(*norm) for norm in of.norms)),
    }
    if quantities is None:  # no theorem asks for it; λ_min(WWᵀ) is 0 if W has more rows than columns
        smallest = [
            squared(*singular_extremes(W, problem.level)[0]) if W.shape[0] <= W.shape[1] else (0.0, 0.0)
            for W in (W1, W2)
        ]
        found["sigma_min_squared"] = _add(*smallest)
    if problem.unique_optimum and problem.strong_convexity()[0] > 0.0:
        found["optimum_sigma_min"], found["optimum_sigma_max"] = problem.optimum_singular_values()
        found["initial_distance"] = problem.distance(at)
    return {name: (float(a), float(b)) for name, (a, b) in found.items() if np.isfinite([a, b]).all()}
