"""Rigorous enclosures of the base quantities of deep linear ResNets on concrete arrays.

Weights A (m, d), B (k, m), W (L, m, m) on a squared loss with stored X (r, d), Y (r, k), or on N rows of data that can be fitted:
f(x) = B (I+W_L) … (I+W_1) A x, and the end-to-end map of the problem is (B … A)ᵀ (d, k).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import FormatError, numbers
from ..problems import LARGEST, Fitted, Squared, one_of
from ..rigor.balls import arb_matrix
from ..rigor.bounds import FAST, Array, Level, frobenius_upper
from ..rigor.intervals import Interval, bounded
from ..rigor.spectra import singular_value_bounds
from .batches import Batches
from .measuring import end_to_end, measure, quantities_on_ball

DEEPEST = 512
"""Largest depth: a check measures L²/2 products and takes time of order L³."""
SHAPES = {"A": 2, "B": 2, "W": 3}
FIXED: tuple[str, ...] = ("A", "B")
KINDS: tuple[type[Squared | Fitted], ...] = (Squared, Fitted)


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Squared | Fitted:
    """A squared loss, or one of rows that can be fitted, of which batches are drawn."""
    return one_of(KINDS, kind, arrays, level, "linear ResNets")


def read_weights(arrays: Mapping[str, Array], problem: Squared | Fitted, name: str) -> dict[str, Array]:
    """A (m, d), B (k, m), W (L, m, m), float64, of the arrays of the file ``name``."""
    weights = {key: numbers(arrays.get(key), f"{name}: {key}", LARGEST, count) for key, count in SHAPES.items()}
    A, B, W = weights.values()
    if len(W) > DEEPEST:
        raise FormatError(f"{name}: W has {len(W)} layers; certificates are checked up to {DEEPEST}")
    d, k = problem.shape
    if A.shape[1] != d or B.shape[0] != k or B.shape[1] != A.shape[0] or W.shape[1:] != (A.shape[0],) * 2:
        raise FormatError(f"{name}: A, B and W do not fit each other or the problem")
    return weights


def sizes(problem: Squared | Fitted, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """d, k, width m, depth L; N where batches are drawn."""
    d, k = problem.shape
    found = {"d": d, "k": k, "m": weights["A"].shape[0], "depth": len(weights["W"]), "quadratic": problem.quadratic}
    return found | {"samples": len(problem.X)} if isinstance(problem, Fitted) else found


def exact_map(weights: Mapping[str, Array]) -> Any:
    """The same as an ``arb_mat``."""
    identity = arb_matrix(np.eye(weights["A"].shape[0]))
    value = arb_matrix(weights["A"])
    for layer in weights["W"]:
        value = (identity + arb_matrix(layer)) * value
    return (arb_matrix(weights["B"]) * value).transpose()


def gap_upper(problem: Squared | Fitted, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the gap."""
    return problem.gap_upper(end_to_end(weights, problem.level))


def gap_exact(problem: Squared | Fitted, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the gap in ball arithmetic."""
    return problem.gap_exact(end_to_end(weights, problem.level), lambda: exact_map(weights))


def base_quantities(
    problem: Squared | Fitted, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """Enclosures of the quantities in ``constants.DIRECTIONS``; those on the ball if ``quantities`` has a radius. Of rows of
    which batches are drawn, of those in ``minibatch.DIRECTIONS``, on the published balls."""
    if isinstance(problem, Fitted):
        return bounded(Batches(problem, weights).enclosures(quantities))
    A, B, W = weights["A"], weights["B"], weights["W"]
    result: dict[str, Interval] = {
        "initial_gap": (0.0, gap_upper(problem, weights)),
        "weight_norm": (0.0, frobenius_upper(W)),
    }
    for name, matrix in (("A", A), ("B", B), ("X", problem.design)):
        lower, upper = singular_value_bounds(matrix, problem.level)
        result[f"norm_{name}"] = float(lower[0]), float(upper[0])
        result[f"sigma_min_{name}"] = max(0.0, float(lower[-1])), float(upper[-1])
    if A.shape[0] < A.shape[1]:  # the theorems mean λ_min(AᵀA) and λ_min(BBᵀ), not the last singular value
        result["sigma_min_A"] = (0.0, 0.0)
    if B.shape[1] < B.shape[0]:
        result["sigma_min_B"] = (0.0, 0.0)
    if not W.any():
        result["weight_norm"] = (0.0, 0.0)
    radius = quantities.get("radius")
    if radius is not None and 0.0 <= radius < np.inf:
        result |= quantities_on_ball(measure(weights, problem.design, problem.level), radius, problem.level)
    return bounded(result)
