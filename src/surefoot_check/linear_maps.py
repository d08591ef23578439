"""Enclosures of systems whose networks are linear maps, on every loss of such a map: what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .arrays import FormatError, numbers
from .completion import Completion
from .problems import LARGEST, LinearMapProblem, OffsetSoftmax, Sensing, Softmax, Squared, one_of
from .rigor.approximation import Approximation
from .rigor.bounds import FAST, Array, Level
from .rigor.intervals import Interval, bounded
from .system import Weights

LINEAR_MAPS: tuple[type[LinearMapProblem], ...] = (Squared, Sensing, Completion, Softmax, OffsetSoftmax)
"""Those that a linear network can solve."""


@dataclass(frozen=True)
class LinearMaps:
    """``Enclosures`` of a system from what is its own."""

    solver: str
    """The networks, as an error calls them."""
    shapes: Mapping[str, str]
    """A letter for each dimension of each weight, such as "nh": the same letter is the same length, and the map is "nm"."""
    end_to_end: Callable[[Weights, Level], Approximation]
    """The map, with its error, from products of a level."""
    exact_map: Callable[[Weights], Any]
    """The map as an ``arb_mat``."""
    own: Callable[[LinearMapProblem, Weights, Approximation, Mapping[str, float]], dict[str, Interval]] = (
        lambda problem, weights, linear_map, quantities: {}
    )
    """Further base quantities, at weights with this map, given the published ones."""
    factors: tuple[str, str] | None = None
    """The two weights that the map is the product of, the second transposed, where it is; of large ones only some entries may be
    asked for, and ``end_to_end`` forms them all."""
    FIXED: tuple[str, ...] = ()
    """Weights that training does not change."""

    def load_problem(self, kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> LinearMapProblem:
        """A loss of a linear map."""
        return one_of(LINEAR_MAPS, kind, arrays, level, self.solver)

    def read_weights(self, arrays: Weights, problem: LinearMapProblem, name: str) -> dict[str, Array]:
        """Those of ``shapes``, float64, of the arrays of the file ``name``."""
        weights = {
            key: numbers(arrays.get(key), f"{name}: {key}", LARGEST, len(letters))
            for key, letters in self.shapes.items()
        }
        lengths = self._lengths(problem, weights)
        for key, W in weights.items():
            wanted = tuple(lengths[letter] for letter in self.shapes[key])
            if W.shape != wanted:
                raise FormatError(
                    f"{name}: {key} has shape {W.shape}; it must have {wanted} to fit problem and weights"
                )
        return weights

    def _lengths(self, problem: LinearMapProblem, weights: Weights) -> dict[str, int]:
        """By letter: n and m of the map, the others of the first weight that has them."""
        lengths = dict(zip("nm", problem.shape, strict=True))
        for key, W in weights.items():
            lengths = dict(zip(self.shapes[key], W.shape, strict=True)) | lengths
        return lengths

    def sizes(self, problem: LinearMapProblem, weights: Weights) -> dict[str, int | bool]:
        """The lengths by letter, and whether the loss is quadratic."""
        return {**self._lengths(problem, weights), "quadratic": problem.quadratic}

    def _map(self, problem: LinearMapProblem, weights: Weights) -> Approximation:
        """The map, or what the problem sees of it."""
        if self.factors is not None and isinstance(problem, Completion):
            return problem.entries(*(weights[name] for name in self.factors))
        return self.end_to_end(weights, problem.level)

    def base_quantities(
        self, problem: LinearMapProblem, weights: Weights, quantities: Mapping[str, float]
    ) -> dict[str, Interval]:
        """Smoothness, strong convexity and gap, and the system's own; without those that have no finite bound."""
        linear_map = self._map(problem, weights)
        shared = {
            "smoothness": problem.smoothness(),
            "strong_convexity": problem.strong_convexity(),
            "initial_gap": (0.0, problem.gap_upper(linear_map)),
        }
        return bounded(shared | self.own(problem, weights, linear_map, quantities))

    def gap_upper(self, problem: LinearMapProblem, weights: Weights) -> float:
        """Rigorous upper bound of the gap."""
        return problem.gap_upper(self._map(problem, weights))

    def gap_exact(self, problem: LinearMapProblem, weights: Weights) -> tuple[Any, Any]:
        """Bounds of the gap in ball arithmetic."""
        return problem.gap_exact(self._map(problem, weights), lambda: self.exact_map(weights))
