"""What a report shows is what was checked: names from files cannot draw over it, and what was not checked is said."""

from __future__ import annotations

import builtins
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from changes import GoodRun, once
from good_runs import SYSTEMS
from tamper import StoredRun, safetensors

import surefoot as sf
from surefoot.cli import main
from surefoot_check import Outcome, check
from surefoot_check.text import LONGEST, chance, counted, visible
from surefoot_check.time_limit import TimeUp, time_limit
from surefoot_check.verdict import lines

SPOOF = "\x1b[2J\x1b[H\noutcome: accept\r\x9b8m\u202e\u2028\x00\ud800"
"""Clears the screen, prints a line of its own, hides what follows, and turns the direction of writing."""


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return once(tmp_path_factory, lambda name, path: SYSTEMS[name](path))


def harmless(text: str) -> bool:
    """Whether a terminal shows the text as it is, line by line."""
    return all(line.isprintable() for line in text.split("\n"))


# -- escaping ----------------------------------------------------------------------------------------------------------


def test_one_is_said_in_the_singular() -> None:
    said = [
        counted(1, "segment"),
        counted(0, "segment"),
        counted(1234, "step"),
        counted(2, "inequality", "inequalities"),
    ]
    assert said == ["1 segment", "0 segments", "1,234 steps", "2 inequalities"]


def test_visible_text_is_printable_short_and_keeps_ordinary_names() -> None:
    assert visible("problem/X ≥ µ 数") == "problem/X ≥ µ 数"
    assert visible(SPOOF).isprintable() and visible(SPOOF).startswith(r"\x1b[2J\x1b[H\noutcome: accept\r\x9b8m\u202e")
    assert len(visible("x" * 10**6)) == LONGEST
    assert all(visible(chr(code)).isprintable() for code in range(0x11000))


def _array_named(path: Path, name: str) -> None:
    arrays = StoredRun.read(path).arrays["initial.safetensors"]
    (path / "initial.safetensors").write_bytes(safetensors({**arrays, name: np.zeros(1)}))


def _problem_array_named(path: Path, name: str) -> None:
    arrays = StoredRun.read(path).arrays["problem.safetensors"]
    (path / "problem.safetensors").write_bytes(safetensors({**arrays, name: np.zeros(1)}))


def _hash_named(path: Path, name: str) -> None:
    record = json.loads((path / "certificate.json").read_text())
    record["arrays"][name] = "0" * 64
    (path / "certificate.json").write_text(json.dumps(record))


def _quantity_named(path: Path, name: str) -> None:
    run = StoredRun.read(path)
    run.certificate["quantities"][name] = (1.0).hex()
    run.seal()
    shutil.rmtree(path)
    run.write(path)


def _field_named(path: Path, name: str) -> None:
    record = json.loads((path / "certificate.json").read_text())
    (path / "certificate.json").write_text(json.dumps({**record, name: 1}))


def _theorem_named(path: Path, name: str) -> None:
    record = json.loads((path / "certificate.json").read_text())
    (path / "certificate.json").write_text(json.dumps({**record, "theorem": name}))


def _later_certificate_named(path: Path, name: str) -> None:
    (path / f"certificate-{name}.json").write_text("{}")


def _checkpoint_named(path: Path, name: str) -> None:
    (path / "checkpoints").mkdir(exist_ok=True)
    (path / "checkpoints" / f"{name}.safetensors").write_bytes(b"")


PLACES = [
    _array_named,
    _problem_array_named,
    _hash_named,
    _quantity_named,
    _field_named,
    _theorem_named,
    _later_certificate_named,
    _checkpoint_named,
]
FILE_NAME = "\x1b[2J\noutcome: accept\u202e"
"""A name that a file can have."""


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__.removeprefix("_"))
def test_a_name_in_a_directory_cannot_draw_over_the_report(
    place, good_run: GoodRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(good_run("two-layer"), run)
    place(run, FILE_NAME)
    report = check(run)
    assert report.outcome is Outcome.REJECT
    text = "\n".join(lines(report, verbose=True))
    assert harmless(text) and [line for line in text.split("\n") if line.startswith("outcome")] == ["outcome: reject"]
    assert r"\x1b" in text or place in (_quantity_named, _problem_array_named)  # refused before a name is shown
    assert all(harmless(entry[key]) for entry in report.to_dict()["checks"] for key in ("name", "detail"))
    for options in ([], ["--json"]):
        assert main(["check", str(run), *options]) == 1
        shown = capsys.readouterr()
        assert harmless(shown.out) and harmless(shown.err)


def test_the_name_of_the_directory_cannot_draw_over_the_report(
    good_run: GoodRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / f"run{FILE_NAME}"
    shutil.copytree(good_run("two-layer"), run)
    (run / "certificate.json").write_text("{")
    for target, code in ((run, 1), (tmp_path / f"absent{FILE_NAME}", 2)):
        done = subprocess.run(
            [sys.executable, "-m", "surefoot_check", str(target)], capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert harmless(done.stdout) and harmless(done.stderr), repr(done.stdout + done.stderr)
        assert main(["check", str(target)]) == code
        shown = capsys.readouterr()
        assert harmless(shown.out) and harmless(shown.err), repr(shown.out + shown.err)
    for command in (["report", str(run)], ["certify", "two-layer", "--data", str(run / "certificate.json")]):
        assert main(command) == 2
        shown = capsys.readouterr()
        assert harmless(shown.out) and harmless(shown.err), repr(shown.err)


# -- what was not checked ----------------------------------------------------------------------------------------------


def test_an_accepted_run_says_what_was_not_checked(good_run: GoodRun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(good_run("two-layer"), run)
    text = list(lines(check(run)))
    assert any("L3 not checked" in line for line in text) and not any(
        "final.safetensors is missing" in line for line in text
    )
    assert not any("L3 not checked" in line for line in lines(check(run, replay=True)))
    (run / "final.safetensors").unlink()
    report = check(run)
    assert report.outcome is Outcome.ACCEPT
    assert any("final.safetensors is missing" in note for note in report.to_dict()["notes"])
    shutil.rmtree(run / "checkpoints")
    report = check(run)
    assert report.outcome is Outcome.ACCEPT and any("L2 says nothing" in note for note in report.notes)
    assert any("there is no replay" in note for note in check(good_run("implicit")).notes)


def test_an_accepted_run_that_diverged_says_where_its_proof_ends(tmp_path: Path) -> None:
    """What it keeps is true, of the iteration that it says, and under the bound: that is accepted, and is not all."""
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(20, k, generator=generator, dtype=torch.float64) for k in (4, 2))
    net = sf.nn.TwoLayerLinear.gaussian(4, 2, 100, generator=generator)
    loss = sf.SquaredLoss(X, Y)
    certificate = sf.certify(net, loss)  # of other steps
    run = sf.descend(net, loss, 10.0, certificate=certificate, directory=tmp_path / "run", progress=False)
    assert run.certificate.holds and run.status is sf.RunStatus.DIVERGED
    report = check(tmp_path / "run")
    told = f"L2 speaks of no iteration after {run.final_iteration}; config.json, which is not checked, "
    assert report.outcome is Outcome.ACCEPT and f"{told}says that the run ended as 'diverged'" in report.notes
    for record in ("", "[]", '{"result": null}', '{"result": {"status": 1}}'):
        (tmp_path / "run" / "config.json").write_text(record)
        assert f"{told}does not say how the run ended" in check(tmp_path / "run").notes
    (tmp_path / "run" / "config.json").write_text(json.dumps({"result": {"status": "\x1b[2J\n" + "x" * 100}}))
    assert all(note.isprintable() and len(note) < 200 for note in check(tmp_path / "run").notes)


def test_an_array_too_many_is_refused_whatever_stands_for_its_hash(good_run: GoodRun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(good_run("two-layer"), run)
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    (run / "final.safetensors").unlink()  # which name the certificate by its hash
    record = json.loads((run / "certificate.json").read_text())
    assert check(run).outcome is Outcome.ACCEPT
    for value in (None, "", "0" * 64):
        changed = {**record, "arrays": {**record["arrays"], "problem/more": value}}
        (run / "certificate.json").write_text(json.dumps(changed))
        report = check(run)
        assert report.outcome is Outcome.REJECT and "problem/more" in str(report.lines[-1])


# -- files are read once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", sorted(SYSTEMS))
@pytest.mark.parametrize("replay", [False, True])
def test_each_file_is_read_once(system: str, replay: bool, good_run: GoodRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was hashed is what is judged: a file that changes between two reads cannot be two things."""
    opened: Counter[str] = Counter()
    real_open, real_os_open = builtins.open, os.open

    def watched(path, *args, **kwargs):
        opened[Path(path).name] += 1
        return real_os_open(path, *args, **kwargs)

    run = good_run(system)
    monkeypatch.setattr(os, "open", watched)
    assert check(run, replay=replay).outcome in (Outcome.ACCEPT, Outcome.UNDECIDED)
    monkeypatch.undo()
    assert builtins.open is real_open
    files = {file.name for file in run.rglob("*.safetensors")} | {"certificate.json"}
    assert files <= opened.keys() and max(opened.values()) == 1, opened


# -- time --------------------------------------------------------------------------------------------------------------


# the alarm may come between the opening of a file and its ``with``: the file is closed when it is collected
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_check_that_takes_too_long_is_undecided(
    good_run: GoodRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = good_run("two-layer")
    assert check(run, seconds=300.0).outcome is Outcome.ACCEPT
    report = check(run, seconds=1e-4)
    assert report.outcome is Outcome.UNDECIDED and "time limit of 0.0001 seconds" in str(report.lines[-1])
    assert main(["check", str(run), "--time-limit", "1e-4"]) == 3
    assert "time limit" in capsys.readouterr().out
    for bad in (0.0, -1.0, float("nan"), float("inf"), 1e300, "a", [1.0]):
        with pytest.raises(ValueError, match="positive number of seconds"):
            check(run, seconds=bad)  # type: ignore[arg-type]


def test_the_time_limit_ends_a_loop_and_leaves_no_timer() -> None:
    import signal

    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeUp), time_limit(0.05):
        while True:
            pass
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_time_limit_ends_a_loop_whose_first_alarm_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot_check.time_limit.AGAIN", 0.05)
    lost = []

    class Finalised:
        def __del__(self) -> None:  # Python ignores what is raised here
            try:
                while True:
                    pass
            finally:
                lost.append(True)

    with pytest.raises(TimeUp), time_limit(0.05):
        Finalised()
        while True:
            pass
    assert lost


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_the_guaranteed_iterations_are_those_of_the_certificate(system: str, good_run: GoodRun) -> None:
    directory = good_run(system)
    certificate = sf.Certificate.from_json((directory / "certificate.json").read_text())
    (line,) = (line for line in check(directory).lines if line.claim == "L1" and line.name.startswith("step size"))
    said = {float(gap): int(count.replace(",", "")) for gap, count in re.findall(r"(\S+) within ([\d,]+)", line.detail)}
    counts = {target: certificate.iterations_to(target) for target in (1e-2, 1e-6, 1e-10)}
    assert said == {target: count for target, count in counts.items() if count < 1e15}


def test_counts_of_no_practical_use_are_short() -> None:
    assert counted(269_277_295_573_782_937, "iteration") == "269,277,295,573,782,937 iterations"
    assert counted(934_880_797_841_407_852_538_807_451_648, "iteration") == "9.35e+29 iterations"


@pytest.mark.parametrize(
    ("probability", "said"),
    [(0.99, "0.99"), (1.0, "1"), (2 / 3, "0.666666"), (0.9999994, "0.999999"), (1.0 - 1e-9, "1 - 1e-09"),
     (0.99999951, "1 - 4.9e-07"), (1.0 - 1.2345e-8, "1 - 1.24e-08")],
)  # fmt: skip
def test_a_probability_claims_no_more_than_it_is(probability: float, said: str) -> None:
    assert chance(probability) == said
