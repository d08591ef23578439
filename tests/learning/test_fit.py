"""The frame of every training: how long it goes on, when it looks and validates, and that a resumed run is the same run."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from surefoot._core import checkpoints
from surefoot._learning import fit as frame
from surefoot._learning.fit import Course, Objective, fit
from surefoot._learning.optimizers import SGD, Adam
from surefoot._learning.run import TrainRun, TrainStatus

F64 = torch.float64
START = torch.tensor([2.0, -1.0, 3.0], dtype=F64)


class Quadratic(Objective):
    """½Σ(w - c_t)² with a target for each epoch, of which validation knows none; Adam moves the last weight alone, inside."""

    def __init__(self, look_every: int = 1, validate_every: int = 1, inner: bool = True, bad: int = -1) -> None:
        self.look_every, self.validate_every, self._bad = look_every, validate_every, bad
        self.inner = Adam(0.1) if inner else None
        self.measured: list[Tensor] = []
        self.seen: list[int] = []

    def prepare(self, epoch: int, w: Tensor) -> Tensor:
        if self.inner is None:
            return w
        return self.inner.step(w, torch.tensor([0.0, 0.0, 1.0], dtype=F64) * w)

    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        self.seen.append(epoch)
        gradient = (w - 0.1 * math.sin(epoch)) * torch.tensor([1.0, 1.0, 0.0], dtype=F64)
        value = 0.5 * gradient.square().sum()
        return (value * torch.nan if epoch >= self._bad >= 0 else value), gradient

    def measure(self, w: Tensor) -> float:
        self.measured.append(w)
        return float(w.square().sum())


def train(objective: Objective, epochs: int, directory: Path | None = None, **options: Any) -> tuple[Tensor, TrainRun]:
    course = Course.of(epochs, directory=directory, **options)
    with ExitStack() as held:
        files = course.files({"format": "test/1"}, "test", held)
        return fit(objective, START, Adam(0.05), course, files, lambda path, w: path.write_text("w"), held)


@pytest.mark.parametrize(("look_every", "validate_every"), [(1, 1), (1, 4), (2, 4), (5, 10)])
def test_a_resumed_run_is_the_same_run(look_every: int, validate_every: int, tmp_path: Path) -> None:
    """Weights, what was measured and its epochs, whatever the epoch at which the first part ended."""
    best, whole = train(Quadratic(look_every, validate_every), 13)
    for cut in (0, 1, 5, 8, 13):
        train(Quadratic(look_every, validate_every), cut, tmp_path / str(cut))
        again, resumed = train(Quadratic(look_every, validate_every), 13, tmp_path / str(cut), resume=True)
        assert torch.equal(again, best) and resumed == whole


def test_when_it_looks_and_validates() -> None:
    objective = Quadratic(5, 10)
    _, run = train(objective, 23)
    assert run.validation_epochs == (0, 10, 20, 23) and len(run.validation) == len(objective.measured) == 4
    assert run.losses == () and run.epochs == 23 and objective.seen == list(range(24))
    _, run = train(Quadratic(1, 10), 23)
    assert run.validation_epochs == (0, 10, 20, 23) and len(run.losses) == 24


def test_a_loss_that_is_not_finite_is_seen_at_the_next_look_and_never_written(tmp_path: Path) -> None:
    _, run = train(Quadratic(5, 5, bad=7), 40)
    assert (run.status, run.epochs) == (TrainStatus.DIVERGED, 10)
    _, run = train(Quadratic(20, 20, bad=5), 40, tmp_path)
    assert (run.status, run.epochs) == (TrainStatus.DIVERGED, 5)  # where a checkpoint was due
    assert max(path.stem for path in (tmp_path / "checkpoints").iterdir()) == "000000002"


class Clock:
    """A second passes at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_minutes_end_a_training_and_count_those_before_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "time", Clock())
    _, run = train(Quadratic(), 10**6, tmp_path, minutes=0.5)
    assert run.status is TrainStatus.OUT_OF_TIME and 5 < run.epochs < 31 and 30.0 <= run.seconds < 40.0
    assert json.loads((tmp_path / "result.json").read_text())["seconds"] >= 30.0
    _, more = train(Quadratic(), 10**6, tmp_path, minutes=1.0, resume=True)
    assert run.epochs < more.epochs <= 62 and 60.0 <= more.seconds < 75.0
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="minutes is"):
            Course.of(1, minutes=wrong)


def test_the_share_that_lies_behind() -> None:
    assert [Course.of(4).share(epoch, 1e9) for epoch in (0, 1, 4, 6)] == [0.0, 0.25, 1.0, 1.5]
    assert Course.of(0).share(0, 0.0) == 1.0
    assert Course.of(4, minutes=2.0).share(1, 60.0) == 0.5


def test_checkpoints_without_times_and_epochs_of_validation_are_read(tmp_path: Path) -> None:
    """As they were written when every epoch was validated, and no limit was of time."""
    best, whole = train(Quadratic(inner=False), 9)
    train(Quadratic(inner=False), 5, tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        tensors = load_file(path)
        del tensors["engine.validation_epochs"], tensors["rule.seconds"]
        save_file(tensors, path)
    again, resumed = train(Quadratic(inner=False), 9, tmp_path, resume=True)
    assert torch.equal(again, best) and resumed == whole
    assert checkpoints.path_of(tmp_path, 9).exists()


def test_a_rate_that_follows_the_course() -> None:
    class Falling(SGD):
        def __init__(self) -> None:
            super().__init__(0.0)
            self.asked: list[tuple[int, float]] = []

        def rate_at(self, epoch: int, share: float) -> float:
            self.asked.append((epoch, share))
            return 1.0 - share

    shown: list[tuple[int, float, float]] = []
    method = Falling()
    with ExitStack() as held:
        fit(
            Quadratic(inner=False), START, method, Course.of(4), None, lambda path, w: None, held,
            lambda epoch, loss, rate: shown.append((epoch, loss, rate)),
        )  # fmt: skip
    assert method.asked == [(0, 0.0), (1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert [(epoch, rate) for epoch, _, rate in shown] == [(0, 1.0), (1, 0.75), (2, 0.5), (3, 0.25), (4, 0.0)]
