"""Nothing that a run directory is given in addition weakens what it promised, or makes a report say more than was proved."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from added_content import absurd_choices
from adding import CONTROLS, Family, Runs, certified, iterations, later, with_certificate
from additions import IGNORED, JUDGED, REFUSED, sparse
from changes import GoodRun, once
from claims import GAP, untrue
from every_system import both, copied, owned
from good_runs import SYSTEMS
from tamper import StoredRun, Tampering, safetensors
from theorem_runs import OTHERS

from surefoot_check.__main__ import main
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome, Report, lines

OF_PHASES = (
    "weaker_phases",
    "late_violations",
    "several_phases",
    "failing_first_and_more",
    "failing_first_of_another",
    "true_phases",
    "failing_first",
)
RUNS = {
    **dict.fromkeys(OF_PHASES, (*SYSTEMS, "linear-resnet local", "two-layer drift")),
    **{family: tuple(SYSTEMS) for family in (*REFUSED, *IGNORED) if family not in OF_PHASES},
}
"""The runs that a family adds to."""
OF_FILES = ("more_fields", "more_inputs", "odd_headers", "read_files", "odd_checkpoints", *IGNORED)
"""Families of what is read in the same way for every system."""
FEW = ("two-layer", "step-sizes", "inverse")
"""Systems whose checks are quick; the slow tests add such things to the runs of the others, too."""
OF_CERTIFICATES = ("foreign_phases", "late_violations", "weaker_phases", "true_phases")
LONG = ("feed-forward", "deconvolution", "implicit", "linear-resnet", "linear-resnet local")
"""Systems whose checks take long: the slow tests add further certificates to their runs. How several certificates stand beside
each other is decided in one place for all systems."""
AT_LEAST = 300
"""Cases of each system that has iterates."""
THEOREMS_OF_RUNS = (
    *(
        f"two-layer {theorem}"
        for theorem in ("drift", "contraction", "constant", "corrected", "softmax", "sensing", "sharp")
    ),
    *OTHERS,
    "deconvolution",
)
DEAR = ("implicit spectral", "feed-forward sgd", "linear-resnet sgd-local", "two-layer softmax")
"""Whose choices take longest to refuse, of systems that other theorems stand for."""
GetRuns = Callable[[str], Runs]


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory, good_run: GoodRun) -> GoodRun:
    """``directory(name)``: that of a run of a system or theorem; "<system> 1" is another run of it."""

    def make(name: str, path: Path) -> None:
        system, _, variant = name.partition(" ")
        if name in OTHERS:
            OTHERS[name](path)
        elif system == "two-layer" and not variant.isdigit() and variant:
            shutil.copytree(good_run(variant), path)
        else:
            SYSTEMS[system](path, int(variant or 0))

    return once(tmp_path_factory, make)


@pytest.fixture(scope="session")
def stored_run(directory: GoodRun) -> Callable[[str], StoredRun]:
    """``stored_run(name)``: that run, in memory."""
    return lambda name: sparse(StoredRun.read(directory(name)))


@pytest.fixture(scope="session")
def runs(stored_run: Callable[[str], StoredRun]) -> GetRuns:
    """``runs(name)``: the run to add to and those that additions are taken from."""
    return lambda name: Runs(
        stored_run(name),
        stored_run(f"{name.partition(' ')[0]} 1"),
        {system: stored_run(system) for system in SYSTEMS},
    )


def readable(report: Report) -> bool:
    """Whether every line of the report, as text and as JSON, is one line of visible characters."""
    texts = [*map(str, report.lines), *lines(report), *lines(report, verbose=True)]
    texts += json.dumps(report.to_dict(), indent=1).splitlines()
    texts += [text for line in report.lines for text in (line.claim, line.name, line.detail)]
    return all(text.isprintable() for text in texts)


def reports(family: Family, name: str, runs: GetRuns, folder: Path) -> list[tuple[Tampering, Report, Path]]:
    """What the checker says of each case; every report is readable."""
    judged: list[tuple[Tampering, Report, Path]] = []
    given = runs(name)
    for number, case in enumerate(family(name, given)):
        case.write(copied(given.run), folder / str(number))
        judged.append((case, check(folder / str(number)), folder / str(number)))
    unreadable = [case.name for case, report, _ in judged if not readable(report)]
    assert not unreadable
    return judged


def late(name: str, family: str) -> bool:
    """Whether only the slow tests add a family to a run."""
    return (family in OF_FILES and name not in FEW) or (family in OF_CERTIFICATES and name in LONG)


def pairs(families: Mapping[str, Family]) -> list[Any]:
    """Every family with every run that it adds to."""
    return [
        pytest.param(name, family, marks=pytest.mark.slow if late(name, family) else ())
        for family in families
        for name in RUNS[family]
    ]


@pytest.mark.parametrize(("name", "family"), pairs(REFUSED))
def test_refused(name: str, family: str, runs: GetRuns, tmp_path: Path) -> None:
    judged = reports(REFUSED[family], name, runs, tmp_path)
    accepted = [case.name for case, report, _ in judged if report.outcome is Outcome.ACCEPT]
    assert not accepted


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in DEAR else ()) for name in THEOREMS_OF_RUNS]
)
def test_absurd_choices_are_refused(name: str, runs: GetRuns, tmp_path: Path) -> None:
    judged = reports(absurd_choices, name, runs, tmp_path)
    accepted = [case.name for case, report, _ in judged if report.outcome is Outcome.ACCEPT]
    assert not accepted


@pytest.mark.parametrize(("name", "family"), pairs(JUDGED))
def test_refused_or_true(name: str, family: str, runs: GetRuns, tmp_path: Path) -> None:
    judged = reports(JUDGED[family], name, runs, tmp_path)
    given = runs(name).run
    accepted = [(case, report, folder) for case, report, folder in judged if report.outcome is Outcome.ACCEPT]
    # learned inverses have no iterates, and linear-resnet/gd speaks of the start alone
    assert accepted or name in ("inverse", "linear-resnet")
    for case, report, folder in accepted:
        assert untrue(folder, given.certificate) is None, case.name
        text = "\n".join(lines(report))
        # a file that several certificates bound is counted once
        files = len([*folder.glob("checkpoints/*"), *folder.glob("final.safetensors")])
        assert all(int(count) <= files for count in re.findall(r"(\d+) stored weights", text)), case.name
        claimed = json.loads((folder / "certificate.json").read_text())["claims"]
        assert ("nothing is claimed before" in text) is not bool(claimed), case.name


def test_a_replay_says_from_which_iteration_something_is_guaranteed(
    directory: GoodRun, stored_run: Callable[[str], StoredRun], tmp_path: Path
) -> None:
    run = stored_run("two-layer")
    last = iterations(run)[-1]
    for number, times in enumerate(([], [last])):
        changed = copied(run)
        if times:
            record = certified(run, last)
            fails = {**run.certificate, "status": "fails", "claims": []}
            owned(both(with_certificate("certificate.json", fails), with_certificate(later(last), record)))(changed)
        changed.write(tmp_path / str(number))
        shutil.copy(directory("two-layer") / "trace.jsonl", tmp_path / str(number) / "trace.jsonl")
        report = check(tmp_path / str(number), replay=True)
        assert report.outcome is Outcome.ACCEPT
        (text,) = (line.name for line in report.lines if line.claim == "L3" and "guaranteed" in line.name)
        assert text.endswith(f"at each from iteration {last} on" if times else "at each")


@pytest.mark.parametrize(("name", "family"), pairs(IGNORED))
def test_ignored(name: str, family: str, runs: GetRuns, tmp_path: Path) -> None:
    given = runs(name)
    given.run.write(tmp_path / "as it was")
    clean = check(tmp_path / "as it was")
    for case, report, folder in reports(IGNORED[family], name, runs, tmp_path):
        assert report.lines == clean.lines, case.name
        assert untrue(folder, given.run.certificate) is None, case.name


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name in GAP])
def test_there_are_many(name: str, runs: GetRuns) -> None:
    given = runs(name)
    cases = [case.name for family in (REFUSED | JUDGED | IGNORED).values() for case in family(name, given)]
    assert len(cases) >= AT_LEAST


def test_what_the_directory_says_is_shown_escaped_where_there_is_no_verdict(
    runs: GetRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The arrays of a large problem are named on the error stream, and so is the directory."""
    run = runs("two-layer").run
    folder = tmp_path / CONTROLS.replace("\x00", "")
    run.write(folder)
    assert all(text.isprintable() for text in lines(check(folder)))
    (folder / "problem.safetensors").unlink()
    entry = {"dtype": "F64", "shape": [1], "sha256": "0" * 64}
    declaration = {"format": "surefoot-problem/1", "arrays": {CONTROLS: entry}}
    (folder / "problem.json").write_text(json.dumps(declaration))
    assert main([str(folder)]) == 2
    (text,) = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert text.isprintable()
    data = folder.with_name(f"{folder.name}.safetensors")
    data.write_bytes(safetensors(run.problem))
    assert all(text.isprintable() for text in lines(check(folder, data=data)))


def test_an_untrue_later_certificate_would_be_noticed(runs: GetRuns, tmp_path: Path) -> None:
    """The judge of accepted inputs knows a weaker certificate, an iterate above an earlier bound, and an odd name."""
    given = runs("two-layer")
    for family, text in {
        "weaker_phases": "more than was promised",
        "late_violations": "exceeds",
        "odd_names": "speaks of no stored iterate",
    }.items():
        seen = 0
        for number, case in enumerate(REFUSED[family]("two-layer", given)):
            folder = tmp_path / f"{family} {number}"
            case.write(copied(given.run), folder)
            why = untrue(folder, given.run.certificate)
            seen += why is not None and text in why
        assert seen > 10, family
