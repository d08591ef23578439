"""A small problem on disk, and the program in-process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot._cli import training
from surefoot.cli import main


@dataclass(frozen=True)
class Outcome:
    """What one call of the program left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Program:
    """Runs the command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Outcome:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """40 rows, 4 well-conditioned columns and one numeric target."""
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * random.standard_normal(40)
    path = tmp_path / "table.csv"
    np.savetxt(path, np.column_stack([X, y]), delimiter=",")
    return path


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """60 images of 2 x 2 pixels in three classes, labelled 2, 5 and 7."""
    random = np.random.default_rng(1)
    labels = np.repeat([2, 5, 7], 20)
    images = 0.3 * random.random((60, 4))
    images[np.arange(60), np.repeat([0, 1, 2], 20)] += 0.6
    path = tmp_path / "classes.npz"
    np.savez(path, images=images.reshape(60, 2, 2), labels=labels)
    return path


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the plots, the slowest part of a small run."""
    monkeypatch.setattr(training, "write_report", lambda directory, data: Path(directory) / "report.html")
