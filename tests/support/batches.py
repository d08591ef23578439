"""Networks on data that they can fit, near a fit, of which batches are drawn."""

from __future__ import annotations

import torch
from draws import normal
from torch import nn

import surefoot as sf
from surefoot._core.draws import Draws, drawing
from surefoot._core.minibatch import Sampling
from surefoot._feed_forward.loss import NetworkLoss
from surefoot._feed_forward.system import FeedForwardSystem
from surefoot._linear_resnet.minibatch import FittedLoss


def fitted(
    samples: int, inputs: int, outputs: int, depth: int, alpha: float, batch: int, delta: float = 0.1, off: float = 0.5
) -> tuple[sf.nn.LinearResNet, FittedLoss]:
    """The modified identity, and targets XW that its map misses by at most some ``off`` an entry of W."""
    X = torch.linalg.qr(normal(samples, inputs, seed=40))[0] * samples**0.5
    net = sf.nn.LinearResNet.modified_identity(inputs, outputs, inputs + outputs, depth, alpha)
    Y = (net(X) + off * X @ normal(inputs, outputs, seed=41)).detach()
    return net, of_rows(X, Y, batch, delta)


def of_rows(X: torch.Tensor, Y: torch.Tensor, batch: int, delta: float = 0.1) -> FittedLoss:
    """Batches of these rows."""
    return FittedLoss(X, Y, Draws(len(X), Sampling.of(batch, delta, len(X))))


def graded(samples: int, inputs: int, batch: int) -> tuple[sf.nn.LinearResNet, FittedLoss]:
    """Rows whose norms reach from 1 to 20."""
    X = normal(samples, inputs, seed=42) * torch.logspace(0, 1.3, samples, dtype=torch.float64)[:, None]
    net = sf.nn.LinearResNet.modified_identity(inputs, 1, inputs + 1, 2, 30.0)
    Y = (net(X) + 0.1 * X @ normal(inputs, 1, seed=43)).detach()
    return net, of_rows(X, Y, batch)


def drawn(
    problem: tuple[nn.Sequential, sf.SquaredLoss | sf.TorchLoss], batch: int = 2, delta: float = 0.1
) -> tuple[nn.Sequential, NetworkLoss]:
    """A feed-forward network with a loss of whose rows batches are drawn."""
    net, loss = problem
    return net, FeedForwardSystem().drawn(net, loss, None, drawing(batch, delta))
