"""Experiments on several ranks: the numbers of one process, what is kept, and what a lost rank leaves."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import shared_sweeps
from ranks import run_ranks
from shared_sweeps import SWEEPS

TIMEOUT = 300.0


def sweep(directory: Path, *names: str, dies: int = 0) -> list[CompletedProcess[str]]:
    return run_ranks([shared_sweeps.__file__, str(directory), str(dies), *names], 2, TIMEOUT)


def computed(directory: Path, rank: int) -> list[list[object]]:
    """The parts that a rank computed: function, key and arguments."""
    file = directory / f"rank-{rank}"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def parts(directory: Path) -> dict[str, bytes]:
    """What is kept of finished parts, without the runs that training leaves for itself."""
    return {file.name: file.read_bytes() for file in directory.glob("*.json")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every sweep on two ranks."""
    directory = tmp_path_factory.mktemp("ranks")
    results = sweep(directory, *SWEEPS)
    assert [result.returncode for result in results] == [0, 0], results[0].stderr + results[1].stderr
    return directory


@pytest.mark.parametrize("name", SWEEPS)
def test_numbers_and_files_are_those_of_one_process(name: str, shared: Path, tmp_path: Path) -> None:
    assert json.loads((shared / "tables").read_text())[name] == shared_sweeps.numbers(name, tmp_path)
    assert parts(shared / name) == parts(tmp_path / name)


def test_both_ranks_compute_parts(shared: Path) -> None:
    first, second = (computed(shared, rank) for rank in (0, 1))
    assert len(second) <= len(first) <= len(second) + len(SWEEPS) + 1, "each sweep has at most one part more for rank 0"
    assert not [part for part in first if part in second]


def test_a_lost_rank_leaves_what_was_finished_and_a_second_start_takes_it(tmp_path: Path) -> None:
    """Five parts, the second of rank 1 never comes: the fourth and the fifth are missing."""
    lost = sweep(tmp_path, "inverse", dies=2)
    assert lost[0].returncode != 0 and "RankLostError" in lost[0].stderr and "start the job again" in lost[0].stderr
    assert lost[1].returncode == 9
    left = parts(tmp_path / "inverse")
    assert len(left) == 3
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}").unlink()
    again = sweep(tmp_path, "inverse")
    assert [result.returncode for result in again] == [0, 0]
    assert [len(computed(tmp_path, rank)) for rank in (0, 1)] == [1, 1]
    assert len(parts(tmp_path / "inverse")) == 5 and parts(tmp_path / "inverse").items() >= left.items()
