"""The fuzzer's smoke run: mutated bytes of good runs are refused, unless what they claim is true all the same.

``tests/stress/fuzz_checker.py`` runs any number of such inputs.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from changes import GoodRun, once
from claims import MEASURE, untrue
from every_system import claims, copied, thin
from fuzz import CERTIFICATE, Files, Fuzzer, Harness, Input, files_of
from good_runs import SYSTEMS
from tamper import StoredRun

from surefoot_check.verdict import Line, Outcome, Report

INPUTS = 300
"""Inputs of each system."""


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(system)``: a directory of a run of the system."""
    return once(tmp_path_factory, lambda name, path: SYSTEMS[name](path))


@pytest.fixture(scope="module")
def good_files(good_run: GoodRun) -> Callable[[str], Files]:
    """``good_files(system)``: its files."""
    return lambda system: files_of(good_run(system))


@pytest.mark.parametrize("system", MEASURE)
def test_mutated_runs_are_refused_or_true(system: str, good_files: Callable[[str], Files], tmp_path: Path) -> None:
    files = good_files(system)
    fuzzer = Fuzzer({system: files}, (good_files("inverse"), good_files("two-layer")))
    harness = Harness(tmp_path, {system: files})
    outcomes: Counter[str] = Counter()
    for seed in range(INPUTS):
        made = fuzzer.input(f"{system} {seed}")
        verdict = harness.check(made)
        assert not verdict.violation, f"input {system} {seed}: {made.how}: {verdict}"
        outcomes[verdict.outcome] += 1
    # some are the same claims in another form, and those the checker accepts; a fuzzer without them would prove little
    assert 0 < outcomes["accept"] < INPUTS / 4
    assert outcomes["reject"] > INPUTS / 2


def test_inputs_are_a_function_of_their_seed(good_files: Callable[[str], Files]) -> None:
    files = {name: good_files(name) for name in ("inverse", "two-layer")}
    first, second = ([Fuzzer(files).input(f"again {seed}") for seed in range(50)] for _ in range(2))
    assert first == second
    assert len({json.dumps(made.how) for made in first}) > 10


@pytest.mark.parametrize(
    "system",
    [pytest.param(s, marks=() if s in ("two-layer", "linear-resnet") else pytest.mark.slow) for s in MEASURE],
)
def test_the_harness_takes_every_change_back(system: str, good_files: Callable[[str], Files], tmp_path: Path) -> None:
    files = good_files(system)
    harness, unchanged = Harness(tmp_path, {system: files}), Input(system, {}, "nothing", False)
    for seed in range(20):
        harness.check(Fuzzer({system: files}).input(f"back {seed}"))
    assert harness.check(unchanged).outcome == "accept"
    assert {path.relative_to(tmp_path / system).as_posix() for path in tmp_path.rglob("*.*")} == files.keys()


@pytest.mark.parametrize("system", MEASURE)
def test_an_accepted_untruth_would_be_noticed(system: str, good_run: GoodRun, tmp_path: Path) -> None:
    """The judge of accepted inputs, which measures with numpy alone, refuses every false claim of the tampered corpus."""
    run = thin(StoredRun.read(good_run(system)))
    record = copied(run).certificate
    count = 0
    for case in claims(system, run, run):
        if case.seal:
            case.write(copied(run), tmp_path / "run")
            assert untrue(tmp_path / "run", record) is not None, case.name
            shutil.rmtree(tmp_path / "run")
            count += 1
    assert count > 90


def test_violations_are_reported(
    good_files: Callable[[str], Files], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = good_files("inverse")
    harness = Harness(tmp_path, {"inverse": files})
    false = files[CERTIFICATE].replace(b'"0x0.0p+0"', b'"0x1.0000000000000p-1"')
    made = Input("inverse", {CERTIFICATE: false}, "decreases and steps of .5", True)
    assert harness.check(made).violation == "" and harness.check(made).outcome == "reject"
    monkeypatch.setattr("fuzz.check", lambda directory: Report("", lines=[Line("L1", "", Outcome.ACCEPT)]))
    assert "a condition" in harness.check(made).violation
    monkeypatch.setattr("fuzz.check", lambda directory: 1 / 0)
    assert "division" in harness.check(made).violation
