"""One iteration of a learned solver as the core's descent sees it: the iterates x are what moves, the network stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from .._problems import Problems
from .._problems.batch import proximal_step
from .network import StepSizeNet


class Iterate:
    """The iterates x (N, d) of all problems, with what the network proposes there."""

    def __init__(self, net: StepSizeNet, problems: Problems, inverse: Tensor, x: Tensor) -> None:
        self._net, self._problems, self._inverse, self.x = net, problems, inverse, x
        self.gap = max(float(problems.gap(x).sum()), 0.0)  # in this order NaN stays

    @cached_property
    def gradient(self) -> Tensor:
        """∇f_p (N, d)."""
        return self._problems.gradient(self.x)

    @cached_property
    def steps(self) -> Tensor:
        """P (N, d)."""
        return self._net.steps(self._net.evaluator().evaluate(self.x, self.gradient))

    @property
    def following(self) -> Tensor:
        """The next iterates (N, d)."""
        return proximal_step(self._problems, self.x, self.gradient, self.steps * self._inverse)

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate: the gap, ‖∇f‖², and the range of P."""
        return {
            "gap": self.gap,
            "gradient_squared": float((self.gradient**2).sum()),
            "lowest": float(self.steps.min()),
            "highest": float(self.steps.max()),
        }


class SolverEngine:
    """Iterates of a learned solver (float64); ``move`` takes one iteration, whatever its argument."""

    name = "solver"
    failure = None

    def __init__(self, net: StepSizeNet, problems: Problems, beta: Tensor, x: Tensor) -> None:
        self._net, self._problems, self._beta = net, problems, beta
        self._inverse = (1.0 / beta)[:, None]
        self.iterate = self._at(x)

    def _at(self, x: Tensor) -> Iterate:
        return Iterate(self._net, self._problems, self._inverse, x)

    def move(self, eta: float) -> None:
        """One iteration."""
        self.iterate = self._at(self.iterate.following)

    def weights(self) -> dict[str, Tensor]:
        """x (N, d), beta (N,), range (2,)."""
        interval = torch.tensor(self._net.range, dtype=torch.float64, device=self._beta.device)
        return {"x": self.iterate.x.clone(), "beta": self._beta, "range": interval}

    def state(self) -> dict[str, Tensor]:
        """Nothing beyond the weights."""
        return {}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        self.iterate = self._at(weights["x"].clone())
