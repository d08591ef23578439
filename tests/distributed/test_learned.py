"""Training of learned solvers on several ranks: the result of one process, nothing left behind, resumption, a lost rank."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import shared_trainings
from ranks import run_ranks
from shared_trainings import BEGUN, EPOCHS, LOST, TRAININGS, Run, kept_run

TIMEOUT = 300.0
ROUNDING = 1e-10
"""Relative difference of the losses and weights of a few epochs in float64 between two orders of summation."""
SINGLE = 1e-5
"""The same in float32, in which deconvolution networks are."""


def same(found: Run, expected: Run, tolerance: float = ROUNDING) -> None:
    assert found["losses"] == pytest.approx(expected["losses"], rel=tolerance, abs=0.0)
    scale = max(map(abs, expected["weights"]))
    assert found["weights"] == pytest.approx(expected["weights"], rel=tolerance, abs=tolerance * scale)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def job(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[CompletedProcess[str]]]:
    """Every training on several ranks, of which some have no share, and a run that one process begins and that the ranks end."""
    place = tmp_path_factory.mktemp("ranks")
    kept_run(place / "begun", BEGUN)
    return place, run_ranks([shared_trainings.__file__, str(place)], request.param, TIMEOUT)


@pytest.fixture(scope="module")
def shared(job: tuple[Path, list[CompletedProcess[str]]]) -> dict[str, dict]:
    place, results = job
    assert (place / "found.json").exists(), results
    assert "Warning" not in "".join(result.stderr for result in results)
    return json.loads((place / "found.json").read_text())


@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_that_of_one_process(name: str, shared: dict[str, dict]) -> None:
    same(shared[name], TRAININGS[name](), SINGLE if "deconvolution" in name else ROUNDING)
    assert len(set(shared[name]["losses"])) > 1, "it trains"
    assert not any(shared[name]["held"]), "no rank keeps anything of a training that ended"


def test_a_run_goes_on_with_another_number_of_ranks(job: tuple[Path, list[CompletedProcess[str]]]) -> None:
    """One process begins, the ranks end; the ranks begin and one is lost, one process ends."""
    place, results = job
    whole = kept_run(None, EPOCHS)
    same(json.loads((place / "resumed.json").read_text()), whole)
    assert results[1].returncode == 9
    for other in (results[0], *results[2:]):
        assert other.returncode == 1 and "RankLostError" in other.stderr and "--resume" in other.stderr
    assert (place / "lost" / "checkpoints").is_dir() and not (place / "lost" / "result.json").exists()
    same(kept_run(place / "lost", EPOCHS, resume=True), whole)
    written = json.loads((place / "lost" / "result.json").read_text())
    assert len(written["losses"]) == EPOCHS + 1 > LOST
