"""``sf.watch`` in a loop of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from draws import normal
from good_runs import near_a_minimum, sequential
from torch import nn

import surefoot as sf
from surefoot import _report
from surefoot._core.io import RunDirectoryError
from surefoot._core.near_a_fit import watch as module
from surefoot._core.near_a_fit.features import moved
from surefoot._core.near_a_fit.history import History
from surefoot._feed_forward.report import part
from surefoot._report.facts import Facts
from surefoot._report.wording import number
from surefoot_check import Outcome, check

OBJECTIVE = sf.TorchLoss(nn.MSELoss(), normal(6, 3, seed=1), normal(6, 1, seed=2), 0.1)


def setting(dtype: torch.dtype = torch.float64) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    net = sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1), seed=2).to(dtype)
    return net, normal(6, 3, seed=1).to(dtype), normal(6, 1, seed=2).to(dtype)


def trained(net: nn.Sequential, X: torch.Tensor, Y: torch.Tensor, steps: int, watch: sf.Watch, batch: int = 6) -> None:
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for t in range(steps):
        rows = torch.arange(t * batch, (t + 1) * batch) % len(X)
        optimizer.zero_grad()
        (net(X[rows]) - Y[rows]).square().sum().backward()
        optimizer.step()
        watch.step()


@pytest.mark.parametrize(("dtype", "batch"), [(torch.float64, 6), (torch.float32, 6), (torch.float64, 2)])
def test_the_first_certified_iterate_is_found_and_said_once(dtype: torch.dtype, batch: int) -> None:
    (net, X, Y), said = setting(dtype), []
    watch = sf.watch(net, sf.SquaredLoss(X, Y), every=50, share=1.0, report=said.append)
    assert watch.margin is None and watch.certificate is None
    trained(net, X, Y, 2000, watch, batch)
    assert [seen.iteration for seen in watch.history] == list(range(50, 2001, 50))
    holding = [seen.iteration for seen in watch.history if seen.holds]
    assert holding and watch.certified == holding[0] > 50
    assert len(said) == 1 and f"from iteration {holding[0]} on an exact fit is guaranteed within" in said[0]
    for seen in watch.history:
        assert seen.holds == (seen.margin > 1.0 + 1e-6)
    assert watch.certificate is not None and watch.certificate.radius is not None
    assert watch.certificate == sf.certify(net, sf.SquaredLoss(X, Y))


def test_no_more_than_the_share_of_the_time_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own: a step takes 1, a look 7."""
    now = [0.0]

    def certify(*arguments: Any) -> sf.Certificate:
        now[0] += 7.0
        return sf.certify(*arguments)

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "certify", certify)
    net, X, Y = setting()
    watch = sf.watch(net, sf.SquaredLoss(X, Y), every=1, share=0.25, report=None)
    for _ in range(200):
        now[0] += 1.0
        watch.step()
    assert len(watch.history) >= 5 and sum(seen.seconds for seen in watch.history) <= 0.25 * now[0]


def test_a_mean_of_squared_errors_without_decay_is_watched_for_an_exact_fit() -> None:
    net, X, Y = setting()
    watch = sf.watch(net, sf.TorchLoss(nn.MSELoss(), X, Y), every=50, share=1.0, report=None)
    of_sum = sf.watch(net, sf.SquaredLoss(X, Y), every=50, share=1.0, report=None)
    while watch.certified is None:
        trained(net, X, Y, 50, watch)
        of_sum.iteration = watch.iteration
        of_sum.look()
    assert watch.theorem == "feed-forward/local"
    for mean, total in zip(watch.history, of_sum.history, strict=True):
        assert mean.loss == pytest.approx(total.loss / 3.0) and mean.margin == pytest.approx(total.margin, rel=1e-3)


def test_weights_that_are_not_finite_are_a_look_without_certificate() -> None:
    net, X, Y = setting()
    watch = sf.watch(net, sf.SquaredLoss(X, Y), every=1, share=1.0, report=None)
    watch.step()
    before = watch.certificate
    with torch.no_grad():
        net[0].bias[3] = torch.nan
    assert watch.step() is None and watch.certificate is before and watch.margin == 0.0
    assert watch.history[-1].iteration == 2 and watch.history[-1].gap == float("inf") and not watch.history[-1].holds


def test_a_jacobian_without_full_rank_has_no_margin() -> None:
    net, X, Y = setting()
    nearly = X[[0, 1, 0]] * torch.tensor([[1.0], [1.0], [1.0 + 1e-15]], dtype=torch.float64)
    watch = sf.watch(net, sf.SquaredLoss(nearly, Y[:3]), every=1, report=None)
    watch.step()
    assert watch.margin == 0.0 and watch.certified is None


def test_a_minimum_of_ones_own_objective_is_found(tmp_path: Path) -> None:
    net, loss = near_a_minimum(error=0.3)
    said: list[str] = []
    watch = sf.watch(net, loss, every=1, share=1.0, report=said.append, directory=tmp_path / "run")
    for _ in range(8):  # damped Newton steps, as any optimiser
        sf.newton(net, loss, 1)
        watch.step()
    first = next(seen for seen in watch.history if seen.holds)
    assert watch.certified == first.iteration > 1 and watch.theorem == "feed-forward/minimum"
    assert len(said) == 1 and f"from iteration {first.iteration} on a local minimum is guaranteed within" in said[0]
    for seen in watch.history:
        assert seen.holds == (seen.margin > 1.0 + 1e-6)
    certificate = watch.certificate
    assert certificate is not None and certificate == sf.certify(net, loss)
    q = certificate.quantities
    assert watch.margin == q["lambda_min_H"] ** 2 / (2.0 * q["lipschitz_H"] * q["g0"])
    assert watch.history[-1].loss == pytest.approx(float(_objective(net, loss)), rel=1e-14)


def _objective(net: nn.Sequential, loss: sf.TorchLoss) -> torch.Tensor:
    with torch.no_grad():
        decayed = sum(p.square().sum() for p in net.parameters())
        return nn.functional.cross_entropy(net(loss.X), loss.targets) + 0.5 * loss.weight_decay * decayed


def test_the_history_is_kept_for_the_report_of_the_run_that_goes_on(tmp_path: Path) -> None:
    net, X, Y = setting()
    loss, directory = sf.SquaredLoss(X, Y), tmp_path / "run"
    start = net[:2](X).detach()
    watch = sf.watch(net, loss, every=50, share=1.0, report=None, directory=directory)
    while watch.certified is None:
        trained(net, X, Y, 50, watch)
    share = float((net[:2](X).detach() - start).norm() / start.norm())
    assert watch.history[-1].moved == (pytest.approx(share, rel=1e-12),) and share > 0.1
    kept = History.read(directory)
    assert kept is not None and list(kept.looks) == watch.history and kept.certified == watch.history[-1]
    run = sf.descend(net, loss, max_iterations=3, directory=directory, progress=False)
    page = _report.write(directory).read_text()
    assert f"iteration {watch.certified}" in page and "Layer that costs most in" in page
    assert run.certificate.radius is not None
    assert f"An exact fit lies within {number(run.certificate.radius)} of the certified weights" in page
    assert (directory / "plots" / "training.png").exists()
    assert check(directory).outcome is Outcome.ACCEPT and run.certified
    with pytest.raises(RunDirectoryError, match="not an empty directory; choose another"):
        sf.watch(net, loss, directory=directory)
    other = sf.watch(net, sf.SquaredLoss(X, 2.0 * Y), report=None)
    other.look()
    other.save(directory)
    assert part(Facts.of(sf.Run.load(directory))).plots == {}  # of another problem
    (directory / "watch.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match="has format None"):
        _report.write(directory)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"directory": 5}, TypeError, "directory is 5"),
        (
            {"net": nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).double(), "loss": OBJECTIVE},
            ValueError,
            "whose second derivative jumps",
        ),
        ({"every": 0}, ValueError, "every is 0; it must be an integer of at least 1"),
        ({"share": 0.0}, ValueError, "share is 0.0; it must be positive and at most 1"),
        ({"share": 1.5}, ValueError, "share is 1.5"),
        ({"share": True}, ValueError, "share is True"),
        (
            {"net": sf.nn.TwoLayerLinear.gaussian(3, 1, 4)},
            TypeError,
            "net is a TwoLayerLinear; sf.watch takes sf.nn.ImplicitReLU or torch.nn",
        ),
        ({"report": 5}, TypeError, "report is 5; pass a function"),
        ({"loss": 5}, TypeError, "loss is an int; pass sf.SquaredLoss"),
        ({"loss": sf.SquaredLoss(normal(6, 4, seed=1), normal(6, 1, seed=2))}, ValueError, "the loss has 4 inputs"),
        ({"net": nn.Sequential(nn.Linear(3, 1), nn.Softmax(1))}, TypeError, "Softmax, is not supported"),
        ({"net": nn.Sequential(nn.Linear(3, 1)).half()}, TypeError, "has dtype float16"),
    ],
)
def test_bad_arguments(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    net, X, Y = setting()
    with pytest.raises(kind, match=message):
        sf.watch(**{"net": net, "loss": sf.SquaredLoss(X, Y), **options})


def test_the_radius_is_that_of_the_theorem_and_of_no_other() -> None:
    net = sf.nn.TwoLayerLinear.gaussian(3, 1, 30, seed=0)
    certificate = sf.certify(net, sf.SquaredLoss(normal(6, 3, seed=1), normal(6, 1, seed=2)))
    assert certificate.holds and certificate.radius is None


def test_a_disk_that_is_full_loses_no_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: History, directory: Path) -> None:
        raise OSError(28, "No space left on device")

    net, loss = near_a_minimum()
    watch = sf.watch(net, loss, 1, report=None, directory=tmp_path / "run")
    monkeypatch.setattr(History, "write", write)
    with pytest.raises(OSError, match="No space left"):
        watch.step()
    assert watch.certified == 1 and watch.certificate is not None and watch.certificate.holds
    assert [seen.holds for seen in watch.history] == [True]
    monkeypatch.undo()
    watch.look()
    read = History.read(tmp_path / "run")
    assert read is not None and list(read.looks) == watch.history


def test_features_that_overflow_in_float32_have_no_share() -> None:
    large = torch.tensor([[3e38, 1.0]])
    assert moved([large], [-large]) == () and moved([large / 2], [large / 2]) == (0.0,)
