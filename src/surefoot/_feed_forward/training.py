"""Training of a plain network by an optimiser of torch until a fit is guaranteed: what the program does before it descends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from .._core.losses import Loss
from .._core.samples import sample_loss
from .watch import Seen, Watch


@dataclass(frozen=True)
class Method:
    """An optimiser of torch.

    Attributes:
        make: of parameters and a learning rate.
        rate: the learning rate by default.
        calls: of ``step``, after which the weights are looked at.
        steps: that one call takes.
    """

    make: Callable[[Iterator[nn.Parameter], float], torch.optim.Optimizer]
    rate: float
    calls: int = 100
    steps: int = 1


def _lbfgs(parameters: Iterator[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Twenty steps a call: with one, torch allows its line search one evaluation."""
    return torch.optim.LBFGS(
        parameters, rate, 20, tolerance_grad=0.0, tolerance_change=0.0, history_size=50, line_search_fn="strong_wolfe"
    )


METHODS = {
    "adam": Method(lambda parameters, rate: torch.optim.Adam(parameters, rate), 1e-3),
    "lbfgs": Method(_lbfgs, 1.0, 1, 20),
    "sgd": Method(lambda parameters, rate: torch.optim.SGD(parameters, rate, momentum=0.9), 1e-4),
}
"""By the names of the command line."""


@dataclass(frozen=True)
class Fitted:
    """What a training came to: steps of the optimiser, and the last look at the weights."""

    steps: int
    seen: Seen


def fit(net: nn.Sequential, loss: Loss, optimizer: str, rate: float | None, steps: int) -> Fitted:
    """Train in place, on all rows, until a look at the weights finds a fit guaranteed, for so many steps, or until none lowers
    the loss.

    Args:
        net: float64.
        loss: ½‖f(X) - Y‖².
        optimizer: a key of ``METHODS``.
        rate: its learning rate; by default that of ``METHODS``.
        steps: limit on the steps.

    Raises:
        ValueError: the loss is not finite any more.
    """
    method, samples = METHODS[optimizer], sample_loss(loss)
    made = method.make(net.parameters(), method.rate if rate is None else rate)
    watch, last = Watch(net, loss, method.calls, 1.0, None), math.inf

    def closure() -> float:
        made.zero_grad()
        value = 0.5 * (net(samples.X) - samples.Y).square().sum()
        value.backward()
        return float(value.detach())

    for call in range(math.ceil(steps / method.steps)):
        value = made.step(closure)
        if not math.isfinite(value):
            taken = call * method.steps
            raise ValueError(f"the loss is {value} after {taken} steps of {optimizer}; take a lower learning rate")
        watch.step()
        if watch.certified is not None or value == last:
            break
        last = value
    if not watch.history or watch.history[-1].iteration < watch.iteration:
        watch.look()
    return Fitted(watch.iteration * method.steps, watch.history[-1])
