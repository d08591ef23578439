"""Run directories of linear ResNets; the changes of which none is accepted are in ``tests/check``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changes import GoodRun, check_changed, once, reevaluate
from draws import normal
from hand_made.linear_resnet import RUNS
from tamper import StoredRun

import surefoot as sf
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome, lines


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: the directory of a run that the checker accepts, made once."""
    return once(tmp_path_factory, lambda name, path: RUNS[name](path))


def test_a_checkpoint_of_another_run(good_run: GoodRun, tmp_path: Path) -> None:
    """With its own seal it is rejected; resealed, its A and B are not those of this run."""
    other, file = StoredRun.read(good_run("gd")), "checkpoints/000000005.safetensors"
    for resealed in (False, True):
        run = StoredRun.read(good_run("local"))
        run.arrays[file] = dict(other.arrays[file])
        if resealed:
            run.seal()
        run.write(tmp_path / str(resealed))
        assert check(tmp_path / str(resealed)).outcome is Outcome.REJECT


def test_an_early_iterate_passed_off_as_a_late_one(good_run: GoodRun, tmp_path: Path) -> None:
    run = StoredRun.read(good_run("local"))
    late, early = (run.arrays[f"checkpoints/{t:09d}.safetensors"] for t in (10, 1))
    late["W"] = early["W"]
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert all("gap after 10 iterations" in line.name for line in report.lines if line.outcome is not Outcome.ACCEPT)


@pytest.mark.parametrize(
    "change",
    [
        reevaluate({"gamma": 0.5}),
        reevaluate(pl_constant=1 - 1e-7, gauss_newton=1 + 1e-6, bilinear=1 + 1e-6, initial_gap=1 + 1e-7),
    ],
)
def test_a_weaker_certificate_is_still_true(change: Any, good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run("start"), change, tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_a_run_that_is_certified_nowhere_claims_nothing(tmp_path: Path) -> None:
    loss = sf.SquaredLoss(normal(30, 3, seed=0), 100.0 * normal(30, 2, seed=1))
    net = sf.nn.LinearResNet.modified_identity(3, 2, 5, 3, 0.1)
    sf.descend(net, loss, max_iterations=3, directory=tmp_path / "run", progress=False)
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT and "nothing is claimed" in "\n".join(lines(report))


def test_a_run_certified_along_the_way_is_accepted_from_there_on(tmp_path: Path) -> None:
    loss = sf.SquaredLoss(normal(60, 3, seed=0), -normal(60, 3, seed=0) @ torch.eye(3, 2, dtype=torch.float64))
    net = sf.nn.LinearResNet.gaussian(3, 2, 40, 4, seed=1)
    run = sf.descend(net, loss, "smooth", 400, 1e-8, certify_every=5, directory=tmp_path / "run", progress=False)
    assert not run.certificate.holds and run.certified_from is not None and run.certified_from > 0
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert f"nothing is claimed before iteration {run.certified_from}" in "\n".join(lines(report))
    first = (tmp_path / "run" / "certificate.json").read_text()
    (tmp_path / "run" / "certificate.json").write_text(first.replace('"claims": []', '"claims": ["L1", "L2"]'))
    assert check(tmp_path / "run").outcome is Outcome.REJECT
    (tmp_path / "run" / "certificate.json").write_text(first)
    for file in (tmp_path / "run").glob("certificate-*.json"):
        file.unlink()
    assert "nothing is claimed" in "\n".join(lines(check(tmp_path / "run")))


@pytest.mark.parametrize("level", ["fast", "exact"])
def test_products_that_overflow_are_no_verdict(level: str, good_run: GoodRun, tmp_path: Path) -> None:
    """Nine matrices of entries near 1e50 with the right hashes: nothing is wrong for certain, and no bound is finite."""
    run = StoredRun.read(good_run("local"))
    for weights in (arrays for file, arrays in run.arrays.items() if file != "problem.safetensors"):
        weights["W"] = np.repeat(weights["W"], 2, axis=0) + 9e49
    run.certificate["problem"]["depth"] *= 2
    run.seal()
    run.write(tmp_path / "run")
    report = check(tmp_path / "run", level)
    assert report.outcome is Outcome.UNDECIDED and "overflow" in "\n".join(lines(report)), "\n".join(lines(report))
