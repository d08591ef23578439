"""Experiments on several ranks: the numbers of one process, what is kept, and what a lost rank leaves."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import shared_sweeps
from ranks import run_ranks
from shared_sweeps import CUT_OFF, SWEEPS

from surefoot_experiments import inverse_tables

TIMEOUT = 300.0


def computed(directory: Path, rank: int) -> list[list[object]]:
    """The parts that a rank computed: function, key and arguments."""
    file = directory / f"rank-{rank}"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def parts(directory: Path) -> dict[str, bytes]:
    """What is kept of finished parts, without the runs that training leaves for itself."""
    return {file.name: file.read_bytes() for file in directory.glob("*.json")}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[CompletedProcess[str]]]:
    """Every sweep on two ranks, and one of them once more, until rank 1 is lost."""
    directory = tmp_path_factory.mktemp("ranks")
    return directory, run_ranks([shared_sweeps.__file__, str(directory)], 2, TIMEOUT)


@pytest.fixture
def shared(job: tuple[Path, list[CompletedProcess[str]]]) -> Path:
    directory, results = job
    assert (directory / "tables").exists(), results
    return directory


@pytest.mark.parametrize("name", SWEEPS)
def test_numbers_and_files_are_those_of_one_process(name: str, shared: Path, tmp_path: Path) -> None:
    assert json.loads((shared / "tables").read_text())[name] == shared_sweeps.numbers(name, tmp_path)
    assert parts(shared / name) == parts(tmp_path / name)


def test_both_ranks_compute_parts(shared: Path) -> None:
    first, second = (computed(shared, rank) for rank in (0, 1))
    assert len(second) <= len(first) <= len(second) + len(SWEEPS) + 1, "each sweep has at most one part more for rank 0"
    assert not [part for part in first if part in second]


def test_a_lost_rank_leaves_what_was_finished_and_a_second_start_takes_it(
    job: tuple[Path, list[CompletedProcess[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five parts, the second of rank 1 never comes: the fourth and the fifth are missing, and one process computes them."""
    place, results = job
    assert results[0].returncode == 1 and "RankLostError" in results[0].stderr
    assert "start the job again" in results[0].stderr and results[1].returncode == 9
    lost = place / "lost"
    left = parts(lost / CUT_OFF)
    assert len(left) == 3 == len(computed(lost, 0)) + len(computed(lost, 1))
    again: list[object] = []
    original = inverse_tables.computed

    def counted(**arguments: Any) -> Any:
        again.append(arguments)
        return original(**arguments)

    monkeypatch.setattr(inverse_tables, "computed", counted)
    shared_sweeps.numbers(CUT_OFF, lost)
    assert len(again) == 2
    assert len(parts(lost / CUT_OFF)) == 5 and parts(lost / CUT_OFF).items() >= left.items()
