"""Certificates over the range of the floats: refused, failing with a condition, or holding with finite claims that the checker
accepts; never anything between."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import scaled
import torch
from good_runs import normal

import surefoot as sf
from surefoot_check.theorems import THEOREMS
from surefoot_check.theorems.statement import Segment

EXPONENTS = [-150, -100, -75, -45, -30, -18, -9, 9, 18, 30, 45, 75, 100, 150]
DIRECTIONS = [
    (1, 0, 0, 0),
    (0, 1, 0, 0),
    (0, 0, 1, 0),
    (0, 0, 0, 1),
    (1, 1, 1, 1),
    (0, 0, 1, -1),
    (0, 0, 1, 1),
    (1, 1, -1, -1),
]
"""Exponents of the four scales of an instance: one alone, all together, opposite, and the weights or the data together."""
NOTHING_WRONG = {"refused", "fails", "refuted", "accept", "holds, unproved"}


@pytest.mark.parametrize(("name", "theorem"), scaled.PAIRS)
def test_a_certificate_at_any_scale_is_refused_fails_or_is_accepted(name: str, theorem: str, tmp_path: Path) -> None:
    build = scaled.BUILDERS[name][1]
    found: dict[tuple[float, ...], str] = {}
    for number, direction in enumerate(DIRECTIONS):
        # every scale by some theorem and some direction: a grid of all would take minutes
        for exponent in EXPONENTS[(number + len(theorem)) % 3 :: 3]:
            scales = [10.0 ** (exponent * part) for part in direction]
            folder = tmp_path / f"{number}-{exponent}"
            found[(*direction, exponent)] = scaled.outcome(lambda scales=scales: build(*scales), theorem, folder)
    assert {scales: text for scales, text in found.items() if text not in NOTHING_WRONG} == {}


def linear(W1: torch.Tensor, W2: torch.Tensor, X: torch.Tensor, Y: torch.Tensor) -> scaled.Instance:
    return sf.nn.TwoLayerLinear(W1, W2), sf.SquaredLoss(X, Y)


def relu(W: float, y: float) -> scaled.Instance:
    net, X, target = scaled.certifiable()
    return sf.nn.ImplicitReLU(W * net.W.detach(), net.A.detach(), net.b.detach(), net.gamma), sf.SquaredLoss(
        X, y * target
    )


SUBNORMAL = 5e-324
EDGES: dict[str, tuple[str, Callable[[], scaled.Instance]]] = {
    "X = 0": ("two-layer", lambda: scaled.squared(0.0, 1.0, 1.0, 1.0)),
    "Y = 0": ("two-layer", lambda: scaled.squared(1.0, 0.0, 1.0, 1.0)),
    "W1 = 0": ("two-layer", lambda: scaled.squared(1.0, 1.0, 0.0, 1.0)),
    "W2 = 0": ("two-layer", lambda: scaled.squared(1.0, 1.0, 1.0, 0.0)),
    "W1 = W2 = 0": ("two-layer", lambda: scaled.squared(1.0, 1.0, 0.0, 0.0)),
    "all but X are 0": ("two-layer", lambda: scaled.squared(1.0, 0.0, 0.0, 0.0)),
    "subnormal weights": ("two-layer", lambda: scaled.squared(1.0, 1.0, SUBNORMAL, SUBNORMAL)),
    "subnormal targets": ("two-layer", lambda: scaled.squared(1.0, SUBNORMAL, 1.0, 1.0)),
    "subnormal targets, no weights": ("two-layer", lambda: scaled.squared(1.0, SUBNORMAL, 0.0, 0.0)),
    "a subnormal penalty": ("two-layer", lambda: scaled.softmax(1.0, SUBNORMAL, 1.0, 1.0)),
    "no penalty": ("two-layer", lambda: scaled.softmax(1.0, 0.0, 1.0, 1.0)),
    "y = 0": ("two-layer", lambda: scaled.sensing(1.0, 0.0, 1.0, 1.0)),
    "one row": ("two-layer", lambda: linear(normal(3, 6, seed=1), normal(2, 6, seed=2), normal(1, 3, seed=3), normal(1, 2, seed=4))),
    "one column": ("two-layer", lambda: linear(normal(1, 3, seed=1), normal(1, 3, seed=2), normal(8, 1, seed=3), normal(8, 1, seed=4))),
    "width 1": ("two-layer", lambda: linear(normal(1, 1, seed=1), normal(1, 1, seed=2), normal(1, 1, seed=3), normal(1, 1, seed=4))),
    "a huge width": ("two-layer", lambda: linear(normal(2, 20_000, seed=1), normal(1, 20_000, seed=2), normal(8, 2, seed=3), normal(8, 1, seed=4))),
    "a ResNet of zeros": ("linear-resnet", lambda: scaled.zero_resnet(1.0, 1.0, 0.0, 0.0)),
    "a ResNet of B = 0": ("linear-resnet", lambda: scaled.resnet(1.0, 0.0, 1.0, 1.0)),
    "a ResNet, Y = 0": ("linear-resnet", lambda: scaled.zero_resnet(1.0, 0.0, 1.0, 1.0)),
    "a ResNet of subnormal layers": ("linear-resnet", lambda: scaled.resnet(1.0, 1.0, SUBNORMAL, SUBNORMAL)),
    "a ResNet of one subnormal layer": ("linear-resnet", lambda: scaled.resnet(1.0, 1.0, 1.0, SUBNORMAL)),
    "an implicit network of W = 0": ("implicit", lambda: relu(0.0, 1.0)),
    "an implicit network of subnormal W": ("implicit", lambda: relu(SUBNORMAL, 1.0)),
    "an implicit network, y = 0": ("implicit", lambda: relu(1.0, 0.0)),
    "an implicit network, subnormal y": ("implicit", lambda: relu(1.0, SUBNORMAL)),
    "least squares, Y = 0": ("step-sizes", lambda: scaled.least_squares(1.0, 0.0, 1.0, 1.0)),
    "least squares, subnormal Y": ("step-sizes", lambda: scaled.least_squares(1.0, SUBNORMAL, 1.0, 1.0)),
    "lasso, Y = 0": ("step-sizes", lambda: scaled.lasso(1.0, 0.0, 1.0, 1.0)),
    "lasso without a penalty": ("step-sizes", lambda: scaled.lasso(1.0, 1.0, 0.0, 1.0)),
    "lasso with a subnormal penalty": ("step-sizes", lambda: scaled.lasso(1.0, 1.0, SUBNORMAL, 1.0)),
    "logistic without a penalty": ("step-sizes", lambda: scaled.logistic(1.0, 0.0, 0.0, 1.0)),
    "logistic with subnormal penalties": ("step-sizes", lambda: scaled.logistic(1.0, SUBNORMAL, SUBNORMAL, 1.0)),
    "coefficients 0": ("inverse", lambda: scaled.inverse(1.0, 1.0, 1.0, 0.0)),
    "subnormal coefficients": ("inverse", lambda: scaled.inverse(1.0, 1.0, SUBNORMAL, 1.0)),
    "a subnormal interval": ("inverse", lambda: scaled.inverse(SUBNORMAL, 1.0, 1.0, 1.0)),
    "a black picture": ("deconvolution", lambda: scaled.deconvolution(0.0, 1.0, 1.0, 1.0)),
    "a subnormal picture": ("deconvolution", lambda: scaled.deconvolution(SUBNORMAL, 1.0, 1.0, 1.0)),
    "a subnormal kernel": ("deconvolution", lambda: scaled.deconvolution(1.0, SUBNORMAL, 1.0, 1.0)),
    "a subnormal penalty of pictures": ("deconvolution", lambda: scaled.deconvolution(1.0, 1.0, SUBNORMAL, 1.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_zeros_subnormals_and_single_rows(name: str, tmp_path: Path) -> None:
    system, instance = EDGES[name]
    theorems = [theorem for theorem in THEOREMS if theorem.startswith(system)]
    found = {theorem: scaled.outcome(instance, theorem, tmp_path / str(k)) for k, theorem in enumerate(theorems)}
    assert {theorem: text for theorem, text in found.items() if text not in NOTHING_WRONG} == {}
