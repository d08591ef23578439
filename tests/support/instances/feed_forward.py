"""Feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from enclosed import Stored, certified
from good_runs import sequential
from torch import Tensor, nn

import surefoot as sf
from surefoot_check.feed_forward.enclosures import Measured

from .arrays import normal

SMOOTH = (nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU)
Problem = tuple[nn.Sequential, Tensor, Tensor]


def shared(name: str) -> Callable[..., dict[str, tuple[float, float]]] | None:
    """Where all base quantities are enclosed."""
    return Measured.base_quantities


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


def families() -> dict[str, Callable[[], Problem]]:
    """Networks with samples by name."""
    equal = normal(1, 2, seed=6).repeat(3, 1)
    found: dict[str, Callable[[], Problem]] = {
        kind.__name__: lambda kind=kind, seed=seed: _two(kind(), seed) for seed, kind in enumerate(SMOOTH)
    }
    return found | {
        "relu": lambda: _two(nn.ReLU(), 7, 1e-6),
        "leaky relu": lambda: _two(nn.LeakyReLU(0.3), 8, 1e-6),
        "steep leaky relu": lambda: _two(nn.LeakyReLU(-1.5), 9, 1e-6),
        "hard tanh": lambda: _two(nn.Hardtanh(-0.7, 1.2), 10, 1e-6),
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
        "nearly equal rows": lambda: _two(nn.Tanh(), 18, 1e-9, inputs=equal + 1e-3 * normal(3, 2, seed=19)),
        "large samples": lambda: _scaled(1e3, 20),
        "small samples": lambda: _scaled(1e-3, 21),
        "on a kink": _on_a_kink,
        "first layer frozen": lambda: _frozen("0.weight", "0.bias"),
        "second layer frozen": lambda: _frozen("2.weight"),
        "weights of the last layer frozen": lambda: _frozen("4.weight"),
        "biases frozen": lambda: _frozen("0.bias", "4.bias"),
    }


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family for every theorem."""

    def make(build: Callable[[], Problem]) -> Stored:
        net, X, Y = build()
        return certified(net, sf.SquaredLoss(X, Y), theorem)

    return {name: lambda b=build: make(b) for name, build in families().items()}
