"""A solver as the core's descent sees it: the iterate (z, x, μ) is what moves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from .._core.status import RunStatus
from .operators import fft_error
from .problem import ObservedPicture
from .solver import AnySolver
from .solver import Iterate as State


class Iterate:
    """An iterate with its successor, from which the change V is measured."""

    def __init__(self, solver: AnySolver, problem: ObservedPicture, state: State, iteration: int) -> None:
        self._solver, self._problem, self.state = solver, problem, state
        self.following = solver.step(problem, state, iteration)
        self.gap = float(solver.change(problem, state, self.following, iteration))

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records: V as the gap, the objective, the worst relative duality gap of the images, and the V that
        rounding can cause."""
        bounds = self._solver.gap(self._problem, self.state)
        return {
            "gap": self.gap,
            "objective": float(bounds.primal.sum()),
            "duality_gap": float(bounds.relative.max()),
            "rounding": rounding_of(self._solver, self._problem, self.state),
        }


class SolverEngine:
    """Iterates (float64); ``move`` takes one iteration, whatever its argument."""

    failure: RunStatus | None = None

    def __init__(self, solver: AnySolver, problem: ObservedPicture, name: str) -> None:
        self._solver, self._problem, self.name, self._iteration = solver, problem, name, 0
        self.iterate = self._at(solver.start(problem))

    def _at(self, state: State) -> Iterate:
        return Iterate(self._solver, self._problem, state, self._iteration)

    def move(self, eta: float) -> None:
        """One iteration."""
        self._iteration += 1
        self.iterate = self._at(self.iterate.following)

    def weights(self) -> dict[str, Tensor]:
        """z, x, multiplier and parameters."""
        return self._solver.stored(self.iterate.state)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        return {**self._solver.extra_state(self.iterate.state), "iteration": torch.tensor(self._iteration)}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self._iteration = int(state["iteration"])
        self.iterate = self._at(self._solver.restored(self._problem, weights, state))


def rounding_of(solver: AnySolver, problem: ObservedPicture, state: State) -> float:
    """The square of what rounding can add to the H-norm of a difference of iterates, from the size of one."""
    error = fft_error(torch.float64, problem.blur.domain) + problem.rounding()
    return error**2 * solver.scale(state)
