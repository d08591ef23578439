"""Optimisers on the vector of all weights that search along a direction, beside those that step by the gradient alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._learning.optimizers import FIRST_ORDER, Optimizer

Objective = Callable[[Tensor], float]
"""The loss at given weights."""
DECREASE = 1e-4
"""Share of the linear decrease that a line search asks for."""
HALVINGS = 60
MEMORY = 10


class LineSearch(Optimizer):
    """Compares losses along the way, which needs the exact gradient."""


class Armijo(LineSearch):
    """Gradient descent, each step halved until the loss falls by ``DECREASE`` step ‖∇F‖²; tries twice the last step first."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.state = {"rate": torch.tensor(rate, dtype=torch.float64)}

    def step(self, w: Tensor, gradient: Tensor, value: Tensor, objective: Objective, /) -> Tensor | None:
        first = 2.0 * float(self.state["rate"])
        taken = backtrack(w, float(value), -gradient, float(gradient @ -gradient), first, objective)
        if taken is None:
            return None
        rate, w = taken
        self.state = {"rate": torch.tensor(rate, dtype=torch.float64)}
        return w


class LBFGS(LineSearch):
    """L-BFGS (Nocedal, 1980) with ``MEMORY`` pairs, of positive curvature only, and the line search of ``Armijo`` from step 1;
    the first direction is ``rate`` times the gradient divided by its norm. It compares gradients of different epochs, which
    needs fixed problems."""

    def step(self, w: Tensor, gradient: Tensor, value: Tensor, objective: Objective, /) -> Tensor | None:
        old = self.state
        pairs = [(old[f"s{index}"], old[f"y{index}"]) for index in range(len(old) // 2 - 1)]
        if old:
            s, y = w - old["w"], gradient - old["gradient"]
            if float(s @ y) > 1e-10 * float(s.norm() * y.norm()):
                pairs = [*pairs, (s, y)][-MEMORY:]
        for used in (pairs, []) if pairs else ([],):  # the gradient itself where the direction leads nowhere
            direction = self._direction(gradient, used)
            taken = backtrack(w, float(value), direction, float(gradient @ direction), 1.0, objective)
            if taken is not None:
                self.state = {"w": w, "gradient": gradient}
                for index, (s, y) in enumerate(used):
                    self.state |= {f"s{index}": s, f"y{index}": y}
                return taken[1]
        return None

    def _direction(self, gradient: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
        if not pairs:
            return -self.rate * gradient / gradient.norm().clamp(min=torch.finfo(gradient.dtype).tiny)
        q, weights = gradient, []
        for s, y in reversed(pairs):
            weights.append((s @ q) / (s @ y))
            q = q - weights[-1] * y
        s, y = pairs[-1]
        q = q * (s @ y) / (y @ y)
        for (s, y), weight in zip(pairs, reversed(weights), strict=True):
            q = q + (weight - (y @ q) / (s @ y)) * s
        return -q


def backtrack(
    w: Tensor, value: float, direction: Tensor, slope: float, step: float, objective: Objective
) -> tuple[float, Tensor] | None:
    """The first of step, step/2, … with F(w + step direction) ≤ F(w) + ``DECREASE`` step slope, strictly below F(w), and the
    point; ``None`` if the direction does not lead downwards or none of ``HALVINGS`` steps will do."""
    if not slope < 0.0:
        return None
    for _ in range(HALVINGS):
        trial = w + step * direction
        reached = objective(trial)
        if reached <= value + DECREASE * step * slope and reached < value:
            return step, trial
        step *= 0.5
    return None


OPTIMIZERS: dict[str, type[Optimizer]] = {**FIRST_ORDER, "armijo": Armijo, "lbfgs": LBFGS}
RATES = {"sgd": 1e-7, "adam": 1e-3, "armijo": 1.0, "lbfgs": 1.0}
"""Learning rates by default: the paper's for sgd, with expansion 100; of the line searches the first step."""
