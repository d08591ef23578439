"""A run of every kind that reports tell apart, each into a directory, and the text of a report."""

from __future__ import annotations

import os
import re
import signal
from html import unescape
from pathlib import Path

import torch

import surefoot as sf
from surefoot._report.facts import Facts
from surefoot._report.page import page

PLOTS = ("gap", "steps", "conditions")


def problem(n: int = 4, m: int = 3) -> sf.SquaredLoss:
    g = torch.Generator().manual_seed(3)
    X = torch.randn(30, n, generator=g, dtype=torch.float64)
    return sf.SquaredLoss(X, X @ torch.randn(n, m, generator=g, dtype=torch.float64))


def network(loss: sf.Loss, width: int = 60) -> sf.nn.TwoLayerLinear:
    return sf.nn.TwoLayerLinear.gaussian(*loss.shape, width, std=width**-0.5, seed=0)


class _Stop(sf.steps.Sharp):
    """Presses Ctrl-C at its fourth step."""

    taken = 0

    def step(self, engine: object) -> float:
        self.taken += 1
        if self.taken == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(engine)  # type: ignore[arg-type]


def certified(directory: Path) -> sf.Run:
    loss = problem()
    config = {"evaluation": {"test error": 0.0525}, "data": {"name": "made"}}
    return sf.descend(network(loss), loss, directory=directory, tolerance=1e-8, config=config)


def again(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss), loss, directory=directory, tolerance=1e-8, certify_every=10)


def narrow(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss, 2), loss, directory=directory, max_iterations=15)


def unregularised(directory: Path) -> sf.Run:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(20, 3, generator=g, dtype=torch.float64)
    loss = sf.SoftmaxRegression(X, torch.arange(20) % 3, 0.0)
    return sf.descend(network(loss), loss, directory=directory, max_iterations=10)


def paper(directory: Path) -> sf.Run:
    g = torch.Generator().manual_seed(0)
    X = torch.linalg.qr(torch.randn(40, 4, generator=g, dtype=torch.float64))[0]
    loss = sf.SquaredLoss(X, X @ torch.randn(4, 4, generator=g, dtype=torch.float64))
    net = sf.nn.TwoLayerLinear.gaussian(4, 4, 400, seed=0)
    certificate = sf.certify(net, loss, theorem="two-layer/corrected")
    return sf.descend(net, loss, certificate=certificate, directory=directory, tolerance=1e-6)


def diverged(directory: Path) -> sf.Run:
    loss = problem()
    net = network(loss)
    return sf.descend(net, loss, steps=1.0, certificate=sf.certify(net, loss), directory=directory)


def interrupted(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss), loss, steps=_Stop(), directory=directory)


def unmoved(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss), loss, directory=directory, max_iterations=0)


def optimal(directory: Path) -> sf.Run:
    eye = torch.eye(2, dtype=torch.float64)
    return sf.descend(sf.nn.TwoLayerLinear(eye, 2.0 * eye), sf.SquaredLoss(eye, 2.0 * eye), directory=directory)


def resnet(directory: Path) -> sf.Run:
    loss = problem()
    net = sf.nn.LinearResNet.gaussian(*loss.shape, 30, 3, seed=0)
    return sf.descend(net, loss, directory=directory, max_iterations=200, tolerance=1e-8, certify_every=10)


def resnet_paper(directory: Path) -> sf.Run:
    loss = problem()
    net = sf.nn.LinearResNet.modified_identity(*loss.shape, 7, 3, 5000.0)
    certificate = sf.certify(net, loss, theorem="linear-resnet/gd")
    return sf.descend(net, loss, certificate=certificate, directory=directory, max_iterations=50)


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """8 rows of norm 1, two outputs."""
    g = torch.Generator().manual_seed(4)
    X = torch.randn(8, 10, generator=g, dtype=torch.float64)
    return X / X.norm(dim=1, keepdim=True), torch.randn(8, 2, generator=g, dtype=torch.float64)


def implicit(directory: Path) -> sf.Run:
    X, Y = samples()
    net = sf.nn.ImplicitReLU.certifiable(X, Y, 40)
    return sf.descend(net, sf.SquaredLoss(X, Y), directory=directory, tolerance=1e-2)


def implicit_measured(directory: Path) -> sf.Run:
    X, Y = samples()
    loss, net = sf.SquaredLoss(X, Y), sf.nn.ImplicitReLU.certifiable(X, Y, 40)
    net = sf.nn.ImplicitReLU(100.0 * net.W, 100.0 * net.A, net.b, net.gamma / 100.0)
    certificate = sf.certify(net, loss, theorem="implicit/measured")
    return sf.descend(net, loss, certificate=certificate, directory=directory, max_iterations=20)


def implicit_paper(directory: Path) -> sf.Run:
    X, Y = samples()
    loss, net = sf.SquaredLoss(X, Y), sf.nn.ImplicitReLU.paper(10, 40, 0.5, outputs=2)
    certificate = sf.certify(net, loss, theorem="implicit/gd")
    return sf.descend(net, loss, certificate=certificate, directory=directory, max_iterations=20)


def ill_posed(directory: Path) -> sf.Run:
    X, Y = samples()
    net = sf.nn.ImplicitReLU.paper(10, 40, 0.9, outputs=2)
    return sf.descend(net, sf.SquaredLoss(X, Y), steps=3.0, directory=directory)


def lasso(directory: Path) -> sf.Run:
    """No rate, and steps that a network proposes."""
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    return sf.descend(net, sf.learned.Lasso.random(3, 10, 20, lam=0.01, seed=0), directory=directory, max_iterations=9)  # pyright: ignore[reportArgumentType]


def lasso_rate(directory: Path) -> sf.Run:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    problems = sf.learned.Lasso.random(3, 10, 20, lam=0.01, seed=0)
    certificate = sf.certify(net, problems, "step-sizes/prox-rate")
    return sf.descend(net, problems, certificate=certificate, directory=directory, max_iterations=9)  # pyright: ignore[reportArgumentType]


def least_squares(directory: Path) -> sf.Run:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    problems = sf.learned.LeastSquares.random(3, 5, 8, seed=0)
    certificate = sf.certify(net, problems, "step-sizes/rate")
    return sf.descend(net, problems, certificate=certificate, directory=directory, max_iterations=9)  # pyright: ignore[reportArgumentType]


def deconvolution(directory: Path) -> sf.Run:
    """A bound D/t, and gaps that are changes of the iterate."""
    blur = sf.deconvolution.PeriodicBlur(torch.full((3, 3), 1.0 / 9.0, dtype=torch.float64), (16, 16))
    picture = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = sf.deconvolution.DeconvolutionProblem(picture, blur, 0.05, "db2")
    return sf.descend(sf.deconvolution.LADMM(1.0), problem, directory=directory, max_iterations=9)


def truncated(directory: Path) -> sf.Run:
    """A direction of the data within the tolerance of the numerical rank."""
    X = torch.tensor([[1.0, 0.0], [0.0, 1e-16], [0.0, 0.0]], dtype=torch.float64)
    loss = sf.SquaredLoss(X, torch.tensor([1.0, 5.0, 0.0], dtype=torch.float64))
    return sf.descend(network(loss), loss, directory=directory, max_iterations=5)


def collinear(directory: Path) -> sf.Run:
    """A guaranteed count of no practical use."""
    loss = problem()
    X, Y = (torch.as_tensor(array).clone() for array in loss.samples or ())
    X[:, 1] = X[:, 0] + 1e-6 * X[:, 1]
    loss = sf.SquaredLoss(X, Y)
    return sf.descend(network(loss), loss, directory=directory, max_iterations=5)


RUNS = (
    certified, again, narrow, unregularised, paper, diverged, interrupted, unmoved, optimal, resnet, resnet_paper,
    implicit, implicit_measured, implicit_paper, ill_posed, lasso, lasso_rate, least_squares, deconvolution,
)  # fmt: skip


def words(markup: str) -> str:
    """The text of a page outside its drawings."""
    markup = re.sub(r"<(style|script|svg|nav).*?</\1>", " ", markup, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", markup)))


def undrawn(run: sf.Run) -> str:
    """The text of a run's report, without the time that drawings take."""
    return words(page(Facts.of(run), dict.fromkeys(PLOTS, ""), "0"))
