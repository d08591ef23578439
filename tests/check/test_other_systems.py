"""Systems of others: checked with the code of a module that a person names, and never with code that a directory names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from changes import GoodRun
from tamper import StoredRun

from surefoot.cli import main as surefoot
from surefoot_check import Outcome, check
from surefoot_check.__main__ import main

MODULE = """
from dataclasses import replace
from surefoot_check.two_layer import SYSTEM as KNOWN
from surefoot_check.two_layer.contraction import Contraction

class Same(Contraction):
    id = "{theorem}"

SYSTEM = replace(KNOWN, name="{name}", theorems=(Same(),) * {times})
"""


def module(folder: Path, file: str, name: str = "same", theorem: str = "same/contraction", times: int = 1) -> None:
    """Write a module whose system is the two-layer one by another name."""
    (folder / f"{file}.py").write_text(MODULE.format(name=name, theorem=theorem, times=times))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in which Python finds modules; what was imported from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def run(good_run: GoodRun, folder: Path) -> Path:
    """A run of the system "same"; a module of that name lies in the run's directory and beside it."""
    stored = StoredRun.read(good_run("contraction"))
    stored.certificate.update(system="same", theorem="same/contraction")
    stored.seal()
    stored.write(folder / "run")
    for place in (folder, folder / "run"):
        module(place, "same")
    return folder / "run"


def test_its_theorem_is_data_without_code_for_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--obligations", str(run), "--system", "same"]) == 0
    assert json.loads(capsys.readouterr().out)["theorem"] == "same/contraction"
    assert main(["--obligations", str(run)]) == 2
    assert "unknown theorem" in capsys.readouterr().err


def test_the_code_is_named_by_a_person_and_said_in_the_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = check(run, systems=("same",))
    assert report.outcome is Outcome.ACCEPT and report.theorem == "same/contraction"
    for program in (main, lambda options: surefoot(["check", *options])):
        assert program([str(run), "--system", "same"]) == 0
        text = " ".join(capsys.readouterr().out.split())  # a screen wraps
        assert "(same/contraction, level fast), with the code of same, which you named" in text
        assert program([str(run), "--system", "same", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["modules"] == ["same"]


def test_nothing_is_loaded_from_what_a_directory_says(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(run).outcome is Outcome.REJECT
    assert "same" not in sys.modules
    assert main([str(run)]) == 1
    assert "unknown theorem 'same/contraction'" in capsys.readouterr().out


def test_two_modules_may_be_named_and_tampered_runs_are_rejected(run: Path, folder: Path) -> None:
    module(folder, "another", name="another", theorem="another/contraction")
    report = check(run, systems=("another", "same"))
    assert report.outcome is Outcome.ACCEPT and report.modules == ("another", "same")
    stored = StoredRun.read(run)
    stored.certificate["quantities"]["smoothness"] = (0.5).hex()
    stored.seal()
    stored.write(folder / "tampered")
    assert check(folder / "tampered", systems=("same",)).outcome is Outcome.REJECT


@pytest.mark.parametrize(
    ("name", "theorem", "times", "message"),
    [
        ("two-layer", "two-layer/mine", 1, "'two-layer', which is taken"),
        ("same", "two-layer/drift", 1, "starts with 'same/'"),
        ("same", "same/contraction", 2, "an id of its own"),
    ],
)
def test_names_that_are_taken_are_refused(
    name: str, theorem: str, times: int, message: str, run: Path, folder: Path
) -> None:
    module(folder, "taken", name=name, theorem=theorem, times=times)
    with pytest.raises(ValueError, match=message):
        check(run, systems=("taken",))


@pytest.mark.parametrize("twice", [True, False])
def test_modules_that_cannot_be_used_give_no_verdict(
    twice: bool, run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text("raise AssertionError('broken')")
    (folder / "empty.py").write_text("")
    (folder / "leaves.py").write_text("raise SystemExit(0)")  # what a check that accepts returns
    options = {True: ["same", "same"], False: ["nowhere"]}[twice]
    for names in (options, ["broken"], ["empty"], ["leaves"]):
        assert main([str(run), *(text for name in names for text in ("--system", name))]) == 2
        assert f"system {names[-1]!r}" in capsys.readouterr().err


def test_code_of_others_that_fails_is_no_verdict(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = MODULE.format(name="same", theorem="same/contraction", times=1)
    failing = "    def derived(self, q):\n        return {}['decrease']\n\nSYSTEM"
    (folder / "failing.py").write_text(text.replace("SYSTEM = ", f"{failing} = "))
    assert main([str(run), "--system", "failing"]) == 2
    output = capsys.readouterr()
    assert "KeyError" in output.err and "no verdict" in output.err and "outcome" not in output.out
