"""Feed-forward networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import batches
import torch
from enclosed import Stored, certified
from good_runs import sequential, shift
from torch import Tensor, nn

import surefoot as sf
from surefoot_check.feed_forward.quantities import enclosed

from .arrays import normal

NEAR = (
    "Tanh",
    "relu",
    "three layers with kinks",
    "one layer",
    "far from a fit",
    "very near a fit",
    "more outputs than parameters",
    "equal rows, two outputs",
    "nearly equal rows",
    "second layer frozen",
    "convolutions",
)
SMOOTH = (nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU)
Problem = tuple[nn.Sequential, Tensor, Tensor]
Settled = tuple[nn.Sequential, sf.TorchLoss]


def shared(name: str) -> Callable[..., dict[str, tuple[float, float]]] | None:
    """Where all base quantities are enclosed."""
    return enclosed


def near(net: nn.Sequential, X: Tensor, error: float, seed: int = 5) -> Problem:
    """A network with targets that it nearly fits."""
    f = net(X).detach()
    return net, X, f + error * normal(*f.shape, seed=seed)


def _two(activation: nn.Module, seed: int, error: float = 1e-4, inputs: Tensor | None = None) -> Problem:
    """One hidden layer of six units."""
    X = normal(3, 2, seed=seed) if inputs is None else inputs
    return near(sequential(nn.Linear(X.shape[1], 6), activation, nn.Linear(6, 1), seed=seed), X, error)


def _three(first: nn.Module, second: nn.Module, seed: int, error: float = 1e-5) -> Problem:
    """Two hidden layers, one of them without bias, and two outputs."""
    layers = (nn.Linear(3, 5), first, nn.Linear(5, 4, bias=False), second, nn.Linear(4, 2))
    return near(sequential(*layers, seed=seed), normal(2, 3, seed=seed), error)


def _scaled(scale: float, seed: int) -> Problem:
    """Samples of this size, and first weights of its inverse."""
    net, X, Y = _two(nn.Tanh(), seed)
    with torch.no_grad():
        net[0].weight.div_(scale)  # pyright: ignore[reportArgumentType]
    return net, X * scale, Y


def _frozen(*names: str) -> Problem:
    """Three layers with kinks, some of whose weights are not trained."""
    net, X, Y = _three(nn.LeakyReLU(0.2), nn.Tanh(), 22, 1e-7)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name not in names)
    return net, X, Y


def _on_a_kink() -> Problem:
    """A row of zeros and no bias: its pre-activations are exactly 0."""
    net = sequential(nn.Linear(2, 6, bias=False), nn.ReLU(), nn.Linear(6, 1), seed=3)
    return near(net, torch.cat([normal(2, 2, seed=3), torch.zeros(1, 2, dtype=torch.float64)]), 1e-4)


def _maps(*modules: nn.Module, shape: tuple[int, ...] = (1, 3, 3), error: float = 1e-7, seed: int = 27) -> Problem:
    """Two rows that are made into maps."""
    net = sequential(nn.Unflatten(1, shape), *modules, seed=seed)
    return near(net, normal(2, math.prod(shape), seed=seed), error)


def with_windows() -> dict[str, Callable[[], Problem]]:
    """Networks with convolutions, pooling and residual blocks by name."""
    one, flat = partial(nn.Conv2d, 1, 2), nn.Flatten
    ring = {"padding": (1, 0), "padding_mode": "circular"}
    block = (nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4, bias=False))
    return {
        "convolutions": lambda: _maps(one(2), nn.Tanh(), nn.Conv2d(2, 2, 2), nn.SiLU(), flat(), nn.Linear(2, 1)),
        "zeros around": lambda: _maps(one(2, stride=2, padding=1, bias=False), nn.GELU(), flat(), nn.Linear(8, 1)),
        "circular": lambda: _maps(one((3, 2), **ring), nn.LeakyReLU(0.3), flat(), nn.Linear(12, 1), seed=28),
        "maxima": lambda: _maps(one(2), nn.Tanh(), nn.MaxPool2d(2, 1, 1), flat(), nn.Linear(18, 1), seed=29),
        "maxima of a ReLU": lambda: _maps(
            one(2), nn.ReLU(), nn.MaxPool2d(2, 1), flat(), nn.Linear(2, 1), shape=(1, 3, 3), seed=33
        ),
        "means": lambda: _maps(
            nn.Conv1d(1, 2, 2), nn.Tanh(), nn.AvgPool1d(2), flat(), nn.Linear(4, 1), shape=(1, 6), seed=30
        ),
        "block": lambda: near(
            sequential(nn.Linear(2, 4), sf.nn.Residual(*block), nn.Tanh(), nn.Linear(4, 1), seed=31),
            normal(2, 2, seed=31),
            1e-5,
        ),
        "block of rows": lambda: near(
            sequential(sf.nn.Residual(nn.Linear(2, 2), nn.LeakyReLU(0.2)), nn.Linear(2, 2), seed=32),
            normal(2, 2, seed=32),
            1e-7,
        ),
    }


def families() -> dict[str, Callable[[], Problem]]:
    """Networks with samples by name."""
    equal, several = normal(1, 2, seed=6).repeat(3, 1), normal(2, 2, seed=23)[[0, 1, 0, 0, 1]]
    found: dict[str, Callable[[], Problem]] = {
        kind.__name__: lambda kind=kind, seed=seed: _two(kind(), seed) for seed, kind in enumerate(SMOOTH)
    }
    return found | {
        "relu": lambda: _two(nn.ReLU(), 7, 1e-6),
        "leaky relu": lambda: _two(nn.LeakyReLU(0.3), 8, 1e-6),
        "steep leaky relu": lambda: _two(nn.LeakyReLU(-1.5), 9, 1e-6),
        "hard tanh": lambda: _two(nn.Hardtanh(-0.7, 1.2), 10, 1e-6),
        "softplus of another sharpness": lambda: _two(nn.Softplus(2.5), 25),
        "ELU with a kink": lambda: _two(nn.ELU(0.4), 26, 1e-6),
        "three layers": lambda: _three(nn.Tanh(), nn.GELU(), 11),
        "three layers with kinks": lambda: _three(nn.LeakyReLU(0.2), nn.Softplus(), 12, 1e-7),
        "two linear layers": lambda: near(
            sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False), seed=13), normal(2, 2, seed=13), 1e-3
        ),
        "one layer": lambda: near(sequential(nn.Linear(4, 2), seed=14), normal(3, 4, seed=14), 1.0),
        "far from a fit": lambda: _two(nn.Tanh(), 15, 1.0),
        "very near a fit": lambda: _two(nn.Tanh(), 16, 1e-12),
        "more outputs than parameters": lambda: near(
            sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2), seed=17), normal(4, 1, seed=17), 1e-4
        ),
        "equal rows": lambda: _two(nn.Tanh(), 18, inputs=equal),
        "equal rows, two outputs": lambda: near(
            sequential(nn.Linear(2, 6), nn.GELU(), nn.Linear(6, 2), seed=23), several, 1e-4
        ),
        "nearly equal rows": lambda: _two(nn.Tanh(), 18, 1e-9, inputs=equal + 1e-3 * normal(3, 2, seed=19)),
        "large samples": lambda: _scaled(1e3, 20),
        "small samples": lambda: _scaled(1e-3, 21),
        "on a kink": _on_a_kink,
        "first layer frozen": lambda: _frozen("0.weight", "0.bias"),
        "second layer frozen": lambda: _frozen("2.weight"),
        "weights of the last layer frozen": lambda: _frozen("4.weight"),
        "biases frozen": lambda: _frozen("0.bias", "4.bias"),
    }


def _settled(net: nn.Sequential, criterion: nn.Module, decay: float, seed: int, scale: float = 1.0) -> Settled:
    """At a minimum, moved off by a millionth."""
    width, k = net[0].in_features, net[-1].out_features  # pyright: ignore[reportAttributeAccessIssue]
    X, Y = scale * normal(5, width, seed=seed), normal(5, k, seed=seed + 1)  # pyright: ignore[reportArgumentType]
    targets = Y.argmax(dim=1) if isinstance(criterion, nn.CrossEntropyLoss) else Y
    loss = sf.TorchLoss(criterion, X, targets, decay)
    sf.newton(net, loss)
    shift(net, 1e-6, seed)
    return net, loss


def _small(activation: nn.Module, seed: int) -> nn.Sequential:
    return sequential(nn.Linear(2, 3), activation, nn.Linear(3, 2), seed=seed)


def _partly_frozen() -> Settled:
    net = sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2), seed=6)
    net[2].weight.requires_grad_(False)  # pyright: ignore[reportCallIssue]
    net[4].bias.requires_grad_(False)  # pyright: ignore[reportCallIssue]
    return _settled(net, nn.CrossEntropyLoss(reduction="sum"), 0.5, 6)


def _at_random() -> Settled:
    net = _small(nn.Tanh(), 7)
    return net, sf.TorchLoss(nn.MSELoss(), normal(5, 2, seed=7), normal(5, 2, seed=8), 1e-3)


def minima() -> dict[str, Callable[[], Settled]]:
    """Networks with training objectives by name."""
    mean, total = nn.CrossEntropyLoss(), nn.MSELoss(reduction="sum")
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.3)
    both = nn.CrossEntropyLoss(torch.tensor([0.5, 1.5, 4.0], dtype=torch.float64), label_smoothing=0.2)
    deep = (nn.Linear(2, 2), nn.Softplus(), nn.Linear(2, 2, bias=False), nn.Sigmoid(), nn.Linear(2, 2))
    return {
        "mean of squares": lambda: _settled(_small(nn.Tanh(), 1), nn.MSELoss(), 0.05, 1),
        "cross-entropy": lambda: _settled(_small(nn.GELU(), 2), mean, 0.05, 2),
        "sum of squares, three layers": lambda: _settled(sequential(*deep, seed=3), total, 1.0, 3),
        "cross-entropy, SiLU": lambda: _settled(_small(nn.SiLU(), 4), mean, 0.1, 4),
        "cross-entropy, sharper softplus": lambda: _settled(_small(nn.Softplus(2.5), 11), mean, 0.1, 11),
        "without decay": lambda: _settled(sequential(nn.Linear(1, 2), seed=14), smoothed, 0.0, 14),
        "without decay and bias": lambda: _settled(
            sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 2, bias=False), seed=15), smoothed, 0.0, 15
        ),
        "class weights": lambda: _settled(
            _small(nn.Tanh(), 11), nn.CrossEntropyLoss(torch.tensor([0.3, 2.0], dtype=torch.float64)), 0.1, 11
        ),
        "label smoothing": lambda: _settled(
            _small(nn.GELU(), 12), nn.CrossEntropyLoss(reduction="sum", label_smoothing=0.1), 0.3, 12
        ),
        "class weights and label smoothing": lambda: _settled(
            sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 3), seed=13), both, 0.1, 13
        ),
        "two linear layers": lambda: _settled(_small(nn.Identity(), 5), total, 0.5, 5),
        "partly frozen": _partly_frozen,
        "at random weights": _at_random,
        "large samples": lambda: _settled(_small(nn.Sigmoid(), 9), mean, 0.2, 9, scale=20.0),
        "one layer": lambda: _settled(sequential(nn.Linear(3, 2), seed=10), mean, 0.1, 10),
    }


BATCHED = ("two linear layers", "relu", "far from a fit")
"""Of mini-batches, whose quantities are mostly moved from those of ``local``."""


def _of_batches(build: Callable[[], Problem], criterion: nn.MSELoss | None = None) -> Stored:
    net, X, Y = build()
    loss = sf.SquaredLoss(X, Y) if criterion is None else sf.TorchLoss(criterion, X, Y)
    return certified(*batches.drawn((net, loss), 2 if len(X) > 2 else 1), "feed-forward/sgd")


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family for every theorem, but for ``exact-fit`` those of ``NEAR``."""
    if theorem == "feed-forward/minimum":
        return {name: lambda b=build: certified(*b(), theorem) for name, build in minima().items()}

    if theorem == "feed-forward/sgd":
        of_batches = {name: families()[name] for name in BATCHED}
        mean = partial(_of_batches, of_batches["two linear layers"], nn.MSELoss())
        summed = {name: partial(_of_batches, build) for name, build in of_batches.items()}
        return {**summed, "two linear layers, mean of squares": mean}

    def make(build: Callable[[], Problem], loss: Callable[..., sf.SquaredLoss | sf.TorchLoss]) -> Stored:
        net, X, Y = build()
        return certified(net, loss(X, Y), theorem)

    every = families() | with_windows()
    if theorem == "feed-forward/exact-fit":  # of which all quantities but one are those of ``local``
        every = {name: build for name, build in every.items() if name in NEAR}
    squared = {name: lambda b=build: make(b, sf.SquaredLoss) for name, build in every.items()}
    criteria = {"three layers with kinks": "mean", "equal rows, two outputs": "mean", "one layer": "sum"}
    return squared | {
        f"{name}, {how} of squares": lambda b=every[name], how=how: make(
            b, partial(sf.TorchLoss, nn.MSELoss(reduction=how))
        )
        for name, how in criteria.items()
        if name in every
    }
