"""Directories of another format are verified by the function of that format, under the same limits and with the same verdicts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from surefoot._report.formats import WRITERS
from surefoot.cli import main as surefoot
from surefoot_check import Outcome, Report, check, formats
from surefoot_check.__main__ import main
from surefoot_check.arrays import FormatError
from surefoot_check.rigor.bounds import Level


def verify(path: Path, record: Mapping[str, object], level: Level, report: Report) -> None:
    """Accept what says so, at a level that is shown."""
    report.theorem = "other"
    if record.get("wait"):
        report.add("L1", "before", Outcome.ACCEPT)
        time.sleep(60.0)
    if "holds" not in record:
        raise FormatError("certificate: holds is missing")
    report.add("L1", f"at level {level.name}", Outcome.ACCEPT if record["holds"] is True else Outcome.REJECT)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a format that is known for this test."""
    monkeypatch.setitem(formats.VERIFIERS, "other/1", verify)
    return tmp_path


def put(directory: Path, **record: object) -> Path:
    """Write certificate.json."""
    (directory / "certificate.json").write_text(json.dumps({"format": "other/1", **record}))
    return directory


def test_the_verifier_of_the_format_decides(directory: Path) -> None:
    report = check(put(directory, holds=True), level="exact")
    assert (report.outcome, report.theorem, report.lines[0].name) == (Outcome.ACCEPT, "other", "at level exact")
    assert check(put(directory, holds=False)).outcome is Outcome.REJECT
    report = check(put(directory))
    assert (report.outcome, report.lines[0].name) == (Outcome.REJECT, "certificate: holds is missing")


def test_exit_codes_and_json(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(put(directory, holds=True)), "--json"]) == surefoot(["check", str(directory), "--json"]) == 0
    first, second = capsys.readouterr().out.split("\n}\n")[:2]
    assert json.loads(first + "}") == json.loads(second + "}")
    assert main([str(put(directory, holds=False))]) == 1


def test_the_time_limit_holds(directory: Path) -> None:
    report = check(put(directory, wait=True), seconds=0.2)
    assert report.outcome is Outcome.UNDECIDED
    assert [line.outcome for line in report.lines] == [Outcome.ACCEPT, Outcome.UNDECIDED]


def test_there_is_no_replay_and_no_data(directory: Path) -> None:
    assert check(put(directory, holds=True), replay=True).outcome is Outcome.UNDECIDED
    with pytest.raises(ValueError, match="leave out --data"):
        check(directory, data=directory / "certificate.json")


@pytest.mark.parametrize("name", ["other/2", None, ["other/1"], {"other/1": 1}])
def test_unknown_formats_are_rejected(directory: Path, name: object) -> None:
    report = check(put(directory, format=name, holds=True))
    assert report.outcome is Outcome.REJECT
    assert "format" in report.lines[0].name


def test_the_report_is_that_of_the_format(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("other_report")
    module.__dict__["write"] = lambda path: path / "report.html"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(WRITERS, "other/1", module.__name__)
    put(directory, holds=True)
    assert surefoot(["report", str(directory)]) == 0
    assert capsys.readouterr().out.strip() == str(directory / "report.html")
    assert surefoot(["report", str(directory), "--data", str(directory / "certificate.json")]) == 2
    assert surefoot(["report", str(put(directory, format="other/2"))]) == 2
