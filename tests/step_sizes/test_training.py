"""Training: optimisers, fresh problems, early stopping, divergence, checkpoints and exact resumption."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from trainings import in_use

from surefoot import RunDirectoryError
from surefoot._learning.optimizers import Adam
from surefoot._learning.run import TrainRun, TrainStatus
from surefoot._step_sizes.network import StepSizeNet
from surefoot._step_sizes.optimizers import LBFGS
from surefoot._step_sizes.training import train
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems

RATES = {"sgd": 1e-2, "adam": 1e-2, "armijo": None, "lbfgs": None}


def network(widths: tuple[int, ...] = (2, 2, 8), **options: Any) -> StepSizeNet:
    return StepSizeNet.orthogonal(widths, **options)


def problems(seed: int = 0) -> LeastSquares:
    return LeastSquares.random(6, 5, 8, seed=seed)


def final(net: StepSizeNet, batch: Problems, iterations: int) -> float:
    return float(net.solve(batch, iterations).objectives[-1].sum())


def weights(net: StepSizeNet) -> Tensor:
    return torch.cat([W.reshape(-1) for W in net.matrices])


@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("kind", [LeastSquares, Lasso, Logistic])
def test_every_optimizer_lowers_every_loss(optimizer: str, kind: type[Problems]) -> None:
    batch = {
        LeastSquares: problems(),
        Lasso: Lasso.random(3, 6, 9, sparsity=0.8, lam=0.05),
        Logistic: Logistic.random(3, 9, 4, lam=0.2),
    }[kind]
    net = network(expansion=3.0)
    before = final(net, batch, 8)
    run = train(net, batch, optimizer, epochs=15, learning_rate=RATES[optimizer], iterations=8)
    assert run.status in (TrainStatus.FINISHED, TrainStatus.STALLED)
    assert run.losses[0] == pytest.approx(before, rel=1e-12) and run.best < (1.0 - 1e-6) * before
    assert run.best == min(run.losses) and run.losses[run.best_epoch] == run.best
    assert final(net, batch, 8) == pytest.approx(run.best, rel=1e-12), "the network holds the best weights"
    assert run.validation == () and run.epochs == len(run.losses) - 1 <= 15
    assert f"{run.epochs:,} epochs" in str(run)


@pytest.mark.parametrize("optimizer", ["armijo", "lbfgs"])
def test_line_searches_are_monotone(optimizer: str) -> None:
    run = train(network(expansion=3.0), problems(), optimizer, epochs=25, iterations=8)
    assert all(after < before for before, after in zip(run.losses, run.losses[1:], strict=False))


def test_quasi_newton_and_adam_on_known_functions() -> None:
    """L-BFGS reaches the minimum of an ill-conditioned quadratic that gradient descent does not; Adam's first step has size
    rate in every coordinate, its second is that of the formulas."""
    scales = torch.logspace(0, 3, 6, dtype=torch.float64)

    def value(w: Tensor) -> float:
        return 0.5 * float((scales * w.square()).sum())

    w, method = torch.ones(6, dtype=torch.float64), LBFGS(1.0)
    for _ in range(60):
        new = method.step(w, scales * w, value(w), value)
        if new is None:
            break
        w = new
    assert value(w) < 1e-12
    adam, w = Adam(0.1), torch.zeros(2, dtype=torch.float64)
    g = torch.tensor([3.0, -1e-3], dtype=torch.float64)
    first = adam.step(w, g)
    torch.testing.assert_close(first, torch.tensor([-0.1, 0.1], dtype=torch.float64), rtol=2e-5, atol=0.0)
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    reference = torch.optim.Adam([parameter], lr=0.1)
    for slope in (g, 2.0 * g, -g):
        parameter.grad = slope.clone()
        reference.step()
    second = adam.step(first, 2.0 * g)
    torch.testing.assert_close(adam.step(second, -g), parameter.detach(), rtol=1e-13, atol=0.0)


def test_detached_gradient_is_another_run() -> None:
    nets = [network((2, 2, 4), expansion=3.0), network((2, 2, 4), expansion=3.0)]
    runs = [
        train(net, problems(), "sgd", gradient, epochs=5, learning_rate=0.05, iterations=8)
        for net, gradient in zip(nets, ("exact", "detached"), strict=True)
    ]
    assert runs[0].losses[0] == runs[1].losses[0] and runs[0].losses[2:] != runs[1].losses[2:]


def test_stationary_start_stalls() -> None:
    """All units dead: the gradient is 0, so there is no direction to search along."""
    net = StepSizeNet([torch.zeros(3, 2, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)])
    run = train(net, problems(), "armijo", epochs=5, iterations=3)
    assert run.status is TrainStatus.STALLED and run.epochs == 0


def test_no_epochs_evaluate_only() -> None:
    net = network()
    before = weights(net).clone()
    run = train(net, problems(), epochs=0, iterations=4)
    assert run.status is TrainStatus.FINISHED and len(run.losses) == 1 and torch.equal(weights(net), before)


def test_fresh_problems_each_epoch() -> None:
    asked: list[int] = []

    def fresh(epoch: int) -> Problems:
        asked.append(epoch)
        return problems(100 + epoch)

    net = network(expansion=3.0)
    run = train(net, problems(), "adam", epochs=6, learning_rate=0.01, iterations=6, fresh=fresh)
    assert asked == list(range(7))
    start = network(expansion=3.0)
    assert run.losses[0] == pytest.approx(final(start, problems(100), 6), rel=1e-12)
    assert run.validation[0] == pytest.approx(final(start, problems(), 6), rel=1e-12), "fixed problems validate"
    assert run.best == min(run.validation) < run.validation[0]
    assert final(net, problems(), 6) == pytest.approx(run.best, rel=1e-12)


def test_armijo_searches_on_the_problems_of_the_epoch() -> None:
    run = train(network(expansion=3.0), problems(), "armijo", epochs=4, iterations=6, fresh=lambda e: problems(50 + e))
    assert run.status is TrainStatus.FINISHED and run.best < run.validation[0]


def test_early_stopping() -> None:
    """A step far too large for the validation problems: nothing improves after the first epochs."""
    net = network(expansion=3.0)
    run = train(
        net, problems(), "adam", epochs=200, learning_rate=2.0, iterations=6, validation=problems(9), patience=7
    )
    assert run.status is TrainStatus.EARLY_STOPPED
    assert run.epochs == run.best_epoch + 7 < 200
    assert final(net, problems(9), 6) == pytest.approx(min(run.validation), rel=1e-12)


@pytest.mark.parametrize("widths", [(2, 2, 8), (2, 5), (2, 3, 3, 3)])
def test_divergence_keeps_the_best_network(tmp_path: Path, widths: tuple[int, ...]) -> None:
    net = network(widths, expansion=1e3)
    run = train(net, problems(), "sgd", epochs=50, learning_rate=1e308, iterations=6, directory=tmp_path / "run")
    assert run.status is TrainStatus.DIVERGED and not math.isfinite(run.losses[-1])
    assert bool(weights(net).isfinite().all()) and final(net, problems(), 6) == pytest.approx(run.best, rel=1e-12)
    assert torch.equal(weights(StepSizeNet.load(tmp_path / "run" / "best.safetensors")), weights(net))
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["status"] == "diverged" and stored["losses"][-1] is None and stored["best"] == run.best
    assert "smaller learning rate" in run.status.text


def test_a_gradient_that_overflows_ends_the_run_and_its_loss_counts() -> None:
    batch = problems()
    run = train(network(), LeastSquares(batch.M, 1e150 * batch.Y), "adam", epochs=5, learning_rate=0.1, iterations=6)
    assert run.status is TrainStatus.DIVERGED and run.epochs == 0
    assert math.isfinite(run.best) and run.best == run.losses[0] and "smaller scale" in run.status.text


def same(a: TrainRun, b: TrainRun) -> bool:
    return a.losses == b.losses and a.validation == b.validation and (a.best, a.best_epoch) == (b.best, b.best_epoch)


@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("widths", [(2, 2, 8), (2, 6)])
def test_resumed_run_is_bit_identical(tmp_path: Path, optimizer: str, widths: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"learning_rate": RATES[optimizer], "iterations": 6, "validation": problems(5)}
    if optimizer != "lbfgs":
        options["fresh"] = lambda epoch: problems(100 + epoch)
    whole_net, net = network(widths, expansion=3.0), network(widths, expansion=3.0)
    whole = train(whole_net, problems(), optimizer, epochs=14, **options)
    for epochs in (4, 9, 14):
        net = network(widths, expansion=3.0)
        run = train(net, problems(), optimizer, epochs=epochs, directory=tmp_path / "run", resume=epochs > 4, **options)
    assert same(run, whole) and torch.equal(weights(net), weights(whole_net))


def test_resume_takes_an_earlier_checkpoint_when_the_newest_is_damaged(tmp_path: Path) -> None:
    options: dict[str, Any] = {"learning_rate": 0.01, "iterations": 6}
    whole = train(network(expansion=3.0), problems(), "adam", epochs=12, **options)
    train(network(expansion=3.0), problems(), "adam", epochs=7, directory=tmp_path, **options)
    newest = max((tmp_path / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.warns(UserWarning, match=f"{newest.name} cannot be used"):
        run = train(network(expansion=3.0), problems(), "adam", epochs=12, directory=tmp_path, resume=True, **options)
    assert same(run, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_with_a_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    stop = True

    def fresh(epoch: int) -> Problems:
        if stop and epoch == 3:
            os.kill(os.getpid(), number)
        return problems(100 + epoch)

    options: dict[str, Any] = {"learning_rate": 0.01, "iterations": 6, "fresh": fresh}
    run = train(network(expansion=3.0), problems(), "adam", epochs=8, directory=tmp_path, **options)
    assert run.status is TrainStatus.INTERRUPTED and run.stopped_by == number and run.epochs == 3
    stop = False
    resumed = train(network(expansion=3.0), problems(), "adam", epochs=8, directory=tmp_path, resume=True, **options)
    whole = train(network(expansion=3.0), problems(), "adam", epochs=8, **options)
    assert resumed.status is TrainStatus.FINISHED and same(resumed, whole)


def test_run_directory(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 3, "learning_rate": 0.01, "iterations": 4}
    net = network()
    train(net, problems(), directory=tmp_path / "run", **options)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["format"] == "surefoot-step-sizes/1" and config["iterations"] == 4
    with pytest.raises(RunDirectoryError, match="not an empty directory"):
        train(network(), problems(), directory=tmp_path / "run", **options)
    with pytest.raises(RunDirectoryError, match=r"\(learning_rate, problems differ\)"):
        train(network(), problems(1), directory=tmp_path / "run", resume=True, **{**options, "learning_rate": 0.02})
    with pytest.raises(RunDirectoryError, match="range"):
        train(network(range=(0.5, 1.5)), problems(), directory=tmp_path / "run", resume=True, **options)
    with in_use(tmp_path / "run"), pytest.raises(RunDirectoryError, match="another process"):
        train(network(), problems(), directory=tmp_path / "run", resume=True, **options)
    with pytest.raises(RunDirectoryError, match="no run to resume"):
        train(network(), problems(), directory=tmp_path / "none", resume=True, **options)
    (tmp_path / "run" / "config.json").write_text('{"format": "surefoot-sgd/1"}')
    with pytest.raises(RunDirectoryError, match=r"no run of sf\.learned\.train"):
        train(network(), problems(), directory=tmp_path / "run", resume=True, **options)


def test_a_failed_write_leaves_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot._core import io

    net = network(expansion=3.0)
    before = weights(net).clone()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(io.os, "replace", full)
        with pytest.raises(OSError, match="free space"):
            train(net, problems(), "adam", epochs=3, iterations=4, directory=tmp_path / "run")
    assert torch.equal(weights(net), before)
    run = train(net, problems(), "adam", epochs=3, iterations=4, directory=tmp_path / "run")
    assert run.status is TrainStatus.FINISHED, (
        "a run cut off before its config.json leaves a directory that counts as empty"
    )
    best = weights(net).clone()
    with monkeypatch.context() as patch:
        patch.setattr(StepSizeNet, "save", full)
        with pytest.raises(OSError, match="No space left"):
            train(net, problems(), "adam", epochs=3, iterations=4, directory=tmp_path / "other")
    assert torch.equal(weights(net), best)


def test_smoothness_and_single_precision() -> None:
    batch = problems()
    runs = [
        train(network(), batch, epochs=0, iterations=5, smoothness=smoothness).losses[0]
        for smoothness in (None, "common", "authors", 2.0 * batch.common_smoothness)
    ]
    assert runs[0] < runs[1] < runs[2] < runs[3]
    single = train(
        network(expansion=3.0).float(),
        batch.to(dtype=torch.float32),
        "adam",
        epochs=5,
        learning_rate=0.01,
        iterations=5,
    )
    double = train(network(expansion=3.0), batch, "adam", epochs=5, learning_rate=0.01, iterations=5)
    assert list(single.losses) == pytest.approx(list(double.losses), rel=1e-3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"iterations": 0}, ValueError, "iterations is 0; it must be an integer of at least 1"),
        ({"epochs": -1}, ValueError, "epochs is -1"),
        ({"optimizer": "adma"}, ValueError, "unknown optimizer 'adma'; did you mean 'adam'"),
        ({"gradient": "true"}, ValueError, "gradient is 'true'"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate is 0; it must be positive"),
        ({"learning_rate": -1.0}, ValueError, "learning_rate is -1.0"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate is 'fast'"),
        (
            {"optimizer": "armijo", "gradient": "detached"},
            ValueError,
            "the detached rule is not one; use gradient='exact'",
        ),
        ({"optimizer": "lbfgs", "fresh": problems}, ValueError, "with fresh problems use adam, sgd or armijo"),
        ({"fresh": 3}, TypeError, "fresh is an int"),
        ({"fresh": lambda epoch: None}, TypeError, r"fresh\(0\) is None"),
        ({"validation": "all"}, TypeError, "validation is a str"),
        (
            {"validation": LeastSquares.random(1, 2, 3).to(dtype=torch.float32)},
            TypeError,
            "validation are torch.float32",
        ),
        ({"patience": 0}, ValueError, "patience is 0"),
        ({"resume": True}, ValueError, "resume=True needs the directory"),
        ({"directory": 3}, TypeError, "directory is 3"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    net = network()
    before = weights(net).clone()
    with pytest.raises(error, match=message):
        train(net, problems(), **options)
    assert torch.equal(weights(net), before)


def test_bad_network_and_problems() -> None:
    with pytest.raises(TypeError, match=r"net is a Linear; pass sf\.nn\.StepSizeNet"):
        train(torch.nn.Linear(2, 1), problems())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="problems is a Tensor"):
        train(network(), torch.ones(2, 3))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="convert one with"):
        train(network().float(), problems())
