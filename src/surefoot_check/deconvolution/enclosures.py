"""What the checker must read and bound of deconvolution; each kind of problem, with its solver, has a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arrays import FormatError
from ..rigor.balls import ball
from ..rigor.bounds import FAST, Array, Level
from ..rigor.intervals import Interval
from .pictures import Picture
from .sparse import Sparse
from .variation import Variation

FIXED: tuple[str, ...] = ("parameters",)
KINDS: dict[str, type[Picture]] = {problem.kind: problem for problem in (Sparse, Variation)}


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Picture:
    """The problem of these arrays; ``FormatError`` where they do not fit together or would take too long."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise FormatError(f"deconvolution does not solve a problem of kind {kind!r}")
    return KINDS[kind](arrays, level)


def read_weights(arrays: Mapping[str, Array], problem: Picture, name: str) -> dict[str, Array]:
    """See ``Picture.iterate``."""
    return problem.iterate(arrays, name)


def sizes(problem: Picture, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """See ``Picture.sizes``."""
    return problem.sizes(weights)


def gap_upper(problem: Picture, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of V at the iterate."""
    return problem.measured(weights)[0][1]


def gap_exact(problem: Picture, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of V; there are no sharper ones than those of ``gap_upper``."""
    low, high = problem.measured(weights)[0]
    return (ball(low) if low > 0.0 else None), ball(high)


def base_quantities(
    problem: Picture, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """See ``Picture.base_quantities``."""
    return problem.base_quantities(weights, quantities)
