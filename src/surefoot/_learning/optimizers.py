"""Optimisers on one tensor of all weights, whose state can be stored and restored exactly.

``torch.optim`` imports the compiler at its first step, which takes longer than most trainings here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor


class Optimizer(ABC):
    """A learning rate, and in ``state`` all that is remembered between steps."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.state: dict[str, Tensor] = {}

    def rate_at(self, epoch: int, share: float) -> float:
        """The rate of the step at this epoch, where ``share`` of the training lies behind; constant unless overridden."""
        return self.rate

    @abstractmethod
    def step(
        self, w: Tensor, gradient: Tensor, value: Tensor, objective: Callable[[Tensor], float], /
    ) -> Tensor | None:
        """The next weights; ``None`` where no step lowers the loss from ``value``, for one that compares."""


class FirstOrder(Optimizer):
    """One that steps by the gradient alone."""

    @abstractmethod
    def step(self, w: Tensor, gradient: Tensor, /, *_: object) -> Tensor:
        """The next weights."""


class SGD(FirstOrder):
    """w - rate ∇F."""

    def step(self, w: Tensor, gradient: Tensor, /, *_: object) -> Tensor:
        return w - self.rate * gradient


class Adam(FirstOrder):
    """Adam (Kingma and Ba, 2015) with β = (.9, .999), ε = 1e-8."""

    def step(self, w: Tensor, gradient: Tensor, /, *_: object) -> Tensor:
        old = self.state
        count = int(old["count"]) + 1 if old else 1
        first = 0.1 * gradient + (0.9 * old["first"] if old else 0.0)
        second = 0.001 * gradient.square() + (0.999 * old["second"] if old else 0.0)
        self.state = {"count": torch.tensor(count), "first": first, "second": second}
        return w - self.rate * (first / (1.0 - 0.9**count)) / ((second / (1.0 - 0.999**count)).sqrt() + 1e-8)


FIRST_ORDER: dict[str, type[FirstOrder]] = {"sgd": SGD, "adam": Adam}
