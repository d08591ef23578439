"""The operations whose peak memory is measured: each function makes the inputs of one at given sizes and returns the work."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import surefoot as sf
from surefoot._inverse.training import train as train_inverse
from surefoot._orthogonal.svd_training import train_svd
from surefoot.deconvolution import LADMM, DeconvolutionProblem, TrainingData, ValidBlur
from surefoot.deconvolution import train as train_deconvolution
from surefoot_check import Outcome, check

Sizes = Mapping[str, int]
Work = Callable[[], object]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Seeded Gaussian numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# -- two-layer and linear ResNet -------------------------------------------------------------------------------------------


def reduction(s: Sizes) -> Work:
    X, Y = normal(s["N"], s["n"]), normal(s["N"], s["m"], seed=1)
    return lambda: sf.SquaredLoss(X, Y)


def reduction_of_files(s: Sizes) -> Work:
    """float32 on disk."""
    folder = Path(tempfile.mkdtemp())
    for name, columns in (("X", s["n"]), ("Y", s["m"])):
        np.save(folder / name, normal(s["N"], columns, dtype=torch.float32).numpy())
    return lambda: sf.SquaredLoss(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in "XY"))


def two_layer(s: Sizes) -> tuple[sf.nn.TwoLayerLinear, sf.SquaredLoss]:
    loss = sf.SquaredLoss(normal(2 * s["n"], s["n"]), normal(2 * s["n"], s["m"], seed=1))
    return sf.nn.TwoLayerLinear.gaussian(s["n"], s["m"], s["h"], std=s["h"] ** -0.5, seed=2), loss


def two_layer_certify(s: Sizes) -> Work:
    net, loss = two_layer(s)
    return lambda: sf.certify(net, loss)


def two_layer_descend(engine: str) -> Callable[[Sizes], Work]:
    def prepare(s: Sizes) -> Work:
        net, loss = two_layer(s)
        certificate = sf.certify(net, loss)
        return lambda: sf.descend(
            net, loss, steps=1e-6, max_iterations=3, certificate=certificate, engine=engine, progress=False
        )

    return prepare


def resnet(s: Sizes) -> tuple[sf.nn.LinearResNet, sf.SquaredLoss]:
    loss = sf.SquaredLoss(normal(2 * s["d"], s["d"]), normal(2 * s["d"], s["k"], seed=1))
    return sf.nn.LinearResNet.modified_identity(s["d"], s["k"], s["m"], s["L"], 60.0), loss


def resnet_certify(s: Sizes) -> Work:
    net, loss = resnet(s)
    return lambda: sf.certify(net, loss)


def resnet_descend(s: Sizes) -> Work:
    net, loss = resnet(s)
    certificate = sf.certify(net, loss)
    return lambda: sf.descend(net, loss, steps=1e-6, max_iterations=3, certificate=certificate, progress=False)


def resnet_backward(s: Sizes) -> Work:
    net, _ = resnet(s)
    net.W.data.normal_(std=1e-3, generator=torch.Generator().manual_seed(0))
    X = normal(s["N"], s["d"])
    return lambda: net(X).square().sum().backward()


# -- implicit networks -------------------------------------------------------------------------------------------------------


def implicit(s: Sizes) -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]:
    X = normal(s["N"], s["d"])
    X /= X.norm(dim=1, keepdim=True)
    net = sf.nn.ImplicitReLU.paper(s["d"], s["m"], 0.5, generator=torch.Generator().manual_seed(1))
    return net, sf.SquaredLoss(X, normal(s["N"], 1, seed=2))


def implicit_certify(theorem: str) -> Callable[[Sizes], Work]:
    def prepare(s: Sizes) -> Work:
        net, loss = implicit(s)
        return lambda: sf.certify(net, loss, f"implicit/{theorem}")

    return prepare


def implicit_local_certify(s: Sizes) -> Work:
    """With output weights as after a training, and targets that it nearly fits."""
    net, (_, loss) = sf.nn.ImplicitReLU.gaussian(s["d"], s["m"]), implicit(s)
    assert loss.samples is not None
    net.b.data = normal(s["m"], seed=3) / s["m"] ** 0.5
    X = loss.samples[0]
    near = sf.SquaredLoss(X, net(X).detach() + 1e-10 * normal(s["N"], seed=4))
    return lambda: sf.certify(net, near, "implicit/local")


def implicit_descend(s: Sizes) -> Work:
    net, loss = implicit(s)
    certificate = sf.certify(net, loss, "implicit/measured")
    return lambda: sf.descend(net, loss, steps=1e-6, max_iterations=3, certificate=certificate, progress=False)


def equilibrium_backward(s: Sizes) -> Work:
    net, _ = implicit(s)
    X = normal(s["N"], s["d"])
    return lambda: net(X).square().sum().backward()


# -- learned step sizes --------------------------------------------------------------------------------------------------------


def least_squares(s: Sizes) -> sf.learned.LeastSquares:
    return sf.learned.LeastSquares(normal(s["N"], s["b"], s["d"]), normal(s["N"], s["b"], seed=1))


def step_sizes_train(s: Sizes) -> Work:
    problems = least_squares(s)
    net = sf.nn.StepSizeNet.orthogonal((2, 2, s["h"]))
    return lambda: sf.learned.train(net, problems, epochs=2, iterations=s["T"])


def step_sizes_solve(s: Sizes) -> Work:
    problems = least_squares(s)
    net = sf.nn.StepSizeNet.orthogonal((2, 2, s["h"]))
    return lambda: net.solve(problems, iterations=s["T"])


def step_sizes_certify(s: Sizes) -> Work:
    problems = least_squares(s)
    net = sf.nn.StepSizeNet.orthogonal((2, 2, s["h"]))
    return lambda: sf.certify(net, problems)


# -- feed-forward networks ---------------------------------------------------------------------------------------------------


def feed_forward(s: Sizes) -> tuple[torch.nn.Sequential, sf.SquaredLoss]:
    """Two hidden layers of width h with GELU, near a fit."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hidden = [nn.Linear(s["d"], s["h"]), nn.GELU(), nn.Linear(s["h"], s["h"]), nn.GELU()]
        net = nn.Sequential(*hidden, nn.Linear(s["h"], s["k"])).double()
    X = normal(s["N"], s["d"])
    return net, sf.SquaredLoss(X, net(X).detach() + 1e-10 * normal(s["N"], s["k"], seed=1))


def feed_forward_certify(s: Sizes) -> Work:
    net, loss = feed_forward(s)
    return lambda: sf.certify(net, loss)


# -- matrices -------------------------------------------------------------------------------------------------------------------


def backward(function: Callable[[Tensor], Tensor]) -> Callable[[Sizes], Work]:
    def prepare(s: Sizes) -> Work:
        A = normal(s["m"], s["n"]).requires_grad_()
        return lambda: function(A).square().sum().backward()

    return prepare


def learned_inverse(s: Sizes) -> Work:
    net = sf.nn.LearnedInverse.chebyshev(s["K"], 4, (1e-3, 1.0))
    A = normal(s["m"], s["m"]).requires_grad_()
    return lambda: net(A).square().sum().backward()


def inverse_train(s: Sizes) -> Work:
    net = sf.nn.LearnedInverse.chebyshev(4, 4, (1e-3, 1.0))
    A = normal(s["N"], s["m"], s["m"])
    return lambda: train_inverse(net, A, epochs=2)


def svd_train(s: Sizes) -> Work:
    net = sf.nn.LearnedSVD(s["m"], s["n"], layers=s["K"])
    M = normal(s["N"], s["m"], s["n"])
    return lambda: train_svd(net, M, iterations=2, batch=s["N"])


def stiefel(s: Sizes) -> Work:
    U = torch.nn.Parameter(torch.linalg.qr(normal(s["m"], s["r"]))[0])
    optimizer = sf.optim.CayleySGD([U], lr=0.1)

    def work() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            U.square().sum().backward()
            optimizer.step()

    return work


# -- deconvolution ---------------------------------------------------------------------------------------------------------------


def picture(s: Sizes, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ValidBlur]:
    kernel = torch.ones(9, 9, dtype=dtype) / 81
    blur = ValidBlur(kernel, (s["H"], s["W"]))
    return torch.rand(*blur.range, dtype=dtype, generator=torch.Generator().manual_seed(0)), blur


def ladmm(s: Sizes) -> Work:
    observed, blur = picture(s)
    return lambda: LADMM().solve(DeconvolutionProblem(observed, blur, 1e-3), 10)


def learned_forward(s: Sizes) -> Work:
    """In float32, as trained networks are."""
    observed, blur = picture(s, torch.float32)
    net = sf.nn.LearnedDeconvolution(layers=3, filters=s["F"])

    def work() -> None:
        with torch.no_grad():
            net(observed, blur, 0.01)

    return work


def learned_train(s: Sizes) -> Work:
    kernels = torch.zeros(4, 37, 37)
    kernels[:, 14:23, 14:23] = 1.0 / 81.0
    tiles = torch.randint(0, 256, (12, 180, 180), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    data = TrainingData(tiles, kernels, "random numbers")
    net = sf.nn.LearnedDeconvolution(layers=s["K"], filters=s["F"])
    return lambda: train_deconvolution(net, data, steps=1, batch=s["B"], crop=s["c"])


# -- the checker -----------------------------------------------------------------------------------------------------------------


def check_run(
    make: Callable[[Sizes], tuple[Any, Any]], theorem: str | None = None, level: str = "fast"
) -> Callable[[Sizes], Work]:
    """The check of a run of two iterations, which must be accepted."""

    def prepare(s: Sizes) -> Work:
        net, loss = make(s)
        directory = Path(tempfile.mkdtemp()) / "run"
        certificate = sf.certify(net, loss, theorem)
        sf.descend(net, loss, max_iterations=2, certificate=certificate, directory=directory, progress=False)

        def work() -> None:
            if check(directory, level).outcome is not Outcome.ACCEPT:
                raise RuntimeError(f"the run of the benchmark is not accepted at {s}")

        return work

    return prepare


def certifiable_resnet(s: Sizes) -> tuple[sf.nn.LinearResNet, sf.SquaredLoss]:
    _, loss = resnet(s)
    return sf.nn.LinearResNet.modified_identity(s["d"], s["k"], s["m"], s["L"], "sufficient", loss=loss), loss


def certifiable_implicit(s: Sizes) -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]:
    X, y = normal(s["N"], s["d"]), normal(s["N"], seed=1).sign()
    X /= X.norm(dim=1, keepdim=True)
    return sf.nn.ImplicitReLU.certifiable(X, y, s["m"], seed=0), sf.SquaredLoss(X, y)


def certifiable_steps(s: Sizes) -> tuple[sf.nn.StepSizeNet, sf.learned.LeastSquares]:
    return sf.nn.StepSizeNet.orthogonal((2, 2, 4), (1.0, 1.95)), least_squares(s)


def softmax(s: Sizes) -> tuple[sf.nn.TwoLayerLinear, sf.SoftmaxRegression]:
    """Its problem is all its rows."""
    loss = sf.SoftmaxRegression(normal(s["N"], s["n"]), torch.arange(s["N"]) % s["m"], 0.1, classes=s["m"])
    return sf.nn.TwoLayerLinear.gaussian(s["n"], s["m"], s["h"], std=0.1, seed=2), loss
