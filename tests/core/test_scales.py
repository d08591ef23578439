"""Certificates over the range of the floats: refused, failing with a condition, or holding with finite claims that the checker
accepts; never anything between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scaled
import torch
from draws import normal

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

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


def first_of_both() -> list[Any]:
    """The pairs; those whose instance and theorem both have had a turn are left to the slow tests."""
    known: set[str] = set()
    params: list[Any] = []
    for pair in scaled.PAIRS:
        params.append(pytest.param(*pair, marks=pytest.mark.slow if known.issuperset(pair) else ()))
        known |= set(pair)
    return params


@pytest.mark.parametrize(("name", "theorem"), first_of_both())
def test_a_certificate_at_any_scale_is_refused_fails_or_is_accepted(name: str, theorem: str, tmp_path: Path) -> None:
    build = scaled.BUILDERS[name][1]
    outcomes: dict[tuple[float, ...], str] = {}
    for number, direction in enumerate(DIRECTIONS):
        # every scale by some theorem and some direction: a grid of all would take minutes
        for exponent in EXPONENTS[(number + len(theorem)) % 5 :: 5]:
            scales = [10.0 ** (exponent * part) for part in direction]
            folder = tmp_path / f"{number}-{exponent}"
            outcomes[(*direction, exponent)] = scaled.outcome(lambda scales=scales: build(*scales), theorem, folder)
    assert {scales: text for scales, text in outcomes.items() if text not in NOTHING_WRONG} == {}


def linear(n: int, m: int, width: int, rows: int) -> scaled.Instance:
    net = sf.nn.TwoLayerLinear(normal(n, width, seed=1), normal(m, width, seed=2))
    return net, sf.SquaredLoss(normal(rows, n, seed=3), normal(rows, m, seed=4))


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
    "values = 0": ("two-layer", lambda: scaled.completion(0.0, 0.0, 1.0, 1.0)),
    "nothing to complete": ("two-layer", lambda: scaled.completion(0.0, 0.0, 0.0, 0.0)),
    "one row": ("two-layer", lambda: linear(3, 2, 6, 1)),
    "one column": ("two-layer", lambda: linear(1, 1, 3, 8)),
    "width 1": ("two-layer", lambda: linear(1, 1, 1, 1)),
    "a huge width": ("two-layer", lambda: linear(2, 1, 20_000, 8)),
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
    theorems = [theorem for theorem in PLANS if theorem.startswith(system)]
    outcomes = {theorem: scaled.outcome(instance, theorem, tmp_path / str(k)) for k, theorem in enumerate(theorems)}
    assert {theorem: text for theorem, text in outcomes.items() if text not in NOTHING_WRONG} == {}


@pytest.mark.parametrize("exponent", [51, 60, 80, 100, -51, -60, -80, -100])
def test_weights_beyond_what_the_checker_reads_are_refused_with_the_limit(exponent: int) -> None:
    name = "W1" if exponent > 0 else "W2"
    limit = (
        rf"net: {name} has entries that .* exceed 1e\+50: the largest is .*; scale the data and the weights to order 1"
    )
    for theorem in (theorem for theorem in PLANS if theorem.startswith("two-layer")):
        with pytest.raises(ValueError, match=limit):
            sf.certify(*scaled.squared(1.0, 1.0, 10.0**exponent, 10.0**-exponent), theorem)


def test_what_cannot_be_descended_from_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the initial gap is .*; at most 1e\+100 can be descended from in float64"):
        sf.certify(*scaled.squared(1.0, 1.0, 1e30, 1e30))
    with pytest.raises(ValueError, match=r"smoothness\^1\.5 times the initial gap .* at most 1e\+150 can be descended"):
        sf.certify(*scaled.squared(1.0, 1.0, 1e45, 1e-9))


def test_a_step_that_vanishes_is_no_guarantee() -> None:
    certificate = sf.certify(*scaled.squared(1.0, 1.0, 1e-100, 1e-100), "two-layer/contraction")
    assert certificate.status is sf.CertificateStatus.FAILS and certificate.step_size is None
    assert [condition.name for condition in certificate.conditions if not condition.holds] == [
        "segment 0 of the schedule: its step is positive"
    ]
    assert "scale the data and the weights to order 1" in certificate.suggestion
    assert sf.Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize("scale", [1e-60, 1e100])
def test_the_range_of_problems_is_checked_before_their_minimisers_are_sought(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = sf.learned.Logistic(scale * normal(2, 5, 3, seed=1), normal(2, 5, seed=2).sign(), 0.1)
    monkeypatch.setattr(type(problems), "optimum", lambda *_: pytest.fail("the search began"))
    with pytest.raises(ValueError, match=r"out of the range of certificates: .*; rescale the problems"):
        sf.certify(sf.nn.StepSizeNet.orthogonal((2, 2), (1.0, 1.9)), problems)


def test_a_run_without_a_step_stores_the_initial_weights_to_the_bit(tmp_path: Path) -> None:
    """The Gram engine rotates the layers and back, which rounds."""
    net, loss = linear(2, 1, 9, 8)
    run = sf.descend(net, loss, max_iterations=0, engine="gram", directory=tmp_path / "run", progress=False)
    assert run.iterations == 0 and all(torch.equal(run.final[name], W) for name, W in run.initial.items())
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_a_bound_that_underflows_is_not_zero() -> None:
    certificate = sf.certify(*linear(2, 1, 9, 8))
    assert certificate.holds and 0.0 < certificate.bound(10**15) <= 1e-300 < certificate.initial_gap
