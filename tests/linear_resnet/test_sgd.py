"""Minibatch SGD: batches, gradients, resuming, and the theorems that speak of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot._linear_resnet.engine import Iterate
from surefoot._linear_resnet.sgd import INTERPOLATION_ID, SGD_ID, batch_of
from surefoot_check.theorems import linear_resnet_sgd as theorems

CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "cases" / "linear_resnet.json").read_text())["cases"]
}


def data(samples: int = 8, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(samples, 2, generator=g, dtype=torch.float64)
    return X, X @ torch.randn(2, 2, generator=g, dtype=torch.float64) + noise * torch.randn(
        samples, 2, generator=g, dtype=torch.float64
    )


def small_net(**changes: Any) -> sf.nn.LinearResNet:
    return sf.nn.LinearResNet.gaussian(**{"d": 2, "k": 2, "width": 30, "depth": 3, "seed": 1, **changes})


def test_given_batches_give_the_stochastic_gradients_and_weights_of_the_case() -> None:
    case = CASES["sgd_given_batches"]
    inputs, expected = case["inputs"], case["expected"]
    X, Y, A, B = (np.array(inputs[name]) for name in ("X", "Y", "A", "B"))
    W = np.zeros((inputs["L"], 3, 3))
    for batch, gradients in zip(inputs["batches"], expected["stochastic_grads_per_step"], strict=True):
        G = Iterate(X[:, batch], Y[:, batch], A, B, W).gradient * X.shape[1] / len(batch)
        np.testing.assert_allclose(G, gradients, rtol=case["rtol"], atol=case["atol"])
        W = W - inputs["eta"] * G
    np.testing.assert_allclose(W, expected["W_final"], rtol=case["rtol"], atol=case["atol"])


def test_constants_of_theorem_3_8_are_those_of_the_case() -> None:
    case = CASES["theorem_3_8_constants"]
    inputs, expected = case["inputs"], case["expected"]
    X, Y = (torch.tensor(inputs[name], dtype=torch.float64).T for name in ("X", "Y"))
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, inputs["L"], inputs["alpha"])
    found = sf.sgd.certify(
        net, X, Y, inputs["batch"], theorem=INTERPOLATION_ID, iterations=int(inputs["T"]), delta=inputs["delta"]
    )
    condition = found.conditions[-1]
    # base quantities are published with a slack of 1e-9 each, and enter with powers up to 8
    assert condition.left / condition.right == pytest.approx(expected["condition_margin"], rel=3e-8)
    assert found.step_size == pytest.approx(expected["eta_96"], rel=3e-8)
    assert found.step_size <= expected["eta_96"]
    assert found.step_size * theorems.CONSTANT / 54.0 == pytest.approx(expected["eta_54"], rel=3e-8)
    assert 1.0 - found.rate == pytest.approx(expected["rate_at_eta_96"], rel=1e-7)
    assert found.holds and found.probability == 0.9


def test_a_run_is_gradient_descent_on_scaled_batches() -> None:
    X, Y = data()
    plain, ours = small_net(), small_net()
    for t in range(4):
        batch = batch_of(5, t, 8, 4)
        assert len(set(batch.tolist())) == 4
        plain.zero_grad()
        (0.5 * (plain(X[batch]) - Y[batch]).square().sum() * 8 / 4).backward()
        with torch.no_grad():
            assert plain.W.grad is not None
            plain.W -= 1e-3 * plain.W.grad
    sf.sgd.descend(ours, X, Y, 4, 1e-3, 4, seed=5)
    torch.testing.assert_close(ours.W.detach(), plain.W.detach(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("stop", [1, 7, 60])
def test_resuming_gives_the_same_run(tmp_path: Path, stop: int) -> None:
    X, Y = data(noise=0.1)
    whole, part = small_net(), small_net()
    run = sf.sgd.descend(whole, X, Y, 3, 1e-3, 80, seed=2)
    sf.sgd.descend(part, X, Y, 3, 1e-3, stop, seed=2, directory=tmp_path / "run")
    resumed = small_net()
    again = sf.sgd.descend(resumed, X, Y, 3, 1e-3, 80, seed=2, directory=tmp_path / "run", resume=True)
    assert again.rows == run.rows and torch.equal(resumed.W, whole.W)
    other = sf.sgd.descend(small_net(), X, Y, 3, 1e-3, 80, seed=3)
    assert other.gaps != run.gaps
    with pytest.raises(sf.RunDirectoryError, match="other settings"):
        sf.sgd.descend(small_net(), X, Y, 3, 1e-3, 80, seed=3, directory=tmp_path / "run", resume=True)
    with pytest.raises(sf.RunDirectoryError, match="not empty"):
        sf.sgd.descend(small_net(), X, Y, 3, 1e-3, 80, seed=2, directory=tmp_path / "run")


def test_theorem_3_8_is_kept_by_32_seeds() -> None:
    X, Y = data()
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 2000.0)
    guarantee = sf.sgd.certify(net, X, Y, 4, theorem=INTERPOLATION_ID, iterations=2000)
    assert guarantee.holds, str(guarantee)
    kept = 0
    for seed in range(32):
        fresh = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 2000.0)
        run = sf.sgd.descend(fresh, X, Y, 4, guarantee, max_iterations=200, seed=seed)
        kept += all(loss <= guarantee.bound(t) for t, loss in enumerate(run.losses))
        assert run.gaps[-1] < run.gaps[0]
    assert kept >= 32 * guarantee.probability


def test_theorem_3_6_step_and_iterations_are_consistent() -> None:
    X, Y = data(noise=0.1)
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 2e4)
    found = sf.sgd.certify(net, X, Y, 4)
    q = found.quantities
    assert found.holds and found.probability == 0.5
    assert found.step_size == pytest.approx(theorems.step(SGD_ID, q, found.iterations))
    needed = math.log(3.0 * (q["initial_loss"] - q["optimal_value"]) / q["target"]) / (1.0 - found.rate)
    assert found.iterations == pytest.approx(needed, rel=1e-6)
    assert found.bound(found.iterations) == pytest.approx(q["optimal_value"] + q["target"])
    assert found.bound(1) == math.inf and found.bound(found.iterations + 1) == math.inf


def test_hypotheses_that_fail_are_named() -> None:
    X, Y = data(noise=0.1)
    found = sf.sgd.certify(small_net(), X, Y, 4)
    assert not found.holds and "FAILS" in str(found) and found.bound(0) == math.inf
    noisy = sf.sgd.certify(small_net(), X, Y, 4, theorem=INTERPOLATION_ID)
    assert next(c.name for c in noisy.conditions if not c.holds) == "the optimal value is 0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 9}, "batch_size is 9.*8 rows"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"delta": 0.5}, "delta is 0.5"),
        ({"delta": -1.0}, "delta is -1.0"),
        ({"target": 1e9}, "target is"),
        ({"theorem": "linear-resnet/sdg"}, "did you mean 'linear-resnet/sgd'"),
        ({"theorem": INTERPOLATION_ID, "iterations": 0}, "iterations is 0"),
        ({"theorem": INTERPOLATION_ID, "iterations": 1, "delta": 0.99}, "at least 2 delta"),
    ],
)
def test_arguments_out_of_range(changes: dict[str, Any], message: str) -> None:
    X, Y = data(noise=0.1)
    with pytest.raises(ValueError, match=message):
        sf.sgd.certify(small_net(), X, Y, **{"batch_size": 4, **changes})


def test_other_bad_input() -> None:
    X, Y = data()
    trained = small_net()
    sf.sgd.descend(trained, X, Y, 4, 1e-3, 2)
    with pytest.raises(ValueError, match="nonzero weights"):
        sf.sgd.certify(trained, X, Y, 4)
    with pytest.raises(ValueError, match="step is 0"):
        sf.sgd.descend(small_net(), X, Y, 4, 0.0)
    net = small_net()
    run = sf.sgd.descend(net, X, Y, 4, 1e6, 50)
    assert run.status is sf.RunStatus.DIVERGED and not net.W.any()


def test_width_conditions_are_estimates_with_an_unnamed_constant() -> None:
    X, Y = data()
    loss = sf.SquaredLoss(X, Y)
    found = {estimate.source: estimate for estimate in sf.sgd.width_estimates(loss, batch_size=4)}
    assert all("C unspecified" in str(estimate) for estimate in found.values())
    kappa = float(torch.linalg.cond(X)) ** 2
    assert found["Corollary 3.9 (SGD, interpolation)"].value == pytest.approx(2 * 2 * kappa**2 * 4 + 2)
    ours, paper = found["Corollary 2 of docs/theorems/linear-resnet.md (GD)"], found["Corollary 3.4 (GD)"]
    assert paper.value / ours.value == pytest.approx(kappa)
    with pytest.raises(ValueError, match="batch_size is 9"):
        sf.sgd.width_estimates(loss, batch_size=9)
    with pytest.raises(ValueError, match="delta is 2"):
        sf.sgd.width_estimates(loss, delta=2.0)
