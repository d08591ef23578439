"""Optimisers on the vector of all weights, whose state can be stored and restored exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

Objective = Callable[[Tensor], float]
"""The loss at given weights."""
DECREASE = 1e-4
"""Share of the linear decrease that a line search asks for."""
HALVINGS = 60
MEMORY = 10


class Optimizer(ABC):
    """One step at a time."""

    searches: ClassVar[bool] = False
    """Whether it compares losses along the way, which needs the exact gradient."""
    remembers: ClassVar[bool] = False
    """Whether it compares gradients of different epochs, which needs fixed problems."""
    default_rate: ClassVar[float]

    def __init__(self, rate: float) -> None:
        self.rate = rate

    @abstractmethod
    def step(self, w: Tensor, value: float, gradient: Tensor, objective: Objective) -> Tensor | None:
        """The next weights; ``None`` where no step lowers the loss."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What ``restore`` needs to continue exactly."""

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a stored state."""


class SGD(Optimizer):
    """w - rate ∇F, full batch."""

    default_rate = 1e-7  # of the paper, for e = 100

    def step(self, w: Tensor, value: float, gradient: Tensor, objective: Objective) -> Tensor:
        return w - self.rate * gradient

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        return


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015) with β = (.9, .999), ε = 1e-8."""

    default_rate = 1e-3

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self._state: dict[str, Tensor] = {}

    def step(self, w: Tensor, value: float, gradient: Tensor, objective: Objective) -> Tensor:
        old = self._state
        count = int(old["count"]) + 1 if old else 1
        first = 0.1 * gradient + (0.9 * old["first"] if old else 0.0)
        second = 0.001 * gradient.square() + (0.999 * old["second"] if old else 0.0)
        self._state = {"count": torch.tensor(count), "first": first, "second": second}
        return w - self.rate * (first / (1.0 - 0.9**count)) / ((second / (1.0 - 0.999**count)).sqrt() + 1e-8)

    def state(self) -> dict[str, Tensor]:
        return self._state

    def restore(self, state: dict[str, Tensor]) -> None:
        self._state = state


class Armijo(Optimizer):
    """Gradient descent, each step halved until the loss falls by ``DECREASE`` step ‖∇F‖²; tries twice the last step first."""

    searches = True
    default_rate = 1.0

    def step(self, w: Tensor, value: float, gradient: Tensor, objective: Objective) -> Tensor | None:
        found = backtrack(w, value, -gradient, float(gradient @ -gradient), 2.0 * self.rate, objective)
        if found is None:
            return None
        self.rate, new = found
        return new

    def state(self) -> dict[str, Tensor]:
        return {"rate": torch.tensor(self.rate, dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.rate = float(state["rate"])


class LBFGS(Optimizer):
    """L-BFGS (Nocedal, 1980) with ``MEMORY`` pairs, of positive curvature only, and the line search of ``Armijo`` from step 1;
    the first direction is ``rate`` times the gradient divided by its norm."""

    searches, remembers = True, True
    default_rate = 1.0

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._last: tuple[Tensor, Tensor] | None = None

    def step(self, w: Tensor, value: float, gradient: Tensor, objective: Objective) -> Tensor | None:
        if self._last is not None:
            s, y = w - self._last[0], gradient - self._last[1]
            if float(s @ y) > 1e-10 * float(s.norm() * y.norm()):
                self._pairs = [*self._pairs, (s, y)][-MEMORY:]
        self._last = w, gradient
        for pairs in (
            (self._pairs, []) if self._pairs else ([],)
        ):  # the gradient itself where the direction leads nowhere
            direction = self._direction(gradient, pairs)
            found = backtrack(w, value, direction, float(gradient @ direction), 1.0, objective)
            if found is not None:
                self._pairs = pairs
                return found[1]
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

    def state(self) -> dict[str, Tensor]:
        stored = {} if self._last is None else {"w": self._last[0], "gradient": self._last[1]}
        for index, (s, y) in enumerate(self._pairs):
            stored |= {f"s{index}": s, f"y{index}": y}
        return stored

    def restore(self, state: dict[str, Tensor]) -> None:
        self._last = (state["w"], state["gradient"]) if state else None
        self._pairs = [(state[f"s{index}"], state[f"y{index}"]) for index in range(max(0, len(state) // 2 - 1))]


def backtrack(
    w: Tensor, value: float, direction: Tensor, slope: float, step: float, objective: Objective
) -> tuple[float, Tensor] | None:
    """The first of step, step/2, … with F(w + step direction) ≤ F(w) + ``DECREASE`` step slope, strictly below F(w), and the
    point; ``None`` if the direction does not lead downwards or none of ``HALVINGS`` steps will do."""
    if not slope < 0.0:
        return None
    for _ in range(HALVINGS):
        trial = w + step * direction
        found = objective(trial)
        if found <= value + DECREASE * step * slope and found < value:
            return step, trial
        step *= 0.5
    return None


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "armijo": Armijo, "lbfgs": LBFGS}
