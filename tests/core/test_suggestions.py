"""Every suggestion can help: followed on an instance, it makes the certificate hold or improves the margin that failed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot.deconvolution import LADMM, DeconvolutionProblem, PeriodicBlur, conjugate_gradients

DOUBLE = torch.float64


X = normal(40, 4)
Y = X @ normal(4, 3, seed=2) + 0.1 * normal(40, 3, seed=1)
LOSS = sf.SquaredLoss(X, Y)
LABELS = normal(40, 3, seed=4).argmax(1)
COMPLETION = sf.MatrixCompletion([0, 1, 2, 3, 0], [0, 1, 2, 0, 1], normal(5, seed=5), (4, 3))


def two_layer(width: int, theorem: str | None = None, loss: sf.Loss = LOSS, std: float = 0.3) -> sf.Certificate:
    return sf.certify(sf.nn.TwoLayerLinear.gaussian(4, 3, width, std=std, seed=0), loss, theorem)


def balanced(trained: bool = False, scale: float = 0.3) -> sf.Certificate:
    """Balanced weights W1ᵀW1 = W2ᵀW2, for a square problem."""
    loss = sf.SquaredLoss(X, X @ (2.0 * torch.eye(4, dtype=DOUBLE)))
    net = sf.nn.TwoLayerLinear(scale * torch.eye(4, 8, dtype=DOUBLE), scale * torch.eye(4, 8, dtype=DOUBLE))
    if trained:
        sf.descend(net, loss, 1e-3, max_iterations=300)
    return sf.certify(net, loss)


def resnet(net: sf.nn.LinearResNet, theorem: str | None = None, trained: bool = False) -> sf.Certificate:
    if trained:
        sf.descend(net, LOSS, 1e-4, max_iterations=1000)
    return sf.certify(net, LOSS, theorem)


def modified(depth: int = 4) -> sf.nn.LinearResNet:
    return sf.nn.LinearResNet.modified_identity(4, 3, 7, depth, "sufficient", loss=LOSS)


def without_rank() -> sf.nn.LinearResNet:
    net = sf.nn.LinearResNet.gaussian(4, 3, 14, 2, seed=0)
    return sf.nn.LinearResNet(torch.zeros_like(net.A), net.B, net.W)


def images(rows: int = 8) -> tuple[Tensor, Tensor]:
    return torch.nn.functional.normalize(normal(rows, 6, seed=5).abs()), normal(rows, seed=6)


def paper(width: int, gamma: float) -> sf.nn.ImplicitReLU:
    return sf.nn.ImplicitReLU.paper(6, width, gamma, generator=torch.Generator().manual_seed(0))


def implicit(width: int = 40, gamma: float = 0.3, theorem: str | None = None, rows: int = 8) -> sf.Certificate:
    inputs, targets = images(rows)
    return sf.certify(paper(width, gamma), sf.SquaredLoss(inputs, targets), theorem)


def certifiable(theorem: str | None = None) -> sf.Certificate:
    inputs, targets = images()
    net = sf.nn.ImplicitReLU.certifiable(inputs, targets, 40, seed=0)
    return sf.certify(net, sf.SquaredLoss(inputs, targets), theorem)


def repeated(merged: bool) -> sf.Certificate:
    inputs, targets = images()
    inputs, targets = torch.cat([inputs, 2.0 * inputs[:1]]), torch.cat([targets, targets[:1]])
    if merged:
        data = sf.data.merge_rows(inputs, targets)
        inputs, targets = data.X, data.Y
        net = sf.nn.ImplicitReLU.certifiable(inputs, targets, 40, seed=0)
    else:
        net = paper(40, 0.3)
    return sf.certify(net, sf.SquaredLoss(inputs, targets))


def inverse(net: sf.nn.LearnedInverse, interval: tuple[float, float], theorem: str | None = None) -> sf.Certificate:
    return sf.certify(net, theorem=theorem, interval=interval)


def steps(theorem: str, high: float = 1.95, low: float = 1.0, rows: int = 8, penalty: bool = False) -> sf.Certificate:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(low, high))
    problems = sf.learned.Lasso.random(2, 5, 8, lam=0.1) if penalty else sf.learned.LeastSquares.random(2, 5, rows)
    return sf.certify(net, problems, theorem)


def singular(theorem: str) -> sf.Certificate:
    M = normal(2, 5, 8)
    M[:, 4] = M[:, 3]
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(1.0, 1.95))
    return sf.certify(net, sf.learned.LeastSquares(M, normal(2, 5, seed=1)), theorem)


def deblur(**parameters) -> sf.Certificate:
    blur = PeriodicBlur(torch.full((3, 3), 1.0 / 9.0, dtype=DOUBLE), (16, 16))
    problem = DeconvolutionProblem(normal(1, 1, 16, 16).abs(), blur, 0.05, "db2")
    return sf.certify(LADMM(1.0, **parameters), problem)


Case = tuple[Callable[[], sf.Certificate], str, Callable[[], sf.Certificate]]

CASES: dict[str, Case] = {
    "two-layer: no penalty": (
        lambda: two_layer(20, loss=sf.SoftmaxRegression(X, LABELS, 0.0, 3)),
        "use l2 > 0, for example l2=1e-3",
        lambda: two_layer(20, loss=sf.SoftmaxRegression(X, LABELS, 1e-3, 3)),
    ),
    "two-layer: not quadratic": (
        lambda: two_layer(20, "two-layer/contraction", sf.SoftmaxRegression(X, LABELS, 1e-3, 3)),
        "use theorem='two-layer/drift'",
        lambda: two_layer(20, "two-layer/drift", sf.SoftmaxRegression(X, LABELS, 1e-3, 3)),
    ),
    "two-layer: the paper's theorem, many minimisers": (
        lambda: two_layer(20, "two-layer/corrected", COMPLETION),
        "use theorem='two-layer/drift'",
        lambda: two_layer(20, "two-layer/drift", COMPLETION),
    ),
    "two-layer: completion below the rank": (
        lambda: two_layer(2, loss=COMPLETION),
        "use width >= 7",
        lambda: two_layer(7, loss=COMPLETION),
    ),
    "two-layer: below the rank": (lambda: two_layer(2), "use width >= 7", lambda: two_layer(7)),
    "two-layer: below n + m": (
        lambda: two_layer(4),
        "alpha1 > 0 almost surely for random weights of width >= n + m = 7",
        lambda: two_layer(7),
    ),
    "two-layer: balanced, drawn anew": (
        balanced,
        "draw W1 and W2 independently (Gaussian)",
        lambda: sf.certify(
            sf.nn.TwoLayerLinear.gaussian(4, 4, 8, std=0.3, seed=0),
            sf.SquaredLoss(X, X @ (2.0 * torch.eye(4, dtype=DOUBLE))),
        ),
    ),
    "two-layer: balanced, trained": (
        balanced,
        "train first and certify again at a later iterate",
        lambda: balanced(trained=True),
    ),
    "two-layer: as printed": (
        lambda: two_layer(20, "two-layer/as-printed"),
        "use theorem='two-layer/corrected'",
        lambda: two_layer(20, "two-layer/corrected"),
    ),
    "linear-resnet: too deep": (
        lambda: resnet(modified(600)),
        "use at most 512 layers",
        lambda: resnet(modified(64)),
    ),
    "linear-resnet: narrow": (
        lambda: resnet(sf.nn.LinearResNet.gaussian(4, 3, 2, 4, seed=0)),
        "use a width of at least 7, such as the modified identity with a sufficient alpha",
        lambda: resnet(modified()),
    ),
    "linear-resnet: the paper's theorem": (
        lambda: resnet(sf.nn.LinearResNet.modified_identity(4, 3, 7, 4, 31.0), "linear-resnet/gd"),
        "use the theorem linear-resnet/local",
        lambda: resnet(sf.nn.LinearResNet.modified_identity(4, 3, 7, 4, 31.0)),
    ),
    "linear-resnet: trained": (
        lambda: resnet(sf.nn.LinearResNet.gaussian(4, 3, 14, 4, seed=0)),
        "train and certify again along the run",
        lambda: resnet(sf.nn.LinearResNet.gaussian(4, 3, 14, 4, seed=0), trained=True),
    ),
    "linear-resnet: wider": (
        lambda: resnet(sf.nn.LinearResNet.gaussian(4, 3, 14, 4, seed=0)),
        "use a larger width",
        lambda: resnet(sf.nn.LinearResNet.gaussian(4, 3, 200, 4, seed=0)),
    ),
    "linear-resnet: modified identity": (
        lambda: resnet(sf.nn.LinearResNet.identity(4, 3, 7, 4)),
        "the modified identity with a sufficient alpha",
        lambda: resnet(modified()),
    ),
    "linear-resnet: without rank": (
        lambda: resnet(without_rank()),
        "draw them anew, or use the modified identity",
        lambda: resnet(modified()),
    ),
    "linear-resnet: without rank, the paper's theorem": (
        lambda: resnet(without_rank(), "linear-resnet/gd"),
        "draw them anew, or use the modified identity",
        lambda: resnet(modified(), "linear-resnet/gd"),
    ),
    "implicit: no contraction": (
        lambda: implicit(gamma=1.2),
        "use a smaller gamma",
        lambda: implicit(gamma=0.3),
    ),
    "implicit: parallel rows": (lambda: repeated(False), "merges them", lambda: repeated(True)),
    "implicit: narrow": (
        lambda: implicit(width=7),
        "use a width of 2 N or more",
        lambda: implicit(width=16),
    ),
    "implicit: weights too small": (implicit, "sf.nn.ImplicitReLU.certifiable(X, y, width)", certifiable),
    "implicit: weights too small, measured": (
        lambda: implicit(theorem="implicit/measured"),
        "sf.nn.ImplicitReLU.certifiable(X, y, width)",
        lambda: certifiable("implicit/measured"),
    ),
    "implicit: the paper's theorem": (
        lambda: certifiable("implicit/gd"),
        "use the theorem implicit/spectral",
        certifiable,
    ),
    "implicit: the flow": (
        lambda: certifiable("implicit/flow"),
        "use the theorem implicit/spectral",
        certifiable,
    ),
    "inverse: scaled": (
        lambda: inverse(sf.nn.LearnedInverse(torch.ones(3, 2, dtype=DOUBLE), 1.0), (0.1, 2.5)),
        "the interval must end below 2: scale by a larger c0",
        lambda: inverse(sf.nn.LearnedInverse(torch.ones(3, 2, dtype=DOUBLE), 2.0), (0.05, 1.25)),
    ),
    "inverse: Chebyshev": (
        lambda: inverse(sf.nn.LearnedInverse(torch.full((3, 2), 2.0, dtype=DOUBLE), 1.0), (0.1, 1.9)),
        "LearnedInverse.chebyshev(3, 2, (0.1, 1.9))",
        lambda: inverse(sf.nn.LearnedInverse.chebyshev(3, 2, (0.1, 1.9)), (0.1, 1.9)),
    ),
    "inverse: order": (
        lambda: inverse(sf.nn.LearnedInverse.chebyshev(3, 2, (0.1, 1.9)), (0.1, 1.9), "inverse/order"),
        "use inverse/interval",
        lambda: inverse(sf.nn.LearnedInverse.chebyshev(3, 2, (0.1, 1.9)), (0.1, 1.9), "inverse/interval"),
    ),
    "step-sizes: another kind": (
        lambda: steps("step-sizes/prox-rate"),
        "use step-sizes/monotone or /rate",
        lambda: steps("step-sizes/rate"),
    ),
    "step-sizes: beyond 2": (
        lambda: steps("step-sizes/monotone", high=2.5),
        "build it with a range up to 2",
        lambda: steps("step-sizes/monotone", high=2.0),
    ),
    "step-sizes: no lower end": (
        lambda: steps("step-sizes/rate", low=0.0),
        "a range inside (0, 2), such as (1, 1.95)",
        lambda: steps("step-sizes/rate"),
    ),
    "step-sizes: no rank": (
        lambda: singular("step-sizes/rate"),
        "else use step-sizes/monotone",
        lambda: singular("step-sizes/monotone"),
    ),
    "step-sizes: proximal, no lower end": (
        lambda: steps("step-sizes/prox-rate", low=0.0, penalty=True),
        "a range inside (0, 2), such as (0.5, 1.5)",
        lambda: steps("step-sizes/prox-rate", low=0.5, high=1.5, penalty=True),
    ),
    "deconvolution: adaptive": (lambda: deblur(adaptive=True), "use adaptive=False", deblur),
    "deconvolution: inexact": (lambda: deblur(inner=conjugate_gradients), "leave inner out", deblur),
    "deconvolution: parameters": (
        lambda: deblur(alpha=1.5, gamma=1.5),
        "use alpha and gamma slightly below 1/beta = 1",
        lambda: deblur(alpha=0.999, gamma=0.999),
    ),
}
PARTIAL = {
    "implicit: no contraction",
    "implicit: narrow",
    "linear-resnet: wider",
    "linear-resnet: without rank, the paper's theorem",
}
"""Those that mend or improve the hypothesis they speak of, where something is left to do."""


@pytest.mark.parametrize("name", CASES)
def test_a_suggestion_that_is_followed_helps(name: str) -> None:
    make, phrase, followed = CASES[name]
    before = make()
    assert not before.holds
    assert phrase in before.suggestion
    after = followed()
    if name not in PARTIAL:
        assert after.holds
        return
    failed = next(condition for condition in before.conditions if not condition.holds)
    again = {condition.name: condition for condition in after.conditions}.get(failed.name)
    # a hypothesis that is gone was that a quantity has no bound; else it holds now, or its sides are nearer by half
    assert again is None or again.holds or again.left - again.right < 0.5 * (failed.left - failed.right)


def digits(rows: int = 40) -> tuple[Tensor, Tensor]:
    """Zeros and ones, rows of norm 1."""
    data = sf.data.load("digits").train()
    assert isinstance(data.X, Tensor) and data.labels is not None
    chosen = (data.labels < 2).nonzero()[:rows, 0]
    return torch.nn.functional.normalize(data.X[chosen]), data.labels[chosen].to(DOUBLE)


def nearly_parallel() -> tuple[Tensor, Tensor]:
    inputs, targets = digits(20)
    return torch.cat([inputs, inputs[:1] + 1e-6 * inputs[1:2]]), torch.cat([targets, 1.0 - targets[:1]])


def uneven() -> tuple[Tensor, Tensor]:
    inputs, targets = digits(20)
    return torch.cat([inputs[:1] * 1e-6, inputs[1:]]), targets


IMPLICIT: dict[str, tuple[tuple[Tensor, Tensor], Callable[..., sf.nn.ImplicitReLU]]] = {
    "as many units as samples": (digits(), lambda: sf.nn.ImplicitReLU.paper(64, 40, 0.3)),
    "fewer": (digits(), lambda: sf.nn.ImplicitReLU.paper(64, 30, 0.3)),
    "no contraction": (digits(), lambda: sf.nn.ImplicitReLU.paper(64, 80, 1.2)),
    "all units dead": (
        digits(),
        lambda: sf.nn.ImplicitReLU(torch.zeros(64, 80, dtype=DOUBLE), torch.eye(80, dtype=DOUBLE), normal(80), 0.3),
    ),
    "large output weights": (
        digits(),
        lambda: sf.nn.ImplicitReLU(normal(64, 80), torch.eye(80, dtype=DOUBLE), normal(80), 0.3),
    ),
    "rows that are nearly parallel": (nearly_parallel(), lambda: sf.nn.ImplicitReLU.paper(64, 60, 0.3)),
    "a small row": (uneven(), lambda: sf.nn.ImplicitReLU.paper(64, 60, 0.3)),
}


@pytest.mark.parametrize("name", IMPLICIT)
def test_following_the_suggestions_ends_with_a_certificate(name: str) -> None:
    """Each is followed as it is printed, and the next one after it."""
    (inputs, targets), make = IMPLICIT[name]
    net, theorem = make(), None
    followed: list[str] = []
    while not (certificate := sf.certify(net, sf.SquaredLoss(inputs, targets), theorem)).holds:
        said = certificate.suggestion
        assert len(followed) < 6, followed
        followed.append(said)
        width = net.width
        if found := re.search(r"a smaller gamma, such as (\S+)$", said):
            net = sf.nn.ImplicitReLU(net.W, net.A, net.b, float(found[1]))
        elif found := re.search(r"rows (\d+) and (\d+) of X are \S+ apart .* leave one of them out", said):
            kept = [row for row in range(len(inputs)) if row != int(found[2])]
            inputs, targets = inputs[kept], targets[kept]
        elif "scale every row to norm 1" in said:
            inputs = torch.nn.functional.normalize(inputs, eps=0.0)
        elif "a larger width, 2 N or more" in said or "use a width of 2 N or more" in said:
            width = 2 * max(len(inputs), width)
            net = sf.nn.ImplicitReLU.paper(64, width, net.gamma)
        elif "draw W anew, such as torch.randn(d, m) / m**0.5" in said:
            net = sf.nn.ImplicitReLU(normal(64, width) / width**0.5, net.A, net.b, net.gamma)
        elif "draw A at random, such as torch.randn(m, m) / (2 * m**0.5)" in said:
            net = sf.nn.ImplicitReLU(net.W, normal(width, width) / (2 * width**0.5), net.b, net.gamma)
        elif 'sf.descend(net, loss, steps="gauss-newton")' in said:
            theorem = "implicit/local"
            sf.descend(net, sf.SquaredLoss(inputs, targets), steps="gauss-newton", max_iterations=5)
        else:
            assert "sf.nn.ImplicitReLU.certifiable(X, y, width)" in said
            net = sf.nn.ImplicitReLU.certifiable(inputs, targets, width)


def test_training_is_not_suggested_where_it_cannot_help() -> None:
    """Theorems 1 and 2 on implicit networks need c B² < σ² with B ≥ ‖b‖, and training only makes b larger."""
    inputs, targets = images()
    loss = sf.SquaredLoss(inputs, targets)
    net = paper(40, 0.3)
    assert "certify again" not in sf.certify(net, loss).suggestion
    ratios = []
    for _ in range(3):
        sf.descend(net, loss, 1e-2, max_iterations=50)
        certificate = sf.certify(net, loss, "implicit/measured")
        assert not certificate.holds and "certify again" not in certificate.suggestion
        ratios.append(float(net.b.detach().norm()))
    assert ratios == sorted(ratios) and ratios[0] > 0.0
    zero = balanced(scale=0.0)
    assert not zero.holds and "train" not in zero.suggestion
    assert math.isinf(zero.bound(1))
