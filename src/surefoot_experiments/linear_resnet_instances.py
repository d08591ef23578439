"""Data, networks and plain gradient descent of the linear ResNet paper's experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from surefoot._core.losses import SquaredLoss
from surefoot._linear_resnet.batched import Batch
from surefoot._linear_resnet.engine import Iterate, SubspaceEngine
from surefoot._linear_resnet.network import LinearNet, LinearResNet
from surefoot._linear_resnet.reduction import reduce
from surefoot_check.linear_resnet import gd as linear_resnet_gd

from .draws import gaussian

PAPER = "On the Global Convergence of Training Deep Linear ResNets"

TARGET = 1e-6
"""Gap relative to the initial one at which runs end."""
DIVERGED = 1e3
"""A gap this many times the initial one ends a run."""
FACTORS = tuple(2.0 ** (j / 2.0) for j in range(-6, 11))
"""The grid of steps, as multiples of ``unit_step``."""
OPEN: dict[str, Any] = {
    "data": "X with N(0, 1) entries, Y = -X + .1 E; one draw a repeat",
    "relative gap reached": TARGET,
    "step sizes": "open in the paper: the step of Theorem 3.1, and the best of a grid",
}
"""Settings common to the experiments."""

Network = LinearResNet | LinearNet
Gaps = list[float]


def opposing_data(generator: torch.Generator, *, d: int = 10, samples: int = 1000, noise: float = 0.1) -> SquaredLoss:
    """Y = -X + noise·E, X (samples, d) and E with N(0, 1) entries."""
    X, E = gaussian(samples, d, generator), gaussian(samples, d, generator)
    return SquaredLoss(X, noise * E - X)


def unit_step(net: Network, loss: SquaredLoss) -> float:
    """1/(L ‖A‖²‖B‖²‖X‖²): one over (a bound of) the curvature of the ResNet at zero weights, without the residual's part."""
    norms = float(torch.linalg.matrix_norm(net.A, 2) * torch.linalg.matrix_norm(net.B, 2))
    return 1.0 / (len(net.W) * norms**2 * loss.smoothness)


def theorem_step(net: Network, loss: SquaredLoss) -> float:
    """The step of Theorem 3.1; for a standard network the same formula, with that network's initial loss."""
    start = net(torch.eye(net.A.shape[1], dtype=torch.float64)).detach()
    quantities = {
        "initial_gap": loss.gap(start),
        "initial_loss": loss.value(start),
        "norm_A": float(torch.linalg.matrix_norm(net.A, 2)),
        "norm_B": float(torch.linalg.matrix_norm(net.B, 2)),
        "norm_X": math.sqrt(loss.smoothness),
        "depth": len(net.W),
    }
    return float(linear_resnet_gd.step(quantities))


def descent(net: Network, loss: SquaredLoss, eta: float, limit: int) -> Gaps:
    """Gaps of gradient descent with a constant step, until the target, divergence or ``limit`` iterations."""
    forms = _residual(net, loss, eta) if isinstance(net, LinearResNet) else _standard(net, loss, eta)
    gaps = [next(forms)]
    while len(gaps) <= limit and TARGET * gaps[0] < gaps[-1] < DIVERGED * gaps[0]:
        gaps.append(next(forms))
    return gaps


def _residual(net: LinearResNet, loss: SquaredLoss, eta: float) -> Iterator[float]:
    """The gaps of the iterates, in the subspace."""
    iterate = first_iterate(net, loss)
    while True:
        yield iterate.gap
        iterate = iterate.after(eta)


def first_iterate(net: LinearResNet, loss: SquaredLoss) -> Iterate:
    """The start of what ``descend`` runs, without the rest of a run."""
    reduced = reduce(net, loss)
    return SubspaceEngine(loss.reduced, reduced.A, reduced.B, reduced.W).iterate


def _standard(net: LinearNet, loss: SquaredLoss, eta: float) -> Iterator[float]:
    """The same for f(x) = B W_L … W_1 A x on the reduced data, by prefix and suffix products; weights have full rank, so that
    there is no subspace to work in."""
    target = loss.image(loss.optimum).T
    W, B = net.W.detach().clone(), net.B
    forward = [net.A @ loss.image(torch.eye(net.A.shape[1], dtype=W.dtype)).T]
    start = forward[0]
    while True:
        forward = [start]
        for layer in W:
            forward.append(layer @ forward[-1])
        residual = B @ forward.pop() - target
        yield 0.5 * float(residual.square().sum())
        suffix = B.T @ residual
        for index in range(len(W) - 1, -1, -1):
            layer, gradient = W[index], suffix
            suffix = layer.T @ suffix
            layer.addmm_(gradient, forward[index].T, alpha=-eta)


def reached(gaps: Sequence[float]) -> float:
    """Iterations to the target; ``inf`` if the run ended before."""
    return float(len(gaps) - 1) if gaps[-1] <= TARGET * gaps[0] else math.inf


class Tuned(NamedTuple):
    """The best step of a grid: its multiple of the unit step, and its run."""

    factor: float
    gaps: Gaps


def best_of_grid(run: Callable[[float, int], Gaps], factors: Sequence[float], limit: int) -> Tuned:
    """The factor with the fewest iterations to the target, else with the smallest gap after ``limit`` iterations.

    Args:
        run: gaps for a factor and a limit.
        factors: the grid; those nearest to 1 first, so that a run can be ended where it is behind the best so far.
        limit: of iterations.
    """
    best: tuple[float, float, Tuned] | None = None
    for factor in sorted(factors, key=lambda c: abs(math.log(c))):
        gaps = run(factor, limit)
        count, last = reached(gaps), gaps[-1] / gaps[0]
        last = last if math.isfinite(last) else math.inf
        if best is None or (count, last) < best[:2]:
            best = count, last, Tuned(factor, gaps)
        if math.isfinite(count):
            limit = min(limit, int(count))
    assert best is not None, "an empty grid"
    return best[2]


def best_step(net: Network, loss: SquaredLoss, unit: float, factors: Sequence[float], limit: int) -> Tuned:
    """The best multiple of the unit step, as ``best_of_grid``; the steps of a ResNet are run together."""
    if not isinstance(net, LinearResNet):
        return best_of_grid(lambda c, most: descent(net, loss, c * unit, most), factors, limit)
    runs = _together(net, loss, [c * unit for c in factors], limit)

    def rank(index: int) -> tuple[float, float]:
        last = runs[index][-1] / runs[index][0]
        return reached(runs[index]), last if math.isfinite(last) else math.inf

    best = min(range(len(factors)), key=rank)
    return Tuned(factors[best], runs[best])


def _together(net: LinearResNet, loss: SquaredLoss, etas: Sequence[float], limit: int) -> list[Gaps]:
    """Runs with several steps, each until it diverges, all until one reaches the target or ``limit`` iterations."""
    batch = Batch([first_iterate(net, loss)] * len(etas), etas)
    runs: list[Gaps] = [[] for _ in etas]
    running = set(range(len(etas)))
    with np.errstate(over="ignore", invalid="ignore"):  # what diverged goes on in the batch, and is not looked at
        for _ in range(limit + 1):
            gaps = batch.gaps()
            for index in sorted(running):
                runs[index].append(float(gaps[index]))
                if not gaps[index] < DIVERGED * runs[index][0]:
                    running.discard(index)
            if not running or any(math.isfinite(reached(runs[index])) for index in running):
                break
            batch.move()
    return runs
