"""The linearised ADMM as the core's descent sees it: the iterate (z, x, μ) is what moves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from surefoot_check.deconvolution.ladmm import RULE

from .._core.status import RunStatus
from .admm import LADMM, State
from .operators import fft_error
from .problem import DeconvolutionProblem


class Iterate:
    """An iterate with its successor, from which the change V is measured."""

    def __init__(self, solver: LADMM, problem: DeconvolutionProblem, state: State, iteration: int) -> None:
        self._solver, self._problem, self.state = solver, problem, state
        self.following = solver.step(problem, state, iteration)
        self.gap = float(solver.change(problem, state, self.following, iteration))

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records: V as the gap, the objective, the worst relative duality gap of the images, and the V that
        rounding can cause."""
        bounds = self._problem.duality_gap(self.state.x, self.state.synthesis)
        return {
            "gap": self.gap,
            "objective": float(bounds.primal.sum()),
            "duality_gap": float(bounds.relative.max()),
            "rounding": rounding_of(self._solver, self._problem, self.state),
        }


class LADMMEngine:
    """Iterates (float64); ``move`` takes one iteration, whatever its argument."""

    name = RULE
    failure: RunStatus | None = None

    def __init__(self, solver: LADMM, problem: DeconvolutionProblem) -> None:
        self._solver, self._problem, self._iteration = solver, problem, 0
        self.iterate = self._at(solver.start(problem))

    def _at(self, state: State) -> Iterate:
        return Iterate(self._solver, self._problem, state, self._iteration)

    def move(self, eta: float) -> None:
        """One iteration."""
        self._iteration += 1
        self.iterate = self._at(self.iterate.following)

    def weights(self) -> dict[str, Tensor]:
        """z, x, multiplier (..., H, W) and parameters (5,)."""
        return weights_of(self._solver, self.iterate.state)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights: Wᵀx as it was rounded, and the iteration."""
        return {
            "synthesis": self.iterate.state.synthesis.clone(),
            "iteration": torch.tensor(self._iteration),
        }

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self._iteration = int(state["iteration"])
        z, x, multiplier = (weights[name].clone() for name in ("z", "x", "multiplier"))
        self.iterate = self._at(State(z, x, multiplier, state["synthesis"].clone()))


def rounding_of(solver: LADMM, problem: DeconvolutionProblem, state: State) -> float:
    """The square of what rounding can add to the H-norm of a difference of iterates, from the size of one."""
    error = fft_error(torch.float64, problem.blur.domain) + problem.wavelet.rounding()
    scale = state.x.square().sum() / solver.gamma + state.z.square().sum() * (1.0 / solver.alpha + solver.beta)
    return float(error**2 * scale)


def weights_of(solver: LADMM, state: State) -> dict[str, Tensor]:
    """The arrays that a certificate and a checkpoint speak of: the iterate, and α, β, γ, whether the solver is adaptive (0 or 1)
    and whether it has an inner one, so that the certificate of one solver is not taken for another's."""
    numbers = [solver.alpha, solver.beta, solver.gamma, float(solver.adaptive), float(solver.inner is not None)]
    parameters = torch.tensor(numbers, dtype=torch.float64, device=state.x.device)
    return {
        "z": state.z.clone(),
        "x": state.x.clone(),
        "multiplier": state.multiplier.clone(),
        "parameters": parameters,
    }
