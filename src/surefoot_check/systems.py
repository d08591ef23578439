"""The systems the checker knows: what it must be able to read and to bound of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from . import deconvolution, implicit, inverse, linear_resnet, step_sizes, two_layer
from .problems import Array, Interval, Problem
from .theorems.deconvolution_ladmm import DIRECTIONS as DECONVOLUTION
from .theorems.implicit import DIRECTIONS as IMPLICIT
from .theorems.inverse import DIRECTIONS as INVERSE
from .theorems.linear_resnet import DIRECTIONS as LINEAR_RESNET
from .theorems.step_sizes import DIRECTIONS as STEP_SIZES
from .theorems.two_layer import DIRECTIONS as TWO_LAYER


class System(Protocol):
    """One kind of network; implemented by a module."""

    FIXED: tuple[str, ...]
    """Weights that training does not change."""

    def read_weights(self, arrays: Mapping[str, Array], problem: Problem, name: str) -> dict[str, Array]:
        """The weights among the arrays of the file ``name``, validated against the problem."""
        ...

    def sizes(self, problem: Problem, weights: Mapping[str, Array]) -> dict[str, int | bool]:
        """The sizes that a certificate states."""
        ...

    def base_quantities(
        self, problem: Problem, weights: Mapping[str, Array], quantities: Mapping[str, float]
    ) -> dict[str, Interval]:
        """Rigorous enclosures of the base quantities, given the published ones (some are defined on a published ball)."""
        ...

    def gap_upper(self, problem: Problem, weights: Mapping[str, Array]) -> float:
        """Rigorous upper bound of loss - optimal value at the weights."""
        ...

    def gap_exact(self, problem: Problem, weights: Mapping[str, Array]) -> tuple[Any, Any]:
        """A ball-arithmetic lower bound (``None`` where there is none) and upper bound of it. Slower than ``gap_upper`` and
        with smaller rounding errors; for what that leaves undecided."""
        ...


SYSTEMS: dict[str, System] = {
    "two-layer": two_layer,
    "linear-resnet": linear_resnet,
    "implicit": implicit,
    "step-sizes": step_sizes,
    "inverse": inverse,
    "deconvolution": deconvolution,
}
DIRECTIONS: dict[str, dict[str, str]] = {
    "two-layer": TWO_LAYER,
    "linear-resnet": LINEAR_RESNET,
    "implicit": IMPLICIT,
    "step-sizes": STEP_SIZES,
    "inverse": INVERSE,
    "deconvolution": DECONVOLUTION,
}
"""For each system, the direction in which each published base quantity must err."""
LOADERS: dict[str, Callable[[object, dict[str, Array]], Problem]] = {"inverse": inverse.load_problem}
"""For each system whose problem is no loss on data, what reads it; ``problems.load_problem`` reads the others'."""
