"""Training of learned solvers on several ranks: the result of one process, nothing left behind, resumption, a lost rank."""

from __future__ import annotations

import json
from pathlib import Path

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
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """Every training on several ranks, of which some have no share."""
    out = tmp_path_factory.mktemp("ranks") / "found.json"
    results = run_ranks([shared_trainings.__file__, str(out)], request.param, TIMEOUT)
    assert all(result.returncode == 0 for result in results), results[0].stderr + results[1].stderr
    assert "Warning" not in "".join(result.stderr for result in results)
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_that_of_one_process(name: str, shared: dict[str, dict]) -> None:
    same(shared[name], TRAININGS[name](), SINGLE if "deconvolution" in name else ROUNDING)
    assert len(set(shared[name]["losses"])) > 1, "it trains"
    assert not any(shared[name]["held"]), "no rank keeps anything of a training that ended"


def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    """One process begins, two ranks end; two ranks begin and one is lost, one process ends."""
    whole = kept_run(None, EPOCHS)
    kept_run(tmp_path / "begun", BEGUN)
    results = run_ranks([shared_trainings.__file__, str(tmp_path / "found.json"), str(tmp_path)], 2, TIMEOUT)
    same(json.loads((tmp_path / "found.json").read_text()), whole)
    assert results[1].returncode == 9
    assert results[0].returncode != 0 and "RankLostError" in results[0].stderr and "--resume" in results[0].stderr
    assert (tmp_path / "lost" / "checkpoints").is_dir() and not (tmp_path / "lost" / "result.json").exists()
    same(kept_run(tmp_path / "lost", EPOCHS, resume=True), whole)
    written = json.loads((tmp_path / "lost" / "result.json").read_text())
    assert len(written["losses"]) == EPOCHS + 1 > LOST
