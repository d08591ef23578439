"""No tampered run directory is accepted, and none makes the checker fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tamper
from changes import GoodRun, check_changed, reevaluate
from corpus import CASES

from surefoot_check.checker import Outcome, check, lines
from surefoot_check.theorems.two_layer import DIRECTIONS

RUNS = ("drift", "phases", "contraction", "constant", "corrected", "softmax", "sensing", "sharp")


@pytest.mark.parametrize("name", RUNS)
def test_the_generator_alone_changes_nothing(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    tamper.Tampering("as it was", name).apply(good_run(name), tmp_path / "run")
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


@pytest.mark.parametrize("name", RUNS)
def test_re_evaluation_of_the_theorem_alone_changes_nothing(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    assert check_changed(good_run(name), reevaluate(), tmp_path / "run").outcome is Outcome.ACCEPT


@pytest.mark.parametrize("name", RUNS)
def test_a_weaker_certificate_is_still_true(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    """Base quantities moved by 1e-6 in the safe direction: the corpus tests the direction, not the change."""
    run = tamper.StoredRun.read(good_run(name))
    base = {
        q: float.fromhex(text) * (1.0 + (1e-6 if DIRECTIONS[q] == "upper" else -1e-6))
        for q, text in run.certificate["quantities"].items()
        if q in DIRECTIONS
    }
    choices = {}
    if "initial_step" in run.certificate["quantities"]:  # it must suit the weaker constants
        choices["initial_step"] = float.fromhex(run.certificate["quantities"]["initial_step"]) * 0.5
    run.certificates["certificate.json"] = tamper.reevaluated(run.certificate, base, choices)
    run.seal()
    del run.arrays["final.safetensors"]
    run.arrays = {path: arrays for path, arrays in run.arrays.items() if not path.startswith("checkpoints/")}
    run.certificates = {"certificate.json": run.certificate}
    run.write(tmp_path / "run")
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_tampered(tampering: Any, good_run: GoodRun, tmp_path: Path) -> None:
    tampering.apply(good_run(tampering.run), tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is not Outcome.ACCEPT, "\n".join(lines(report))
    assert [line for line in report.lines if line.outcome is not Outcome.ACCEPT]


def test_the_corpus_names_every_case_once() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) >= 120
