"""Callbacks of the training of learned solvers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot as sf
from surefoot.callbacks import Callback, CSVWriter, Start


class Recorder(Callback):
    """Keeps the iterations that it is told of; asks for the end at ``stop``, fails at ``fail``."""

    def __init__(self, stop: int | None = None, fail: int | None = None) -> None:
        self.stop, self.fail = stop, fail
        self.records: list[dict[str, float]] = []
        self.last: dict[str, float] = {}
        self.run: Any = None

    def on_iteration(self, record: Mapping[str, float]) -> bool:
        self.records.append(dict(record))
        if record["iteration"] == self.fail:
            raise RuntimeError("failed")
        return record["iteration"] == self.stop

    def on_end(self, run: Any, last: Mapping[str, float]) -> None:
        self.run, self.last = run, dict(last)


def train(**options: Any) -> tuple[sf.nn.StepSizeNet, sf.learned.TrainRun]:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 8), seed=0)
    problems, held_out = (sf.learned.LeastSquares.random(3, 4, 5, seed=seed) for seed in (0, 1))
    run = sf.learned.train(net, problems, "adam", epochs=12, iterations=5, validation=held_out, **options)
    return net, run


def test_every_epoch_is_told_once_with_its_losses() -> None:
    seen = Recorder()
    _, run = train(callbacks=[seen])
    records = [*seen.records, seen.last]
    assert [record["iteration"] for record in records] == list(range(13))
    assert [record["loss"] for record in records] == list(run.losses)
    assert [record["validation"] for record in records] == list(run.validation)
    assert all(record["rate"] == 1e-3 for record in seen.records) and "rate" not in seen.last and seen.run == run


def test_a_stopped_training_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    before, after = Recorder(4), Recorder()
    file = tmp_path / "losses.csv"
    _, first = train(callbacks=[before, CSVWriter(file)], directory=tmp_path / "run")
    assert first.status is sf.learned.TrainStatus.INTERRUPTED and first.epochs == 5 and first.stopped_by is None
    net, run = train(callbacks=[after, CSVWriter(file)], directory=tmp_path / "run", resume=True)
    whole, uncut = train()
    assert run == uncut and all(map(torch.equal, net.parameters(), whole.parameters()))
    assert [record["iteration"] for record in [*before.records, *after.records]] == list(range(12))
    rows = file.read_text().splitlines()
    assert rows[0] == "iteration,loss,rate,validation" and [row.split(",")[0] for row in rows[1:]] == [
        str(epoch) for epoch in range(13)
    ]


def test_at_the_end_the_network_has_its_best_weights() -> None:
    class Looks(Callback):
        def on_start(self, start: Start) -> None:
            self.net = net

        def on_end(self, run: Any, last: Any) -> None:
            self.found = [parameter.clone() for parameter in self.net.parameters()]

    net = sf.nn.StepSizeNet.orthogonal((2, 2, 8), seed=0)
    looks = Looks()
    sf.learned.train(net, sf.learned.LeastSquares.random(3, 4, 5, seed=0), epochs=3, iterations=5, callbacks=[looks])
    assert all(map(torch.equal, looks.found, net.parameters()))


def test_an_exception_loses_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed") as caught:
        train(callbacks=[Recorder(fail=4)], directory=tmp_path / "run")
    assert "go on with resume=True" in caught.value.__notes__[0]
    assert train(directory=tmp_path / "run", resume=True)[1] == train()[1]


def test_a_line_search_that_finds_no_step_tells_no_iterate_twice() -> None:
    seen = Recorder()
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 2), seed=0)
    problems = sf.learned.LeastSquares.random(1, 2, 2, seed=0)
    run = sf.learned.train(net, problems, "lbfgs", epochs=100, iterations=2, callbacks=[seen])
    assert run.status is sf.learned.TrainStatus.STALLED
    told = [record["iteration"] for record in [*seen.records, seen.last]]
    assert told == list(range(run.epochs + 1))


@pytest.mark.parametrize("kind", ["lista", "inverse", "svd"])
def test_all_trainings_take_callbacks(kind: str, generator: torch.Generator) -> None:
    seen = Recorder(1)
    matrices = torch.randn(4, 3, 2, dtype=torch.float64, generator=generator)
    if kind == "lista":
        problems = sf.learned.Lasso.from_matrix(matrices[0].T, lam=0.1, count=3)
        run = sf.learned.train_lista(
            sf.nn.LISTA(matrices[0].T, layers=2, lam=0.1), problems, epochs=5, callbacks=[seen]
        )
    elif kind == "inverse":
        run = sf.nn.LearnedInverse(torch.full((3, 2), 0.9, dtype=torch.float64)).fit(
            matrices, epochs=5, callbacks=[seen]
        )
    else:
        net = sf.nn.LearnedSVD(3, 2, 2, layers=2, dtype=torch.float64)
        run = net.fit(matrices, iterations=5, callbacks=[seen])
    assert run.status is sf.learned.TrainStatus.INTERRUPTED and run.epochs == 2 and seen.run == run
    assert [record["iteration"] for record in seen.records] == [0, 1] and seen.last["iteration"] == 2
