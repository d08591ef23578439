"""``feed-forward/sgd``: certificates of mini-batches, runs, their audit and their check."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tamper
import torch
from good_runs import sequential
from torch import nn

import surefoot as sf
from surefoot._core.draws import batch_of
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome
from surefoot_experiments.sgd_runs import Networks, run

Problem = tuple[nn.Sequential, torch.Tensor, torch.Tensor]


def near(
    activation: nn.Module | None = None, error: float = 1e-3, rows: int = 4, outputs: int = 1, seed: int = 0
) -> Problem:
    """A network with targets that it nearly fits."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(rows, 4, dtype=torch.float64, generator=generator)
    net = sequential(nn.Linear(4, 24), activation or nn.Tanh(), nn.Linear(24, outputs), seed=seed)
    f = net(X).detach()
    return net, X, f + error * torch.randn(*f.shape, dtype=torch.float64, generator=generator)


def certified(problem: Problem, batch: int = 2, delta: float | None = None) -> sf.Certificate:
    certificate = sf.sgd.certify(*problem, batch, delta=delta)
    assert certificate.holds, str(certificate)
    return certificate


def test_a_run_keeps_what_is_guaranteed_and_is_checked(tmp_path: Path) -> None:
    net, X, Y = near()
    certificate = certified((net, X, Y))
    assert (
        certificate.theorem == "feed-forward/sgd" and certificate.probability == 0.99 and certificate.claims == ("L1",)
    )
    assert "with probability 0.99" in str(certificate)
    count = certificate.iterations_to(1e-4)
    run = sf.sgd.descend(net, X, Y, 2, certificate, tolerance=1e-4, directory=tmp_path)
    assert run.status is sf.RunStatus.CONVERGED and run.iterations <= count
    audit = run.audit()
    assert audit.holds and any("whatever the batches" in line.name for line in audit.lines)
    assert run.gaps[-1] <= certificate.bound(run.iterations)
    for level in ("fast", "exact"):
        report = check(tmp_path, level=level)
        assert report.outcome is Outcome.ACCEPT, str(report)
        assert any("neither L2 nor L3 is claimed" in note for note in report.notes)
        assert not any(line.claim == "L2" for line in report.lines)


def test_a_certificate_without_its_choices_is_refused(tmp_path: Path) -> None:
    net, X, Y = near()
    sf.sgd.descend(net, X, Y, 2, certified((net, X, Y)), 3, directory=tmp_path)
    stored = tamper.StoredRun.read(tmp_path)
    for name in ("batch", "delta"):
        del stored.certificate["quantities"][name]
        stored.seal()
        stored.write(tmp_path / name)
        assert check(tmp_path / name).outcome is not Outcome.ACCEPT


def test_a_run_that_breaks_what_is_sure_is_seen_by_the_audit(tmp_path: Path) -> None:
    net, X, Y = near()
    certificate = certified((net, X, Y))
    run = sf.sgd.descend(net, X, Y, 2, certificate, 50, directory=tmp_path)
    lines = (tmp_path / "trace.jsonl").read_text().splitlines()
    for name in ("distance", "gap", "batch", "step"):
        rows = [json.loads(line) for line in lines]
        rows[10][name] = 1e6
        (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert not sf.Run.load(tmp_path).audit().holds, name
    assert run.audit().holds


def test_resuming_changes_nothing(tmp_path: Path) -> None:
    whole, parts = near(), near()
    certificate = certified(whole)
    once = sf.sgd.descend(*whole, 2, certificate, 40, seed=3)
    sf.sgd.descend(*parts, 2, certificate, 15, seed=3, directory=tmp_path)
    again = sf.sgd.descend(*near(), 2, certificate, 40, seed=3, directory=tmp_path, resume=True)
    assert again.gaps == once.gaps and again.iterations == 40
    with pytest.raises(sf.RunDirectoryError, match="seed 3"):
        sf.sgd.descend(*near(), 2, certificate, 50, seed=4, directory=tmp_path, resume=True)


def test_the_steps_are_those_of_torch_on_the_mean_over_a_batch() -> None:
    """With nn.MSELoss the learning rate is η; with the sum it is h."""
    for criterion, name in ((nn.MSELoss(), "eta"), (nn.MSELoss(reduction="sum"), "batch_step")):
        net, X, Y = near(outputs=2)
        loss = sf.TorchLoss(criterion, X, Y)
        certificate = sf.sgd.certify(net, loss, batch_size=3)
        assert certificate.holds
        ours, theirs = near(outputs=2)[0], near(outputs=2)[0]
        sf.sgd.descend(ours, loss, None, 3, certificate, 5, seed=7)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=certificate.quantities[name])
        for t in range(5):
            rows = torch.from_numpy(batch_of(7, t, 4, 3))
            optimizer.zero_grad()
            criterion(theirs(X[rows]), Y[rows]).backward()
            optimizer.step()
        for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-13)


def test_the_scale_of_the_loss_changes_no_count() -> None:
    net, X, Y = near(outputs=2)
    counts = {
        sf.sgd.certify(net, loss, batch_size=3).iterations_to(1e-6)
        for loss in (
            sf.SquaredLoss(X, Y),
            sf.TorchLoss(nn.MSELoss(), X, Y),
            sf.TorchLoss(nn.MSELoss(reduction="sum"), X, Y),
        )
    }
    assert max(counts) - min(counts) <= 1.0 and max(counts) < 1e5


def test_more_rows_in_a_batch_and_a_larger_delta_need_fewer_steps() -> None:
    problem = near()
    by_batch = [certified(problem, batch).iterations_to(1e-6) for batch in (1, 2, 4)]
    assert by_batch == sorted(by_batch, reverse=True) and by_batch[0] > by_batch[-1]
    assert certified(problem, delta=0.5).iterations_to(1e-6) < certified(problem).iterations_to(1e-6)


def test_many_runs_at_once_are_the_runs_of_the_library() -> None:
    net, X, Y = near(outputs=2)
    certificate = certified((net, X, Y))

    def batches(t: int) -> torch.Tensor:
        return torch.from_numpy(np.array([batch_of(seed, t, 4, 2) for seed in range(3)]))

    iterates = Networks(net, X, Y, 3)
    found = run(iterates, batches, certificate, 0.0, limit=20)
    assert found.above == found.left == 0 and found.taken == [None, None, None]
    for seed, gap in enumerate(iterates.gaps().tolist()):
        alone = sf.sgd.descend(near(outputs=2)[0], X, Y, 2, certificate, 20, seed=seed)
        assert alone.gaps[-1] == pytest.approx(gap, rel=1e-9)


def test_far_from_a_fit_it_says_what_to_do() -> None:
    certificate = sf.sgd.certify(*near(error=1.0), 2)
    assert not certificate.holds and "train on" in certificate.suggestion
    assert certificate.probability == 1.0


def test_equal_rows_are_refused() -> None:
    net, X, Y = near()
    certificate = sf.sgd.certify(net, X[[0, 1, 1]], Y[[0, 1, 1]], 2)
    assert not certificate.holds and "drop the rows" in certificate.suggestion
    assert certificate.conditions[0].name == "no two rows of X are equal"


def test_kinks_must_not_be_reached() -> None:
    net, X, Y = near(nn.ReLU(), 1e-6, rows=3, seed=2)
    q = certified((net, X, Y)).quantities
    assert q["kink_margin"] > 1.0
    f = net(X).detach()
    for size in (1e4, 1e5, 1e6):
        farther = sf.sgd.certify(net, X, f + size * (Y - f), 2)
        if not farther.holds:
            break
    broken = [condition.name for condition in farther.conditions if not condition.holds]
    assert any("kink" in name for name in broken), broken


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 5}, "at most 4"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2, "delta": 1.0}, "delta"),
        ({"batch_size": 2, "theorem": "feed-forward/local"}, "did you mean"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sf.sgd.certify(*near(), **arguments)  # type: ignore[arg-type]


def test_what_has_no_exact_fit_is_refused() -> None:
    net, X, Y = near()
    with pytest.raises(ValueError, match="exact fit"):
        sf.sgd.certify(net, sf.TorchLoss(nn.MSELoss(), X, Y, weight_decay=1e-3), batch_size=2)
    with pytest.raises(ValueError, match="mini-batches"):
        sf.certify(net, sf.SquaredLoss(X, Y), "feed-forward/sgd")


def test_a_watch_says_from_which_step_on_mini_batches_are_guaranteed() -> None:
    net, X, Y = near(error=0.3)
    said: list[str] = []
    loss = sf.SquaredLoss(X, Y)
    watch = sf.watch(net, loss, every=20, batch=2, share=1.0, report=said.append)
    full = sf.watch(net, loss, every=20, share=1.0, report=None)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    while watch.certified is None and watch.iteration < 5000:
        optimizer.zero_grad()
        (0.5 * (net(X) - Y).square().sum()).backward()
        optimizer.step()
        watch.step()
        full.step()
    assert watch.theorem == "feed-forward/sgd" and watch.certified is not None and full.certified is not None
    assert full.certified <= watch.certified  # what is enough for batches is enough for all rows
    assert [seen.holds for seen in watch.history] == [seen.margin > 1.0 for seen in watch.history]
    assert "with probability 0.99, by SGD with batches of 2" in said[0]
