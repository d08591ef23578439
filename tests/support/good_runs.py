"""A small run directory of every system that the checker accepts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import step_sizes_reference as reference
import torch
from deconvolution_pictures import kernel
from draws import normal
from tamper import safetensors
from torch import nn

import surefoot as sf
from surefoot._deconvolution import planner
from surefoot.deconvolution import LADMM, TVADMM, DeconvolutionProblem, PeriodicBlur, TotalVariationProblem, ValidBlur

ITERATIONS = 12


def two_layer(path: Path, seed: int = 0) -> None:
    """A two-layer linear network of width 6 on 8 rows, by the theorem ``constant``."""
    loss = sf.SquaredLoss(normal(8, 3, seed=seed + 1), normal(8, 2, seed=seed + 2))
    net = sf.nn.TwoLayerLinear.gaussian(3, 2, 6, std=1.0, seed=seed)
    certificate = sf.certify(net, loss, "two-layer/constant")
    sf.descend(
        net, loss, max_iterations=ITERATIONS, tolerance=1e-14, certificate=certificate, directory=path, progress=False
    )


def linear_resnet(path: Path, seed: int = 0) -> None:
    """A linear ResNet of two layers, by the theorem ``gd``."""
    loss = sf.SquaredLoss(normal(8, 2, seed=seed), normal(8, 2, seed=seed + 1))
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 2, 60.0 + seed)
    certificate = sf.certify(net, loss, "linear-resnet/gd")
    sf.descend(
        net, loss, max_iterations=ITERATIONS, tolerance=1e-12, certificate=certificate, directory=path, progress=False
    )


def implicit(path: Path, seed: int = 0) -> None:
    """An implicit ReLU network on five rows, by the theorem ``measured``."""
    X, y = normal(5, 4, seed=seed), normal(5, seed=seed + 1).sign()
    X = X / X.norm(dim=1, keepdim=True)
    net, loss = sf.nn.ImplicitReLU.certifiable(X, y, 20, seed=seed), sf.SquaredLoss(X, y)
    certificate = sf.certify(net, loss, "implicit/measured")
    sf.descend(
        net, loss, max_iterations=ITERATIONS, tolerance=1e-3, certificate=certificate, directory=path, progress=False
    )


def nearly_fitted_implicit(seed: int = 0, p: int = 2) -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]:
    """An implicit network that is far from its start, whatever that was, and targets on three rows that it nearly fits."""
    W, A, b = normal(4, 9, seed=seed), normal(9, 9, seed=seed + 1) / 6.0, normal(9, p, seed=seed + 2)
    net, X = sf.nn.ImplicitReLU(W, A, b, 0.5), normal(3, 4, seed=seed + 3)
    return net, sf.SquaredLoss(X, net(X).detach() + 1e-6 * normal(3, p, seed=seed + 4))


def sequential(*modules: nn.Module, seed: int = 0) -> nn.Sequential:
    """The modules in a row, in float64, with Gaussian weights of standard deviation 1/√inputs."""
    net = nn.Sequential(*modules).double()
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            drawn = normal(*parameter.shape, seed=100 * seed + number)
            parameter.copy_(drawn / parameter.shape[-1] ** 0.5)
    return net


def nearly_fitted(seed: int = 0) -> tuple[nn.Sequential, sf.SquaredLoss]:
    """A network of three layers, and targets on four rows that it nearly fits."""
    layers = (nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.Linear(5, 2, bias=False))
    net, X = sequential(*layers, seed=seed), 2.0 * normal(4, 3, seed=seed)
    return net, sf.SquaredLoss(X, net(X).detach() + 1e-5 * normal(4, 2, seed=seed + 1))


def with_equal_rows(seed: int = 0, apart: float = 0.5) -> tuple[nn.Sequential, sf.SquaredLoss]:
    """Four different rows among seven, those of equal ones with targets this far apart, whose means a network nearly fits."""
    net, X = sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2), seed=seed), normal(4, 3, seed=seed)
    rows = [0, 1, 2, 1, 3, 1, 2]
    means = net(X).detach() + 1e-4 * normal(4, 2, seed=seed + 1)
    offsets = torch.tensor([[0.0, 1.0, 1.0, -1.0, 0.0, 0.0, -1.0]], dtype=torch.float64)
    return net, sf.SquaredLoss(X[rows], means[rows] + apart * offsets.T)


def with_windows(seed: int = 0) -> tuple[nn.Sequential, sf.SquaredLoss]:
    """A convolution, maxima and a residual block, and targets on three rows that they nearly fit."""
    maps = (nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 2, 2, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten())
    net = sequential(*maps, sf.nn.Residual(nn.Linear(8, 8)), nn.Linear(8, 2), seed=seed)
    X = normal(3, 12, seed=seed)
    return net, sf.SquaredLoss(X, net(X).detach() + 1e-6 * normal(3, 2, seed=seed + 1))


def near_a_minimum(
    seed: int = 0, error: float = 1e-7, criterion: nn.Module | None = None
) -> tuple[nn.Sequential, sf.TorchLoss]:
    """A network with a smooth activation at this distance of a minimum of its cross-entropy with weight decay."""
    net, X = sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), seed=seed), normal(9, 3, seed=seed)
    labels = normal(9, 3, seed=seed + 1).argmax(dim=1)
    loss = sf.TorchLoss(criterion or nn.CrossEntropyLoss(), X, labels, weight_decay=0.1)
    sf.newton(net, loss)
    shift(net, error, seed)
    return net, loss


def shift(net: nn.Module, size: float, seed: int = 0) -> None:
    """Move every parameter by Gaussian numbers of this size."""
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.add_(size * normal(*parameter.shape, seed=100 * seed + number))


def feed_forward(path: Path, seed: int = 0) -> None:
    """A network with a smooth activation and one with a kink, by the theorem ``local``."""
    net, loss = nearly_fitted(seed)
    sf.descend(net, loss, max_iterations=ITERATIONS, directory=path, progress=False)


def step_sizes(path: Path, seed: int = 0) -> None:
    """Learned step sizes on two least-squares problems, by the theorem ``rate``."""
    arrays = reference.batch("least-squares-batch", seed, 2, 3, 4)
    initial = reference.weights(arrays, 0.9, 1.9)
    made = reference.certificate("step-sizes/rate", "least-squares-batch", arrays, initial)
    files = {"problem.safetensors": arrays, "initial.safetensors": initial}
    files |= reference.checkpoints(reference.run(arrays, initial, ITERATIONS), initial, made, 6)
    reference.directory_of(path, files, made, safetensors)


def inverse(path: Path, seed: int = 0) -> None:
    """A learned matrix inverse of three layers, by the theorem ``interval``; there are no checkpoints."""
    net = sf.nn.LearnedInverse.ones(3, 3 + seed)
    net.save_certificate(path, (0.2, 1.5 + 0.1 * seed))


def deconvolution(path: Path, seed: int = 0) -> None:
    """Sparse deconvolution of a small picture by the linearised ADMM."""
    blur = PeriodicBlur(kernel(3, 2, seed), (6, 5))
    picture = torch.rand(6, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    problem = DeconvolutionProblem(picture, blur, 0.05)
    with few_segments():
        sf.descend(LADMM(0.5), problem, max_iterations=ITERATIONS, tolerance=0.0, directory=path, progress=False)


def total_variation(path: Path) -> None:
    """The same picture with small total variation, beyond an unknown border."""
    picture = torch.rand(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = TotalVariationProblem(picture, ValidBlur.observing(kernel(3, 2, 0), (5, 4)), 0.05)
    with few_segments():
        sf.descend(TVADMM(0.1), problem, max_iterations=ITERATIONS, tolerance=0.0, directory=path, progress=False)


def few_segments() -> AbstractContextManager[object]:
    """Schedules of the linearised ADMM that are as true and shorter: most of a check would be those of hundreds of segments."""
    return patch.object(planner, "STRETCH", 2.0)


SYSTEMS: dict[str, Callable[..., None]] = {
    "two-layer": two_layer,
    "linear-resnet": linear_resnet,
    "implicit": implicit,
    "feed-forward": feed_forward,
    "step-sizes": step_sizes,
    "inverse": inverse,
    "deconvolution": deconvolution,
}
"""``SYSTEMS[name](path, seed)`` writes a run of the system; another seed is another run of the same sizes."""
