"""Training by an optimiser of torch, watched: what the program does before it certifies and descends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..losses import Loss
from ..progress import progress_line
from .watch import Watch, watchable_of


@dataclass(frozen=True)
class Method:
    """An optimiser of torch.

    Attributes:
        make: of parameters and a learning rate.
        rate: the learning rate by default, of a squared loss summed over the rows.
        mean_rate: that of a criterion's mean.
        every: steps after which the weights are looked at.
        steps: that one call takes.
    """

    make: Callable[[Iterator[nn.Parameter], float], torch.optim.Optimizer]
    rate: float
    mean_rate: float
    every: int = 100
    steps: int = 1


def _lbfgs(parameters: Iterator[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Twenty steps a call: with one, torch allows its line search one evaluation."""
    return torch.optim.LBFGS(
        parameters, rate, 20, tolerance_grad=0.0, tolerance_change=0.0, history_size=50, line_search_fn="strong_wolfe"
    )


METHODS = {
    "adam": Method(lambda parameters, rate: torch.optim.Adam(parameters, rate), 1e-3, 1e-3),
    "lbfgs": Method(_lbfgs, 1.0, 1.0, 20, 20),
    "sgd": Method(lambda parameters, rate: torch.optim.SGD(parameters, rate, momentum=0.9), 1e-4, 1e-1),
}
"""By the names of the command line."""


def fit(
    net: nn.Module, loss: Loss, optimizer: str, rate: float, steps: int, every: int, progress: bool = False
) -> Watch:
    """Train in place, on all rows, until a look at the weights finds a fit or a minimum guaranteed, for so many steps, or until
    none lowers the loss.

    Args:
        net: float64.
        loss: what ``sf.watch`` takes with this network.
        optimizer: a key of ``METHODS``.
        rate: its learning rate.
        steps: limit on the steps.
        every: steps after which the weights are looked at.
        progress: a progress line on a terminal or in a notebook.

    Returns:
        What watched it, with a look at the end.

    Raises:
        ValueError: the loss is not finite any more.
    """
    method, system = METHODS[optimizer], watchable_of(net)
    problem = system.problem(net, loss)
    made = method.make(net.parameters(), rate)
    calls = math.ceil(steps / method.steps)
    watch, last = Watch(net, loss, every, 1.0, None, None), math.inf

    def closure() -> float:
        made.zero_grad()
        value = system.objective(net, problem)
        value.backward()
        return float(value.detach())

    with progress_line(progress, calls * method.steps, 0.0, 0.0) as show:
        for _ in range(calls):
            value = made.step(closure)
            if not math.isfinite(value):
                taken = f"after {watch.iteration} steps of {optimizer}"
                raise ValueError(f"the loss is {value} {taken}; take a lower learning rate")
            system.restrain(net)
            for _ in range(method.steps):
                watch.step()
            show(watch.iteration, value, made.param_groups[0]["lr"])
            if watch.certified is not None or value == last:
                break
            last = value
    if not watch.history or watch.history[-1].iteration < watch.iteration:
        watch.look()
    return watch
