"""Gradient descent on the weights of a feed-forward network, and how far it is from its start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .._core.status import RunStatus
from .._core.steps import armijo_from_polyak
from .loss import NetworkLoss
from .objective import NetworkObjective

Weights = dict[str, Tensor]


class Iterate:
    """The network at one set of weights.

    Args:
        loss: the squared loss, which is the gap.
        at: the weights by name.
        start: those from which distances are measured.
    """

    def __init__(self, loss: Any, at: Weights, start: Weights) -> None:
        self.loss, self.at, self._start = loss, at, start

    @cached_property
    def gap(self) -> float:
        """½‖r‖²."""
        return _half_square(self.loss.residual(self.at))

    @cached_property
    def value(self) -> float:
        """The loss."""
        return float(self.loss.value(self.at))

    @cached_property
    def gradient(self) -> Weights:
        """Of the loss in each weight; relu'(0) = 0."""
        return gradient(self.loss, self.at)

    @cached_property
    def gradient_squared(self) -> float:
        """‖∇‖²."""
        return inner(self.gradient, self.gradient)

    @cached_property
    def distance(self) -> float:
        """D: of all weights to those of the start."""
        return distance(self.at, self._start)

    def after(self, eta: float) -> Weights:
        """The weights a step η on."""
        return {name: weight - eta * self.gradient[name] for name, weight in self.at.items()}

    def trial(self, eta: float) -> float:
        """The gap after a step η."""
        return _half_square(self.loss.residual(self.after(eta)))

    def distance_after(self, eta: float) -> float:
        """D after a step η."""
        return distance(self.after(eta), self._start)

    @cached_property
    def safe_step(self) -> float:
        """See ``_core.steps.armijo_from_polyak``."""
        return armijo_from_polyak(self)

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate."""
        return {"gap": self.gap, "gradient_squared": self.gradient_squared, "distance": self.distance}


class Stationary(Iterate):
    """The same where the loss is a training objective: the gap is ½‖∇L‖²."""

    @cached_property
    def gap(self) -> float:
        """½‖∇L‖²."""
        return 0.5 * self.gradient_squared

    def trial(self, eta: float) -> float:
        """The gap after a step η."""
        after = gradient(self.loss, self.after(eta))
        return 0.5 * inner(after, after)

    @cached_property
    def safe_step(self) -> float:
        """Of the objective itself, which a step along its gradient lowers."""
        return armijo_from_polyak(_Values(self))


class _Values:
    """An iterate as Armijo's rule sees it: the objective in place of the gap."""

    def __init__(self, at: Stationary) -> None:
        self.gap, self.gradient_squared, self._at = at.value, at.gradient_squared, at

    def trial(self, eta: float) -> float:
        return float(self._at.loss.value(self._at.after(eta)))


def gradient(loss: NetworkLoss | NetworkObjective, at: Mapping[str, Tensor]) -> Weights:
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


class Engine:
    """Gradient descent from the weights ``start``."""

    name = "weights"

    def __init__(self, loss: NetworkLoss | NetworkObjective, start: Weights) -> None:
        self._loss, self._start = loss, start
        self._kind = Stationary if isinstance(loss, NetworkObjective) else Iterate
        self.iterate = self._kind(loss, start, start)
        self.alignment = 0.0

    @property
    def failure(self) -> RunStatus | None:
        """None: a network is defined at all weights."""
        return None

    def move(self, eta: float) -> None:
        """One step; ``alignment`` becomes the inner product of the gradients of the iterate left and the one reached."""
        before = self.iterate
        self.iterate = self._kind(self._loss, before.after(eta), self._start)
        self.alignment = inner(before.gradient, self.iterate.gradient)

    def weights(self) -> Weights:
        """The current weights."""
        return self.iterate.at

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beyond the weights."""
        return {"alignment": torch.tensor(self.alignment, dtype=torch.float64)}

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint; distances are measured from where this engine started."""
        at = {name: weights[name].to(start.device) for name, start in self._start.items()}
        self.iterate = self._kind(self._loss, at, self._start)
        self.alignment = float(state["alignment"])
