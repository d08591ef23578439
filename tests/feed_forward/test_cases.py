"""The high-precision reference cases (tests/cases/feed_forward.json): 50 digits from exact doubles.

The network with sines has no module of torch: of it the formula of Λ alone is tested.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._feed_forward.engine import Iterate
from surefoot_check.feed_forward import enclosures
from surefoot_check.feed_forward.lipschitz import LayerBounds, symmetric_bend
from surefoot_check.feed_forward.network import load_problem, read_weights

F64 = torch.float64
NOISE = 1e-40
"""Of the arithmetic that the cases were computed in."""
MODULES: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "identity": nn.Identity,
}
with (Path(__file__).resolve().parents[1] / "cases" / "feed_forward.json").open() as _file:
    CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.load(_file)["cases"]}
OURS = [name for name, case in CASES.items() if case["activation"] in MODULES]
TRAINED = [name for name in OURS if "descent" in CASES[name]["expected"]]
INEXACT = "exact_fit_already"
"""Whose residual needs more than double precision."""


def expected(name: str, key: str) -> Any:
    return CASES[name]["expected"][key]


def network(name: str) -> tuple[nn.Sequential, sf.SquaredLoss]:
    case = CASES[name]
    modules: list[nn.Module] = []
    for W, b in zip(case["W"], case["b"], strict=True):
        linear = nn.Linear(len(W[0]), len(W), dtype=F64)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(W, dtype=F64))
            linear.bias.copy_(torch.tensor(b, dtype=F64))
        modules += [linear, MODULES[case["activation"]]()]
    return nn.Sequential(*modules[:-1]), sf.SquaredLoss(
        torch.tensor(case["X"], dtype=F64), torch.tensor(case["Y"], dtype=F64)
    )


@cache
def iterate(name: str) -> Iterate:
    net, loss = network(name)
    system = system_of(net)
    problem = system.problem(net, loss)
    return system.engine(net, problem, "auto").iterate


@cache
def measured(name: str) -> enclosures.Measured:
    net, loss = network(name)
    system = system_of(net)
    problem = system.problem(net, loss)
    stored = load_problem(problem.kind, {key: tensor.numpy() for key, tensor in problem.arrays().items()})
    weights = {key: tensor.numpy() for key, tensor in system.reduced(net, problem).items()}
    return enclosures.Measured(stored, read_weights(weights, stored, "net"))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", OURS)
def test_loss_residual_and_gradient(name: str) -> None:
    at = iterate(name)
    residual = [float(x) for x in expected(name, "residual")]
    assert at.loss.residual(at.at).reshape(-1).tolist() == pytest.approx(residual, rel=0, abs=1e-14)
    gradient = torch.cat([part.reshape(-1) for part in at.gradient.values()]).tolist()
    assert gradient == pytest.approx([float(x) for x in expected(name, "gradient")], rel=1e-9, abs=1e-13)
    if name != INEXACT:
        assert at.gap == pytest.approx(float(expected(name, "loss")), rel=1e-9)


@pytest.mark.parametrize("name", OURS)
def test_the_loss_is_enclosed(name: str) -> None:
    """Also where floats have no correct digit of it."""
    at = measured(name)
    with flint.ctx.workprec(256):
        true = flint.arb(expected(name, "loss"))
        low, high = enclosures.gap_exact(at.problem, at.weights)
        digits = flint.arb("1e-20")
        assert (low is None or low < true * (1 + digits)) and high > true * (1 - digits)
        assert high < true * (1 + digits) + NOISE
        assert flint.arb(at.gap) >= true


@pytest.mark.parametrize("name", OURS)
def test_spectrum_of_the_jacobian(name: str) -> None:
    at = measured(name)
    true = np.array([float(x) for x in expected(name, "gram_eigenvalues")])
    true[np.abs(true) < NOISE] = 0.0
    assert np.linalg.eigvalsh(at.gram.value) == pytest.approx(true, rel=1e-10, abs=1e-13 * true[-1])
    (least, above), (below, largest) = at.singular_values
    assert least**2 <= true[0] * (1 + 1e-12) and true[0] <= above**2 * (1 + 1e-12)
    assert below**2 <= true[-1] * (1 + 1e-12) and true[-1] <= largest**2 * (1 + 1e-12)


@pytest.mark.parametrize("name", [name for name in OURS if "lambda_formula_rho0" in CASES[name]["expected"]])
def test_formula_of_lambda(name: str) -> None:
    first = measured(name).lipschitz_by_layers(0.0)
    assert first == pytest.approx(float(expected(name, "lambda_formula_rho0")), rel=1e-8)
    assert measured(name).lipschitz(0.0) <= first


def test_formula_of_lambda_for_sines() -> None:
    name = "sine_far_from_a_fit"
    case = CASES[name]
    bounds, a = [], np.array(case["X"])
    for W, b in ((np.array(W), np.array(b)) for W, b in zip(case["W"], case["b"], strict=True)):
        inputs = np.hstack([a, np.ones((len(a), 1))])
        bounds.append(
            LayerBounds(
                np.linalg.norm(W, 2),
                np.linalg.norm(W, axis=0).max(),
                np.linalg.norm(inputs, 2),
                np.linalg.norm(inputs, axis=1).max(),
                1.0,
                1.0,
                1.0,
            )
        )
        a = np.sin(a @ W.T + b)
    largest = np.linalg.eigvalsh(np.array(symmetric_bend(bounds, 0.0)))[-1]
    assert largest == pytest.approx(float(expected(name, "lambda_formula_rho0")), rel=1e-12)


@pytest.mark.parametrize("name", [name for name in TRAINED if "two_lambda_r_over_sigma2" in CASES[name]["expected"]])
def test_the_condition(name: str) -> None:
    certificate = sf.certify(*network(name))
    q = certificate.quantities
    ratio = 2.0 * measured(name).lipschitz_by_layers(0.0) * q["r0"] / q["sigma_min_J"] ** 2
    if name != INEXACT:
        assert ratio == pytest.approx(float(expected(name, "two_lambda_r_over_sigma2")), rel=1e-7)
    assert certificate.holds, certificate


@pytest.mark.parametrize("name", [name for name in TRAINED if name != INEXACT])
def test_descent_with_a_constant_step(name: str) -> None:
    net, loss = network(name)
    given = expected(name, "descent")
    steps = max(int(t) for t in given["loss_after"])
    run = sf.descend(net, loss, given["step"], steps, 0.0, progress=False)
    for t, value in given["loss_after"].items():
        if int(t) < len(run.gaps) and float(value) > 1e3 * run.resolution:
            assert run.gaps[int(t)] == pytest.approx(float(value), rel=1e-6), t
    state = [line for line in run.audit().lines if "gap" not in line.name]
    assert len(state) == 2 and all(line.holds for line in state)  # for every step with η‖J‖² ≤ 1


@pytest.mark.parametrize("name", TRAINED)
def test_an_exact_fit_lies_within_the_radius(name: str) -> None:
    """Where Gauss-Newton's method finds one in the cases; descent reaches it under the bound."""
    net, loss = network(name)
    certificate = sf.certify(net, loss)
    assert float(expected(name, "gauss_newton")["residual"]) < NOISE
    assert float(expected(name, "gauss_newton")["distance"]) <= certificate.quantities["radius"]
    run = sf.descend(net, loss, certificate=certificate, max_iterations=5000, progress=False)
    assert run.status.complete and run.audit().holds, run.audit()


@pytest.mark.parametrize("name", [name for name in TRAINED if name != INEXACT])
def test_gauss_newton_goes_to_the_fit_of_the_cases(name: str) -> None:
    net, loss = network(name)
    certificate = sf.certify(net, loss, "feed-forward/exact-fit")
    run = sf.descend(net, loss, "gauss-newton", tolerance=0.0, progress=False)
    distance = float(expected(name, "gauss_newton")["distance"])
    assert run.gaps[-1] <= 10.0 * run.resolution and run.rows[-1]["distance"] == pytest.approx(distance, rel=1e-5)
    assert certificate.holds and distance <= certificate.quantities["radius"]


def test_more_outputs_than_parameters() -> None:
    certificate = sf.certify(*network("tanh_more_outputs_than_parameters"))
    assert not certificate.holds
    assert next(c.name for c in certificate.conditions if not c.holds).startswith("no more outputs than parameters")
