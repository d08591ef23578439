"""Run directories of solvers with learned step sizes; the changes of which none is accepted are in ``tests/check``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import step_sizes_reference as reference
from changes import GoodRun, check_changed, once, reevaluate
from hand_made.step_sizes import RUNS
from tamper import SCHEDULE, StoredRun, get
from theorem_runs import STEPS

from surefoot_check.checker import check
from surefoot_check.verdict import Outcome, lines


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: the directory of a run that the checker accepts, made once."""
    return once(tmp_path_factory, lambda name, path: RUNS[name](path))


def test_steps_beyond_the_range_are_found_out(good_run: GoodRun, tmp_path: Path) -> None:
    """A run whose steps were 2.5: its iterates rise above the bound, and the checkpoints show it."""
    run = StoredRun.read(good_run("rate"))
    arrays, at = run.problem, run.weights
    iterates = reference.run(arrays, {**at, "range": np.array([2.5, 2.5])}, STEPS)
    for path, content in run.arrays.items():
        if "iteration" in content:
            run.arrays[path] = {**content, "x": iterates[int(content["iteration"])]}
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert {line.claim for line in report.lines if line.outcome is not Outcome.ACCEPT} == {"L2"}


def test_a_weaker_certificate_is_still_true(good_run: GoodRun, tmp_path: Path) -> None:
    for name, factors in {
        "rate": {"smoothness_ratio": 1 + 1e-3, "convexity_ratio": 0.5, "initial_gap": 1.1, "range_low": 0.9},
        "lasso": {"smoothness_ratio": 1 + 1e-3, "radius_energy": 2.0, "initial_gap": 1.1, "range_high": 1.01},
    }.items():
        report = check_changed(good_run(name), reevaluate(**factors), tmp_path / name)
        assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_a_bound_far_below_the_rounding_of_the_objective(good_run: GoodRun, tmp_path: Path) -> None:
    """F* > 0 here, so that F - F* in floats is noise; through the witness the gap is still certain."""
    run = StoredRun.read(good_run("tall"))
    t = 250
    late = {**run.final, "x": run.problem["optimum"], "iteration": np.array(t, dtype=np.int64)}
    run.arrays[f"checkpoints/{t:09d}.safetensors"] = late
    del run.arrays["final.safetensors"]
    first = get(run.certificate, SCHEDULE)[0]
    assert float.fromhex(first[2]) * (1.0 - float.fromhex(first[3])) ** t < 1e-21
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert any(
        line.name == f"{t:09d}.safetensors: gap after {t} iterations, by certificate.json" for line in report.lines
    )
