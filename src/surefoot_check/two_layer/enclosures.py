"""Rigorous enclosures of the base quantities of two-layer linear networks on concrete arrays: W1 (n, h) and W2 (m, h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..linear_maps import LinearMaps
from ..problems import LinearMapProblem
from ..rigor.approximation import Approximation
from ..rigor.balls import arb_matrix
from ..rigor.bounds import Array, Level
from ..rigor.intervals import Interval, squared, sum_of
from .imbalance import measure
from .path_enclosures import quantities_of
from .prescribed import CYCLE, STEPS


def end_to_end(weights: Mapping[str, Array], level: Level) -> Approximation:
    """W1 W2ᵀ (n, m) with its error."""
    return Approximation(*level.product(weights["W1"], weights["W2"].T))


def exact_map(weights: Mapping[str, Array]) -> Any:
    """W1 W2ᵀ as an ``arb_mat``."""
    return arb_matrix(weights["W1"]) * arb_matrix(weights["W2"]).transpose()


def own_quantities(
    problem: LinearMapProblem,
    weights: Mapping[str, Array],
    linear_map: Approximation,
    quantities: Mapping[str, float],
) -> dict[str, Interval]:
    """Of the weights, and of a minimiser that is unique, in ``constants.DIRECTIONS``; where steps are prescribed, their bounds
    and nothing else, which no other theorem asks for."""
    if STEPS[0] in quantities or CYCLE[0] in quantities:
        return quantities_of(problem, weights, quantities)
    imbalance = measure(weights["W1"], weights["W2"], problem.level)
    enclosures: dict[str, Interval] = {
        "lambda_plus": imbalance.plus,
        "lambda_minus": imbalance.minus,
        "lambda_n": imbalance.nth,
        "lambda_m": imbalance.mth,
        "sigma_max_squared": sum_of([squared(*norm) for norm in imbalance.norms]),
    }
    if problem.unique_optimum and problem.strong_convexity()[0] > 0.0:
        enclosures["optimum_sigma_min"], enclosures["optimum_sigma_max"] = problem.optimum_singular_values()
        enclosures["initial_distance"] = problem.distance(linear_map)
    return enclosures


ENCLOSURES = LinearMaps(
    "two-layer networks", {"W1": "nh", "W2": "mh"}, end_to_end, exact_map, own_quantities, ("W1", "W2")
)
