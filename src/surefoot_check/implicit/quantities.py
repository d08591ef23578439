"""Rigorous enclosures of implicit networks by what is asked for: those of an exact fit nearby, or those of a whole descent."""

from __future__ import annotations

from collections.abc import Mapping

from ..problems import Samples
from ..rigor.bounds import Array
from ..rigor.intervals import Interval
from .enclosures import FIXED, Measured, gap_exact, gap_upper, load_problem, read_weights, sizes
from .jacobian import Jacobian

__all__ = ["FIXED", "base_quantities", "enclosed", "gap_exact", "gap_upper", "load_problem", "read_weights", "sizes"]


def enclosed(at: Measured | Jacobian, quantities: Mapping[str, float]) -> dict[str, Interval]:
    """Enclosures from what was measured."""
    return at.base_quantities(quantities)


def base_quantities(
    problem: Samples, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """Enclosures of the quantities in the ``DIRECTIONS`` of the theorems: of those near a fit where there is the radius of a
    ball."""
    return enclosed((Jacobian if "ball" in quantities else Measured)(problem, weights), quantities)
