"""Training of a plain network by an optimiser of torch: what the program does before it certifies and descends."""

from __future__ import annotations

import math

from torch import nn

from surefoot_check.feed_forward import minimum

from .._core.losses import Loss
from .._core.near_a_fit import training
from .._core.near_a_fit.watch import Watch
from .loss import NetworkLoss
from .objective import TorchLoss
from .system import FeedForwardSystem

LOOKS = 10
"""At an objective with minima, whose Hessian costs much more than a step: so many looks along the training."""


def fit(
    net: nn.Sequential, loss: Loss, optimizer: str, rate: float | None, steps: int, progress: bool = False
) -> Watch:
    """See ``_core.near_a_fit.training.fit``; the rate is by default that of ``METHODS``."""
    method, system = training.METHODS[optimizer], FeedForwardSystem()
    mean = isinstance(loss, TorchLoss) or (isinstance(loss, NetworkLoss) and loss.multiple != 1)
    usual = method.mean_rate if mean else method.rate
    every = method.every
    if system.watched(system.problem(net, loss)) is minimum.THEOREM:
        every = math.ceil(math.ceil(steps / method.steps) / LOOKS) * method.steps
    return training.fit(net, loss, optimizer, usual if rate is None else rate, steps, every, progress)
