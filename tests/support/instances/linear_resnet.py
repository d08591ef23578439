"""Deep linear ResNets on squared loss: zero weights, weights near a solution, and others."""

from __future__ import annotations

from collections.abc import Callable

import batches
import torch
from enclosed import Stored, certified
from torch import Tensor

import surefoot as sf
from surefoot_check.linear_resnet import enclosures as linear_resnet
from surefoot_check.linear_resnet import sgd_local
from surefoot_check.linear_resnet.batches import Batches

from .arrays import DOUBLE, graded, normal, with_values

ON_BALL = ("pl_constant", "gauss_newton", "bilinear")
OF_BATCHES = {*sgd_local.THEOREM.base} - {"initial_gap"}


def shared(name: str) -> Callable[..., dict[str, tuple[float, float]]] | None:
    """Where the constants on a ball are enclosed."""
    if name in OF_BATCHES:
        return Batches.enclosures
    return linear_resnet.quantities_on_ball if name in ON_BALL else None


def near(A: Tensor, B: Tensor, W: Tensor, X: Tensor, distance: float = 1e-3) -> tuple[sf.nn.LinearResNet, sf.Loss]:
    """A network whose map misses that of the targets by ``distance``."""
    end = A
    for layer in W:
        end = end + layer @ end
    off = distance * normal(*(B @ end).shape, seed=30)
    return sf.nn.LinearResNet(A, B, W), sf.SquaredLoss(X, X @ (B @ end + off).T)


def identity(d: int, k: int, m: int, depth: int, alpha: float, X: Tensor) -> tuple[sf.nn.LinearResNet, sf.Loss]:
    """Zero weights with A = [I; 0], B = α[0, I]."""
    return sf.nn.LinearResNet.modified_identity(d, k, m, depth, alpha), sf.SquaredLoss(X, normal(len(X), k, seed=31))


def families() -> dict[str, Callable[[], tuple[sf.nn.LinearResNet, sf.Loss]]]:
    """Networks and losses by name."""

    def ends(d: int, k: int, m: int) -> tuple[Tensor, Tensor]:
        return normal(m, d, seed=20), normal(k, m, seed=21)

    def layers(depth: int, m: int, std: float) -> Tensor:
        return std * normal(depth, m, m, seed=22)

    X2, X3 = normal(6, 2, seed=23), normal(6, 3, seed=24)
    singular = layers(3, 3, 0.2)
    singular[1] = with_values(3, 3, [1.0, 0.5, 1e-9], 25) - torch.eye(3, dtype=DOUBLE)
    return {
        "zero weights": lambda: identity(2, 2, 4, 2, 60.0, X2),
        "zero weights, far": lambda: identity(2, 1, 3, 3, 0.5, X2),
        "one layer": lambda: near(*ends(2, 2, 3), layers(1, 3, 0.3), X2),
        "two layers": lambda: near(*ends(2, 2, 3), layers(2, 3, 0.3), X2),
        "three layers": lambda: near(*ends(2, 2, 4), layers(3, 4, 0.2), X2),
        "four layers": lambda: near(*ends(3, 2, 3), layers(4, 3, 0.1), X3, 1e-4),
        "four unequal layers": lambda: near(*ends(2, 1, 3), layers(4, 3, 0.8), X2, 1e-5),
        "narrow": lambda: near(*ends(3, 2, 2), layers(2, 2, 0.3), X3),
        "few inputs": lambda: near(*ends(1, 3, 3), layers(3, 3, 0.2), X2[:, :1]),
        "wide outputs": lambda: near(*ends(2, 4, 3), layers(2, 3, 0.2), X2),
        "single row": lambda: near(*ends(2, 1, 3), layers(2, 3, 0.2), X2[:1]),
        "rank-deficient data": lambda: near(*ends(3, 1, 3), layers(2, 3, 0.2), with_values(6, 3, [2.0, 1.0], 26)),
        "ill-conditioned data": lambda: near(
            *ends(3, 2, 3), layers(3, 3, 0.1), with_values(6, 3, [1.0, 1e-2, 1e-4], 27)
        ),
        "graded data": lambda: near(*ends(3, 2, 3), layers(2, 3, 0.1), graded(6, 3, 1e-3, 28), 1e-8),
        "nearly singular layer": lambda: near(*ends(2, 2, 3), singular, X2, 1e-6),
        "orthogonal layers": lambda: near(
            *ends(2, 2, 3), torch.linalg.qr(normal(3, 3, 3, seed=29))[0] - torch.eye(3, dtype=DOUBLE), X2
        ),
        "minus the identity": lambda: near(*ends(2, 2, 3), -torch.eye(3, dtype=DOUBLE).repeat(3, 1, 1), X2),
        "tiny": lambda: near(*(1e-5 * end for end in ends(2, 2, 3)), layers(3, 3, 0.2), 1e-6 * X2, 1e-13),
        "huge": lambda: near(*(1e4 * end for end in ends(2, 2, 3)), layers(3, 3, 0.2), 1e5 * X2, 1e4),
    }


def of_batches() -> dict[str, Callable[[], tuple[sf.nn.LinearResNet, sf.Loss]]]:
    """Networks and rows of which batches are drawn, by name."""

    def trained() -> tuple[sf.nn.LinearResNet, sf.Loss]:
        net, loss = batches.fitted(6, 2, 1, 3, 2.0, 2, off=1e-3)
        with torch.no_grad():
            net.W += 0.05 * normal(*net.W.shape, seed=32)
        moved = net(loss.rows) + 1e-4 * loss.rows @ normal(2, 1, seed=33)
        return net, batches.of_rows(loss.rows, moved.detach(), 2)

    return {
        "whitened rows": lambda: batches.fitted(6, 2, 1, 2, 20.0, 2),
        "two outputs": lambda: batches.fitted(6, 2, 2, 2, 20.0, 2, off=0.1),
        "one layer, whole batch": lambda: batches.fitted(4, 2, 1, 1, 5.0, 4),
        "single rows": lambda: batches.fitted(6, 2, 1, 2, 400.0, 1),
        "rows of other norms": lambda: batches.graded(6, 2, 3),
        "trained layers": trained,
        "too far": lambda: batches.fitted(6, 2, 1, 2, 1.0, 2),
    }


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family for every theorem, but for batches."""
    if theorem == sgd_local.THEOREM.id:
        return {name: lambda b=build: certified(*b(), theorem) for name, build in of_batches().items()}
    return {name: lambda b=build: certified(*b(), theorem) for name, build in families().items()}
