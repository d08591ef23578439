"""Gradient descent on the weights of a feed-forward network, and how far it is from its start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from .._core.engine import AlignedEngine, Weights, WeightsIterate
from .._core.near_a_fit.pseudo_inverse import PseudoInverse, flat, parted
from .._core.steps import armijo_from_polyak
from .directions import hessian, inverse_at, newton
from .loss import NetworkLoss
from .objective import NetworkObjective


class Iterate(WeightsIterate):
    """The network at one set of weights: one pass forward, and one backward where the gradient is asked for.

    Args:
        loss: the squared loss, which is the gap; relu'(0) = 0 in its gradient.
        at: the weights by name.
        start: those from which distances are measured.
    """

    _direction: Weights | None = None
    _tried: tuple[float, Self] | None = None

    def __init__(self, loss: Any, at: Weights, start: Weights) -> None:
        self.at, self.loss, self._start = at, loss, start

    @cached_property
    def _forward(self) -> tuple[Weights, Tensor]:
        return followed(self.loss, self.at)

    @cached_property
    def value(self) -> float:
        """The loss."""
        return float(self._forward[1].detach())

    @cached_property
    def gap(self) -> float:
        """The loss itself, less its least value."""
        return self.value

    @cached_property
    def gradient(self) -> Weights:
        """Of the loss in each weight."""
        return backward(*self._forward)

    @cached_property
    def distance(self) -> float:
        """D: of all weights to those of the start."""
        return distance(self.at, self._start)

    @property
    def direction(self) -> Weights:
        """What steps are taken against: the gradient, unless ``turned``."""
        return self.gradient if self._direction is None else self._direction

    def turned(self, direction: Weights | None) -> Self:
        """The same place, from which steps go against the direction; ``None`` for the gradient."""
        here = copy(self)  # with all that was computed
        here._direction, here._tried = direction, None
        here.__dict__.pop("_forward", None)  # which gives one gradient
        return here

    def after(self, eta: float) -> Self:
        """The iterate a step η on; the last is kept, as a step is tried before it is taken."""
        if self._tried is None or self._tried[0] != eta:
            moved = {name: weight - eta * self.direction[name] for name, weight in self.at.items()}
            self._tried = eta, type(self)(self.loss, moved, self._start)
        return self._tried[1]

    def distance_after(self, eta: float) -> float:
        """D after a step η."""
        return self.after(eta).distance

    @cached_property
    def measurements(self) -> dict[str, float]:
        """What the trace records of this iterate."""
        return {**super().measurements, "distance": self.distance}


class Fit(Iterate):
    """The same where the loss is the squared loss itself."""

    @cached_property
    def residual(self) -> Tensor:
        """r (n,)."""
        return self.loss.residual(self.at).reshape(-1)

    @cached_property
    def inverse(self) -> PseudoInverse:
        """J⁺ here."""
        return inverse_at(self.loss, self.at)

    def newton_step(self, inverse: PseudoInverse) -> Weights:
        """J⁺r of the residual here with a J⁺, here or elsewhere: the least step to a fit of the linear model."""
        return parted(inverse(self.residual), self.at)


class Stationary(Iterate):
    """The same where the loss is a training objective: the gap is ½‖∇L‖²."""

    @cached_property
    def gap(self) -> float:
        """½‖∇L‖²."""
        return 0.5 * self.gradient_squared

    @cached_property
    def newton(self) -> Weights:
        """|H|⁻¹∇L, the absolute value taken of the eigenvalues of the Hessian."""
        return parted(newton(hessian(self.loss, self.at), flat(self.gradient)), self.at)

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
    return backward(*followed(loss, at))


def followed(loss: NetworkLoss | NetworkObjective, at: Weights) -> tuple[Weights, Tensor]:
    """Copies of the weights as leaves, and the loss as a function of them."""
    leaves = leaves_of(at)
    with torch.enable_grad():
        return leaves, loss.value(leaves)


def leaves_of(at: Weights) -> Weights:
    """Copies of the weights, of which gradients are taken."""
    return {name: weight.detach().requires_grad_() for name, weight in at.items()}


def backward(leaves: Weights, value: Tensor) -> dict[str, Tensor]:
    """The gradient of what ``followed`` returned, once."""
    return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))


def distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Euclidean distance of two sets of weights."""
    return math.sqrt(sum(float(torch.linalg.vector_norm(a[name] - b[name])) ** 2 for name in a))


def inner(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Euclidean inner product of two sets of weights."""
    return sum(float((a[name] * b[name]).sum()) for name in a)


class Engine(AlignedEngine):
    """Gradient descent from the weights ``start``; a network is defined at all weights, so that nothing fails.

    Args:
        loss, start: of which network, from where.
        resolution: the gap that rounding alone can cause, evaluated where it is asked for.
    """

    name = "weights"
    iterate: Iterate

    def __init__(
        self, loss: NetworkLoss | NetworkObjective, start: Weights, resolution: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._loss, self.start, self._resolution = loss, start, resolution
        self._kind = Stationary if isinstance(loss, NetworkObjective) else Fit
        self.iterate = self._kind(loss, start, start)

    @cached_property
    def resolution(self) -> float:
        """The gap that rounding alone can cause."""
        return self._resolution()

    def require_fit(self, rule: str) -> None:
        """Raise ``TypeError`` or ``ValueError`` where there is no exact fit for that rule to go to."""
        if not isinstance(self.iterate, Fit):
            raise TypeError(
                f"steps={rule!r} needs a loss with an exact fit, sf.SquaredLoss(X, Y); of this training objective "
                "use steps='newton'"
            )
        n, p = self.iterate.loss.merged[1].numel(), parameters(self)
        if n > p:
            raise ValueError(
                f"steps={rule!r} needs at most as many outputs (rows times outputs of a row) as trained numbers, here {n} "
                f"and {p}: there is no exact fit; minimise sf.TorchLoss(nn.MSELoss(), X, Y, weight_decay) by steps='newton'"
            )

    def inverse_at_start(self) -> PseudoInverse:
        """J⁺ at the weights from which this engine started."""
        assert isinstance(self._loss, NetworkLoss)
        return inverse_at(self._loss, self.start)

    def turn(self, direction: Weights | None) -> None:
        """Take the next step against a direction, ``None`` for the gradient; those after it are along gradients again."""
        self.iterate = self.iterate.turned(direction)

    def weights(self) -> Weights:
        """The current weights."""
        return self.iterate.at

    def restore(self, weights: Weights, state: Weights) -> None:
        """Continue from a checkpoint; distances are measured from where this engine started."""
        at = {name: weights[name].to(start.device) for name, start in self.start.items()}
        self.iterate = self._kind(self._loss, at, self.start)
        self.alignment = float(state["alignment"])


def parameters(engine: Engine) -> int:
    """How many numbers are trained."""
    return sum(weight.numel() for weight in engine.iterate.at.values())
