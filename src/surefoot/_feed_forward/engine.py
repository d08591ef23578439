"""Gradient descent on the weights of a feed-forward network, and how far it is from its start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, Self

import torch
from torch import Tensor

from .._core.engine import AlignedEngine, Weights, WeightsIterate
from .._core.steps import armijo_from_polyak
from .loss import NetworkLoss
from .objective import NetworkObjective


class Iterate(WeightsIterate):
    """The network at one set of weights.

    Args:
        loss: the squared loss, which is the gap; relu'(0) = 0 in its gradient.
        at: the weights by name.
        start: those from which distances are measured.
    """

    def __init__(self, loss: Any, at: Weights, start: Weights) -> None:
        super().__init__(at, lambda weights: _half_square(loss.residual(weights)), partial(gradient, loss))
        self.loss, self._start = loss, start

    @cached_property
    def distance(self) -> float:
        """D: of all weights to those of the start."""
        return distance(self.at, self._start)

    def after(self, eta: float) -> Self:
        """The iterate a step η on."""
        moved = {name: weight - eta * self.gradient[name] for name, weight in self.at.items()}
        return type(self)(self.loss, moved, self._start)

    def distance_after(self, eta: float) -> float:
        """D after a step η."""
        return self.after(eta).distance

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate."""
        return {**super().measurements, "distance": self.distance}


class Stationary(Iterate):
    """The same where the loss is a training objective: the gap is ½‖∇L‖²."""

    @cached_property
    def gap(self) -> float:
        """½‖∇L‖²."""
        return 0.5 * self.gradient_squared

    @cached_property
    def value(self) -> float:
        """The objective."""
        return float(self.loss.value(self.at))

    @cached_property
    def safe_step(self) -> float:
        """Of the objective itself, which a step along its gradient lowers."""
        return armijo_from_polyak(_Values(self))


class _Values:
    """An iterate as Armijo's rule sees it: the objective in place of the gap."""

    def __init__(self, at: Stationary) -> None:
        self.gap, self.gradient_squared, self._at = at.value, at.gradient_squared, at

    def trial(self, eta: float) -> float:
        return self._at.after(eta).value


def gradient(loss: NetworkLoss | NetworkObjective, at: Weights) -> dict[str, Tensor]:
    """Of the loss in each weight."""
    leaves = {name: weight.detach().requires_grad_() for name, weight in at.items()}
    with torch.enable_grad():
        value = loss.value(leaves)
    return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))


def _half_square(residual: Tensor) -> float:
    return 0.5 * float(torch.linalg.vector_norm(residual)) ** 2


def distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Euclidean distance of two sets of weights."""
    return math.sqrt(sum(float(torch.linalg.vector_norm(a[name] - b[name])) ** 2 for name in a))


def inner(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Euclidean inner product of two sets of weights."""
    return sum(float((a[name] * b[name]).sum()) for name in a)


class Engine(AlignedEngine):
    """Gradient descent from the weights ``start``; a network is defined at all weights, so that nothing fails."""

    name = "weights"
    iterate: Iterate

    def __init__(self, loss: NetworkLoss | NetworkObjective, start: Weights) -> None:
        self._loss, self._start = loss, start
        self._kind = Stationary if isinstance(loss, NetworkObjective) else Iterate
        self.iterate = self._kind(loss, start, start)

    def weights(self) -> Weights:
        """The current weights."""
        return self.iterate.at

    def restore(self, weights: Weights, state: Weights) -> None:
        """Continue from a checkpoint; distances are measured from where this engine started."""
        at = {name: weights[name].to(start.device) for name, start in self._start.items()}
        self.iterate = self._kind(self._loss, at, self._start)
        self.alignment = float(state["alignment"])
