"""Minibatch SGD: batches, gradients, resuming, and the theorems that speak of it."""

from __future__ import annotations

import json
import math
import signal
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainings import in_use

import surefoot as sf
from surefoot._core import checkpoints
from surefoot._core.draws import batch_of
from surefoot._linear_resnet import sgd
from surefoot._linear_resnet import sgd_theorems as theorems
from surefoot._linear_resnet.engine import Iterate
from surefoot._linear_resnet.sgd import INTERPOLATION_ID, SGD_ID

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
    with pytest.raises(sf.RunDirectoryError, match="not an empty directory"):
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


def test_theorem_3_6_speaks_of_its_last_iteration_alone() -> None:
    X, Y = data(noise=0.1)
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 2e4)
    found = sf.sgd.certify(net, X, Y, 4, target=0.05)
    assert found.holds and found.probability == 0.5
    least = 0.5 * float((X @ torch.linalg.lstsq(X, Y).solution - Y).square().sum())
    assert found.bound(found.iterations) == pytest.approx(least + 0.05, rel=1e-12)
    assert found.bound(1) == math.inf and found.bound(found.iterations + 1) == math.inf


def least_loss(X: torch.Tensor, Y: torch.Tensor) -> Fraction:
    """The least loss of data with two columns, in rationals: a solver's own rounding may lie above a sharp bound."""
    (a, b), targets = ([[Fraction(value) for value in row] for row in M.T.tolist()] for M in (X, Y))
    aa, ab, bb = (sum(u * v for u, v in zip(p, q, strict=True)) for p, q in ((a, a), (a, b), (b, b)))
    total = Fraction(0)
    for y in targets:
        ay, by = (sum(u * v for u, v in zip(p, y, strict=True)) for p in (a, b))
        slopes = (bb * ay - ab * by) / (aa * bb - ab * ab), (aa * by - ab * ay) / (aa * bb - ab * ab)
        total += sum((slopes[0] * u + slopes[1] * v - t) ** 2 for u, v, t in zip(a, b, y, strict=True)) / 2
    return total


@pytest.mark.parametrize("noise", [0.0, 1e-7, 0.1])
def test_the_bound_of_theorem_3_8_ends_at_17_times_the_optimal_value(noise: float) -> None:
    X, Y = data(noise=noise)
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 2e4)
    found = sf.sgd.certify(net, X, Y, 4, theorem=INTERPOLATION_ID, iterations=10**19)
    assert found.holds
    initial = 0.5 * float(Y.square().sum())
    assert found.bound(0) == pytest.approx(2.0 * initial, rel=1e-6)
    least = float(least_loss(X, Y))
    assert found.bound(10**18) >= 17.0 * least * (1.0 - 1e-9)
    assert found.bound(10**18) <= 17.0 * (math.sqrt(least) + 1e-14) ** 2
    condition = next(c for c in found.conditions if "17 L*" in c.name)
    assert condition.right == pytest.approx(initial, rel=1e-6) and condition.left == found.bound(10**18)


def test_the_optimal_value_is_bounded_from_above() -> None:
    """In rationals: the least loss of data on a line through 0, with and without noise."""
    for noise in (0, 1, 10**6):
        x = [Fraction(1, 3 + i) for i in range(9)]
        y = [7 * value / 5 + noise * Fraction((-1) ** i, 10**12) for i, value in enumerate(x)]
        X, Y = (np.array([[float(value)] for value in values]) for values in (x, y))
        x, y = ([Fraction(float(value)) for value in array[:, 0]] for array in (X, Y))
        slope = sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
        least = sum((slope * a - b) ** 2 for a, b in zip(x, y, strict=True)) / 2
        net = sf.nn.LinearResNet.modified_identity(1, 1, 2, 2, 10.0)
        found = sf.sgd.certify(net, X, Y, 4, theorem=INTERPOLATION_ID).quantities["optimal_value"]
        assert least <= Fraction(found) <= (Fraction(1.001) if noise else 10**4) * least


def test_hypotheses_that_fail_are_named() -> None:
    X, Y = data(noise=0.1)
    found = sf.sgd.certify(small_net(), X, Y, 4)
    assert not found.holds and "FAILS" in str(found) and found.bound(0) == math.inf
    noisy = sf.sgd.certify(small_net(), X, X.flip(0), 4, theorem=INTERPOLATION_ID)
    assert "17 L* <= L0" in next(c.name for c in noisy.conditions if not c.holds)


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


def memory_mapped(path: Path, values: torch.Tensor) -> np.ndarray:
    np.save(path, values.numpy())
    return np.load(path, mmap_mode="r")


def test_targets_keep_their_precision_however_they_are_given(tmp_path: Path) -> None:
    X, Y = data(noise=0.1)
    expected = sf.sgd.descend(small_net(), X, Y, 3, 1e-3, 5).gaps
    swapped = Y.numpy().astype(">f8")
    for given in (Y.tolist(), swapped, np.asfortranarray(Y.numpy()), memory_mapped(tmp_path / "Y.npy", Y)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sf.sgd.descend(small_net(), X, given, 3, 1e-3, 5).gaps == expected


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"Y": None}, TypeError, "Y is None"),
        ({"Y": np.array([[None, 1.0]] * 8)}, TypeError, "Y has dtype object"),
        ({"Y": torch.zeros(8, 2, dtype=torch.float16)}, TypeError, "Y has dtype float16"),
        ({"Y": torch.zeros(7, 2)}, ValueError, "the same N"),
        ({"X": torch.zeros(8, 2)}, ValueError, "X is zero"),
        ({"X": torch.zeros(0, 2), "Y": torch.zeros(0, 2)}, ValueError, "X is empty"),
        ({"net": sf.nn.LinearNet.gaussian(2, 2, 4, 1)}, TypeError, "net is a LinearNet"),
        ({"net": None}, TypeError, "net is None"),
        ({"step": -1.0}, ValueError, "step is -1.0"),
        ({"step": math.nan}, ValueError, "step is nan"),
        ({"step": "fast"}, TypeError, "step is 'fast'"),
        ({"max_iterations": math.inf}, ValueError, "max_iterations is inf; it must be an integer"),
        ({"max_iterations": -1}, ValueError, "max_iterations is -1"),
        ({"max_iterations": "3"}, ValueError, "max_iterations is '3'"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": None}, ValueError, "seed is None"),
        ({"seed": 1.5}, ValueError, "seed is 1.5"),
        ({"tolerance": math.nan}, ValueError, "tolerance is nan"),
        ({"batch_size": 2.0}, ValueError, "batch_size is 2.0"),
    ],
)
def test_bad_arguments_of_a_run_are_named(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    X, Y = data()
    arguments = {"net": small_net(), "X": X, "Y": Y, "batch_size": 4, "step": 1e-3, "max_iterations": 3}
    with pytest.raises(error, match=message):
        sf.sgd.descend(**{**arguments, **changes})


@pytest.mark.parametrize("changes", [{"target": 1e-320}, {"delta": 1e-300}])
def test_counts_beyond_float64_are_an_error_that_says_so(changes: dict[str, Any]) -> None:
    X, Y = data(noise=0.1)
    with pytest.raises(ValueError, match="more iterations than float64 can count"):
        sf.sgd.certify(small_net(), X, Y, 4, **changes)


@pytest.mark.parametrize("theorem", [SGD_ID, INTERPOLATION_ID])
def test_a_transformation_without_full_rank_is_a_hypothesis_that_fails(theorem: str) -> None:
    X, Y = data()
    net = sf.nn.LinearResNet(torch.zeros(4, 2), torch.zeros(2, 4), torch.zeros(2, 4, 4))
    found = sf.sgd.certify(net, X, Y, 4, theorem=theorem)
    assert not found.holds and found.step_size == 0.0 and "smin(A), smin(B) > 0" in str(found)
    with pytest.raises(ValueError, match=r"step is 0.*pass a number"):
        sf.sgd.descend(net, X, Y, 4, found)


def test_only_the_steps_of_a_guarantee_are_certified() -> None:
    X, Y = data()
    fresh = lambda: sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 2000.0)  # noqa: E731
    guarantee = sf.sgd.certify(fresh(), X, Y, 4, theorem=INTERPOLATION_ID, iterations=5)
    assert sf.sgd.descend(fresh(), X, Y, 4, guarantee).certified
    assert not sf.sgd.descend(fresh(), X, Y, 4, guarantee, max_iterations=6).certified
    assert not sf.sgd.descend(fresh(), X, Y, 4, 1.1 * guarantee.step_size, 5).certified
    with pytest.raises(ValueError, match=r"another network.*\(A, B differ\)"):
        sf.sgd.descend(small_net(width=4), X, Y, 4, guarantee)
    with pytest.raises(ValueError, match=r"\(batch_size differ\)"):
        sf.sgd.descend(fresh(), X, Y, 3, guarantee)


def test_a_divergence_keeps_the_newest_checkpoint_and_does_not_warn(tmp_path: Path) -> None:
    X, Y = data()
    net = small_net()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = sf.sgd.descend(net, X, Y, 4, 0.05, 500, directory=tmp_path / "run")
        assert sf.sgd.descend(small_net(), X, Y, 4, 1e300, 5).status is sf.RunStatus.DIVERGED
    assert run.status is sf.RunStatus.DIVERGED and run.iterations > 1
    assert len((tmp_path / "run" / "trace.jsonl").read_text().splitlines()) == run.iterations
    newest = max(int(file.stem) for file in (tmp_path / "run" / "checkpoints").iterdir())
    again = small_net()
    sf.sgd.descend(again, X, Y, 4, 0.05, newest)
    assert torch.equal(net.W, again.W) and net.W.any()


def test_leaving_the_optimum_to_the_noise_floor_is_no_divergence() -> None:
    X, Y = data(noise=0.1)
    net = sf.nn.LinearResNet(torch.eye(2), torch.eye(2), torch.zeros(1, 2, 2))
    with torch.no_grad():
        net.W.copy_(torch.linalg.lstsq(X, Y).solution.T - torch.eye(2))
    run = sf.sgd.descend(net, X, Y, 2, 1e-2, 50)
    assert run.status is sf.RunStatus.MAX_ITERATIONS and run.gaps[-1] > 1e6 * run.gaps[0]


def test_a_directory_belongs_to_one_run_and_one_network(tmp_path: Path) -> None:
    X, Y = data()
    path = tmp_path / "run"
    sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 5, directory=path)
    with pytest.raises(sf.RunDirectoryError, match=r"has a run of .*, which no report or check reads"):
        sf.Run.load(path)
    for other, name in ((small_net(seed=9), "arrays"), (small_net(), "step")):
        with pytest.raises(sf.RunDirectoryError, match=f"{name} differ"):
            sf.sgd.descend(other, X, Y, 4, 1e-3 if name == "arrays" else 2e-3, 9, directory=path, resume=True)
    with in_use(path), pytest.raises(sf.RunDirectoryError, match="another process is writing"):
        sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 9, directory=path, resume=True)
    with pytest.raises(sf.RunDirectoryError, match="no run to resume"):
        sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 9, directory=tmp_path / "absent", resume=True)
    (path / "trace.jsonl").write_text("")
    with pytest.raises(sf.RunDirectoryError, match="0 rows for 5 iterations"):
        sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 9, directory=path, resume=True)


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    X, Y = data()
    whole = sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30)
    path = tmp_path / "run"
    sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 12, directory=path)
    newest = path / "checkpoints" / "000000012.safetensors"
    newest.write_bytes(newest.read_bytes()[:50])
    with pytest.warns(UserWarning, match="an earlier one is taken"):
        again = sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30, directory=path, resume=True)
    assert again.rows == whole.rows


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    X, Y = data()
    whole = sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30)

    def interrupting(seed: int, iteration: int, samples: int, batch_size: int) -> np.ndarray:
        if iteration == 12:
            signal.raise_signal(number)
        return batch_of(seed, iteration, samples, batch_size)

    with monkeypatch.context() as patch:
        patch.setattr(sgd, "batch_of", interrupting)
        run = sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30, directory=tmp_path / "run")
    assert run.status is sf.RunStatus.INTERRUPTED and run.iterations == 13 and run.stopped_by == number
    again = sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30, directory=tmp_path / "run", resume=True)
    assert again.rows == whole.rows


def test_a_failed_write_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data()
    whole = sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30)
    save = checkpoints.save

    def full(directory: Path, checkpoint: checkpoints.Checkpoint, certificate: str) -> None:
        if checkpoint.iteration == 20:
            raise OSError(28, "No space left on device")
        save(directory, checkpoint, certificate)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(checkpoints, "save", full)
        sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30, directory=tmp_path / "run")
    again = sf.sgd.descend(small_net(), X, Y, 4, 1e-3, 30, directory=tmp_path / "run", resume=True)
    assert again.rows == whole.rows
