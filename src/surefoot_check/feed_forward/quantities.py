"""Rigorous enclosures of feed-forward networks by the kind of problem: of the squared loss those of an exact fit, of a training
objective those of a minimum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..rigor.bounds import Array
from ..rigor.intervals import Interval
from . import enclosures
from .enclosures import Measured
from .gradient import half_square
from .hessian import Curvature, gap_bounds
from .network import Network, Objective, load_problem, read_weights, sizes

__all__ = [
    "FIXED",
    "base_quantities",
    "enclosed",
    "gap_exact",
    "gap_upper",
    "load_problem",
    "measured",
    "read_weights",
    "sizes",
]

FIXED: tuple[str, ...] = ()


def measured(problem: Network, weights: Mapping[str, Array]) -> Measured | Curvature:
    """What the base quantities are computed from."""
    return Curvature(problem, weights) if isinstance(problem, Objective) else Measured(problem, weights)


def enclosed(at: Measured | Curvature, quantities: Mapping[str, float]) -> dict[str, Interval]:
    """Enclosures from what was measured."""
    return at.base_quantities(quantities)


def base_quantities(
    problem: Network, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """Enclosures of the quantities in the ``DIRECTIONS`` of the theorems on the kind of problem."""
    return enclosed(measured(problem, weights), quantities)


def gap_upper(problem: Network, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the gap: the squared loss less its least value, or ½‖∇L‖² of an objective."""
    if isinstance(problem, Objective):
        return gap_bounds(problem, weights)[1]
    return Measured(problem, weights).gap


def gap_exact(problem: Network, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of it in ball arithmetic, from the exact weights."""
    return half_square(problem, weights) if isinstance(problem, Objective) else enclosures.gap_exact(problem, weights)
