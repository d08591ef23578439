"""Rigorous enclosures of the base quantities of two-layer linear networks on concrete arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounds import down, imbalance_eigenvalue_bounds, singular_value_bounds, up
from .problems import Array, Interval, Problem, end_to_end, squared


def _smallest_squared(W: Array) -> Interval:
    """λ_min(WWᵀ): 0 if W has more rows than columns."""
    if W.shape[0] > W.shape[1]:
        return 0.0, 0.0
    lower, upper = singular_value_bounds(W)
    return squared(float(lower[-1]), float(upper[-1]))


def _largest_squared(W: Array) -> Interval:
    lower, upper = singular_value_bounds(W)
    return squared(float(lower[0]), float(upper[0]))


def _add(a: Interval, b: Interval) -> Interval:
    return max(0.0, down(a[0] + b[0])), up(a[1] + b[1])


def base_quantities(problem: Problem, W1: Array, W2: Array) -> dict[str, Interval]:
    """Enclosures of every quantity in ``theorems.two_layer.DIRECTIONS`` that exists for this problem.

    W1 (n, h) and W2 (m, h), float64. Those that need a unique minimiser are left out where there is none, and so is
    every one whose upper end is not finite (no strong convexity).
    """
    n, h = W1.shape
    m = W2.shape[0]
    lower, upper = imbalance_eigenvalue_bounds(W1, W2)
    zero = (0.0, 0.0)

    def positive(low: Any, high: Any) -> Interval:
        return max(0.0, float(low)), max(0.0, float(high))

    W = end_to_end(W1, W2)
    quantities: dict[str, Interval] = {
        "smoothness": problem.smoothness(),
        "strong_convexity": problem.strong_convexity(),
        "lambda_plus": positive(lower[0], upper[0]),
        "lambda_minus": positive(-upper[-1], -lower[-1]),
        "lambda_n": positive(lower[n - 1], upper[n - 1]) if n <= h else zero,
        "lambda_m": positive(-upper[h - m], -lower[h - m]) if m <= h else zero,
        "initial_gap": (0.0, problem.gap_upper(W)),
        "sigma_min_squared": _add(_smallest_squared(W1), _smallest_squared(W2)),
        "sigma_max_squared": _add(_largest_squared(W1), _largest_squared(W2)),
    }
    if problem.unique_optimum and problem.strong_convexity()[0] > 0.0:
        quantities["optimum_sigma_min"], quantities["optimum_sigma_max"] = problem.optimum_singular_values()
        quantities["initial_distance"] = problem.distance(W)
    return {name: (float(a), float(b)) for name, (a, b) in quantities.items() if np.isfinite([a, b]).all()}
