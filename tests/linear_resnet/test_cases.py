"""Every value of the high-precision reference cases (tests/cases/linear_resnet.json) on full-batch gradient descent.

The cases take columns as samples, the library rows. Agreement is to 1e-8 relative, the tolerance that the cases state.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot_check.linear_resnet import gd

F64 = torch.float64
RTOL, ATOL = 1e-8, 1e-10

with (Path(__file__).resolve().parents[1] / "cases" / "linear_resnet.json").open() as _file:
    CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.load(_file)["cases"]}


def having(key: str) -> list[str]:
    """Names of the full-batch cases with an expected value for ``key``; those with minibatches are in test_sgd.py."""
    return [
        name for name, case in CASES.items() if "batch" not in str(case["inputs"].keys()) and key in case["expected"]
    ]


def expected(name: str) -> dict[str, Any]:
    return CASES[name]["expected"]


def matrix(name: str, key: str) -> Tensor:
    return torch.tensor(CASES[name]["inputs"][key], dtype=F64)


def close(value: Any) -> Any:
    return pytest.approx(value, rel=RTOL, abs=0.0)


def problem(name: str) -> tuple[sf.nn.LinearResNet, sf.SquaredLoss]:
    inputs = CASES[name]["inputs"]
    A, B = matrix(name, "A"), matrix(name, "B")
    m = A.shape[0]
    W = torch.tensor(inputs["W"], dtype=F64) if "W" in inputs else torch.zeros(inputs["L"], m, m, dtype=F64)
    return sf.nn.LinearResNet(A, B, W), sf.SquaredLoss(matrix(name, "X").T, matrix(name, "Y").T)


@cache
def constants(name: str) -> dict[str, float]:
    """The theorem's quantities of the data and the network as given, without the reduction to the rank of X."""
    net, loss = problem(name)
    q = {"depth": float(net.depth), "initial_loss": loss.value(net.end_to_end().detach())}
    q["initial_gap"] = q["initial_loss"] - loss.optimal_value
    for key in ("A", "B", "X"):
        s = torch.linalg.svdvals(matrix(name, key))
        rank = int((s > 1e-12 * s[0]).sum()) if key == "X" else len(s)
        q[f"norm_{key}"], q[f"sigma_min_{key}"] = float(s[0]), float(s[rank - 1])
    return q


def test_the_stochastic_cases_alone_are_left_out() -> None:
    used = set().union(*(having(key) for case in CASES.values() for key in case["expected"]))
    assert set(CASES) - used == {"sgd_given_batches", "theorem_3_8_constants"}


@pytest.mark.parametrize("key", ["loss0", "L0", "loss"])
def test_loss_at_the_start(key: str) -> None:
    for name in having(key):
        net, loss = problem(name)
        X, Y = matrix(name, "X").T, matrix(name, "Y").T
        assert loss.value(net.end_to_end().detach()) == close(expected(name)[key])
        assert 0.5 * float((net(X) - Y).detach().square().sum()) == close(expected(name)[key])


@pytest.mark.parametrize("name", having("L_star"))
def test_optimal_value(name: str) -> None:
    net, loss = problem(name)
    assert loss.optimal_value == close(expected(name)["L_star"])
    assert sf.certify(net, loss).optimal_value == close(expected(name)["L_star"])


@pytest.mark.parametrize("name", having("grads"))
def test_gradients(name: str) -> None:
    net, loss = problem(name)
    wanted = torch.tensor(expected(name)["grads"], dtype=F64)
    torch.testing.assert_close(system_of(net).gradient(net, loss)["W"], wanted, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", having("product_U"))
def test_end_to_end_map(name: str) -> None:
    net, _ = problem(name)
    wanted = torch.tensor(expected(name)["product_U"], dtype=F64)
    torch.testing.assert_close(net.end_to_end().detach().T, wanted, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", having("norm_X"))
def test_constants_of_the_data_and_the_transformations(name: str) -> None:
    net, loss = problem(name)
    wanted, q = expected(name), constants(name)
    assert loss.smoothness == close(wanted["norm_X"] ** 2)
    assert loss.strong_convexity == close(wanted["sigma_r"] ** 2)
    assert loss.smoothness / loss.strong_convexity == close(wanted["kappa"])
    assert loss.reduced.shape[0] == wanted["rank"]
    found = sf.certify(net, loss, "linear-resnet/gd").quantities
    assert found["norm_X"] == close(wanted["norm_X"]) and found["norm_X"] >= q["norm_X"] * (1 - 1e-14)
    assert found["sigma_min_X"] == close(wanted["sigma_r"]) and found["sigma_min_X"] <= q["sigma_min_X"] * (1 + 1e-14)
    assert found["initial_loss"] == close(wanted["L0"])
    assert found["initial_gap"] == close(wanted["L0"] - wanted["L_star"])
    for key in ("A", "B"):
        assert q[f"norm_{key}"] == close(wanted[f"norm_{key}"])
        assert q[f"sigma_min_{key}"] == close(wanted[f"sigma_min_{key}"])
        # on the columns that the data reaches, norms are smaller and least singular values larger
        assert found[f"norm_{key}"] <= q[f"norm_{key}"] * (1 + RTOL)
        assert found[f"sigma_min_{key}"] >= q[f"sigma_min_{key}"] * (1 - RTOL)
        if loss.basis is None:
            assert found[f"norm_{key}"] == close(wanted[f"norm_{key}"])
            assert found[f"sigma_min_{key}"] == close(wanted[f"sigma_min_{key}"])


@pytest.mark.parametrize("name", having("gd_condition_margin"))
def test_condition_step_and_rate_of_theorem_3_1(name: str) -> None:
    net, loss = problem(name)
    wanted, q = expected(name), constants(name)
    condition = gd.THEOREM.conditions({**q, "weight_norm": 0.0})[-1]
    assert condition.margin == pytest.approx(math.log10(wanted["gd_condition_margin"]), abs=1e-8)
    eta = gd.step(q)
    assert float(eta) == close(wanted["eta_thm_sqrt_eL"])
    assert float(gd.step({**q, "initial_loss": 2.0 * q["initial_loss"]})) == close(wanted["eta_sqrt_2eL"])
    assert float(gd.decrease(q, eta)) == close(wanted["rate_at_eta"])
    certificate = sf.certify(net, loss, "linear-resnet/gd")
    assert certificate.holds == (wanted["gd_condition_margin"] >= 1.0)
    margin = certificate.conditions[-1].margin
    assert margin is not None and 10.0**margin >= wanted["gd_condition_margin"] * (1 - 1e-7)
    assert certificate.quantities["initial_step"] >= wanted["eta_thm_sqrt_eL"] * (1 - RTOL)
    if loss.basis is None:
        assert certificate.quantities["initial_step"] == close(wanted["eta_thm_sqrt_eL"])


@pytest.mark.parametrize("name", having("loss_after_k"))
def test_losses_along_gradient_descent(name: str) -> None:
    net, loss = problem(name)
    eta = CASES[name]["inputs"].get("eta", "eta_thm_sqrt_eL")
    eta = expected(name)[eta] if isinstance(eta, str) else eta
    after = {int(k): value for k, value in expected(name)["loss_after_k"].items()}
    run = sf.descend(net, loss, eta, max_iterations=max(after), tolerance=0.0, progress=False)
    assert run.iterations == max(after)
    for k, value in after.items():
        assert run.gaps[k] + loss.optimal_value == close(value)


@pytest.mark.parametrize("name", having("bound_after_k"))
def test_guaranteed_bounds(name: str) -> None:
    net, loss = problem(name)
    certificate = sf.certify(net, loss, "linear-resnet/gd")
    assert certificate.holds and certificate.rate == close(1.0 - expected(name)["rate_at_eta"])
    run = sf.descend(net, loss, certificate=certificate, max_iterations=60, progress=False)
    assert run.rule == "constant" and run.audit().holds
    q = constants(name)
    decrease = float(gd.decrease(q, gd.step(q)))
    for k, value in expected(name)["bound_after_k"].items():
        assert loss.optimal_value + (1.0 - decrease) ** int(k) * q["initial_gap"] == close(value)
        # published quantities carry a slack of 1e-9 each, in the direction of a larger bound
        assert value <= certificate.bound(int(k)) + loss.optimal_value <= value * (1.0 + 1e-6)
        assert run.gaps[int(k)] <= certificate.bound(int(k))


@pytest.mark.parametrize("name", having("infimum_of_trajectory"))
def test_identity_transformations_get_stuck(name: str) -> None:
    net, loss = problem(name)
    infimum = expected(name)["infimum_of_trajectory"]
    run = sf.descend(net, loss, CASES[name]["inputs"]["eta"], max_iterations=2000, progress=False)
    losses = [gap + loss.optimal_value for gap in run.gaps]
    assert run.status.value == "max_iterations" and losses == sorted(losses, reverse=True)
    assert infimum < losses[-1] < infimum * (1.0 + 1e-3)
    assert not sf.certify(net, loss).holds and run.certified_from is None


@pytest.mark.parametrize("name", having("lower"))
def test_ratios_of_lemma_a1(name: str) -> None:
    net, loss = problem(name)
    wanted, q = expected(name), constants(name)
    gradient = system_of(net).gradient(net, loss)["W"]
    gap = loss.gap(net.end_to_end().detach())
    lower = 2.0 / math.e * gap * (q["sigma_min_A"] * q["sigma_min_B"] * q["sigma_min_X"]) ** 2
    upper = 2.0 * math.e * gap * (q["norm_A"] * q["norm_B"] * q["norm_X"]) ** 2
    squared = gradient.square().sum((1, 2))
    assert (squared / lower).tolist() == close(wanted["lower"])
    assert (squared / upper).tolist() == close(wanted["upper"])
    assert float(squared.min()) >= lower and float(squared.max()) <= upper
