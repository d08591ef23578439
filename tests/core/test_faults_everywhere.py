"""Full disks, read-only file systems, contested directories and jumping clocks, for the training of every system."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import resource
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from trainings import TRAININGS, differences, in_use
from trainings import files as files_of

import surefoot as sf
from surefoot._cli import training
from surefoot._cli.commands import modules
from surefoot._core import io as files
from surefoot._deconvolution.learned import training as deconvolution
from surefoot.cli import main
from surefoot_check import Outcome, check

every = pytest.mark.parametrize("system", TRAININGS)


@pytest.fixture
def _few_crops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation of the deconvolution network that takes no longer than its training."""
    monkeypatch.setattr(deconvolution, "VALIDATION", 2)


def finish(system: str, directory: Path) -> None:
    """Go on as a user would: resume, or start where there is nothing to resume."""
    TRAININGS[system](directory, not files.unused(directory))


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files_of(directory).items()}


@every
@pytest.mark.usefixtures("_few_crops")
def test_a_full_disk(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first write, in the middle of the training (a checkpoint or the trace), and at the last one."""
    original, left = os.fsync, [10**9]

    def full(handle: int) -> None:
        left[0] -= 1
        if left[0] == -1:
            os.truncate(handle, os.fstat(handle).st_size - 10)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(handle)

    monkeypatch.setattr(os, "fsync", full)
    whole = tmp_path / "whole"
    TRAININGS[system](whole)
    writes = 10**9 - left[0]
    for number in (0, writes // 2, writes - 1):
        directory = tmp_path / str(number)
        left[0] = number
        with pytest.raises(OSError, match=r"could not write .*\(No space left on device\); free space") as caught:
            TRAININGS[system](directory)
        assert caught.value.errno == errno.ENOSPC
        assert not any(Path(name).name.startswith(".") for name in files_of(directory))
        left[0] = 10**9
        finish(system, directory)
        assert differences(directory, whole, whole) == []


@every
@pytest.mark.usefixtures("_few_crops")
def test_a_read_only_file_system(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "run"
    TRAININGS[system](directory, steps=2)
    before = bytes_of(directory)
    (tmp_path / "empty").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for module, name in ((os, "unlink"), (os, "replace"), (os, "mkdir"), (files.tempfile, "mkstemp")):
        monkeypatch.setattr(module, name, refuse)
    message = r"could not write .*\(Read-only file system\); free space or choose a writable directory"
    for place, resume in ((directory, True), (tmp_path / "empty", False)):
        with pytest.raises(OSError, match=message):
            TRAININGS[system](place, resume, steps=4)
    with pytest.raises(OSError, match=r"cannot create a run directory \(Read-only file system\); choose a writable"):
        TRAININGS[system](tmp_path / "new")
    assert bytes_of(directory) == before and not [*(tmp_path / "empty").iterdir()]


@every
@pytest.mark.usefixtures("_few_crops")
def test_a_directory_in_use(system: str, tmp_path: Path) -> None:
    """Neither a new run nor a resumed one may start where another process writes, and both may once it is gone."""
    directory = tmp_path / "run"
    directory.mkdir()
    message = rf"another process is writing a run into {directory}; wait until it ends, or choose another directory"
    with in_use(directory), pytest.raises(sf.RunDirectoryError, match=message):
        TRAININGS[system](directory, steps=1)
    assert not [*directory.iterdir()]
    TRAININGS[system](directory, steps=1)
    before = bytes_of(directory)
    for resume in (True, False):
        with in_use(directory), pytest.raises(sf.RunDirectoryError, match=message):
            TRAININGS[system](directory, resume, steps=2)
    assert bytes_of(directory) == before
    TRAININGS[system](directory, True, steps=2)


@every
@pytest.mark.usefixtures("_few_crops")
def test_clocks_that_jump(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day may go anywhere; the monotonic one never goes back, but a year may pass while a machine sleeps."""
    TRAININGS[system](tmp_path / "whole")
    year, day, slept = 365.0 * 86400.0, 86400.0, [0.0]
    now, monotonic = time.time, time.monotonic
    jumps = itertools.cycle([year, -day, 0.0])

    def sleeping() -> float:
        slept[0] += year
        return monotonic() + slept[0]

    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    monkeypatch.setattr(time, "monotonic", sleeping)
    directory = tmp_path / "run"
    TRAININGS[system](directory)
    # each look at the clock finds a checkpoint due, so that the run has them all
    assert differences(tmp_path / "whole", directory, directory) == [
        f"{name} is missing" for name in sorted(files_of(directory).keys() - files_of(tmp_path / "whole").keys())
    ]
    if (directory / "result.json").exists():
        seconds = json.loads((directory / "result.json").read_text()).get("seconds", 0.0)
        assert 0.0 <= seconds < math.inf


@every
@pytest.mark.usefixtures("_few_crops")
def test_temporary_files_of_a_killed_process_are_removed(system: str, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    (directory / "checkpoints").mkdir(parents=True)
    (directory / ".config.json.abcd_123").write_text("{")
    assert files.unused(directory)
    TRAININGS[system](directory, steps=2)
    foreign = {".gitignore": "*", ".trace.jsonl.swp": "", ".notes.abcdefgh": "mine"}
    for name, text in foreign.items():
        (directory / name).write_text(text)
    for name in (".trace.jsonl.0bcdefgh", "checkpoints/.000000002.safetensors.abcdefg_"):
        (directory / name).write_text("half")
    TRAININGS[system](directory, True, steps=3)
    assert {name for name in files_of(directory) if Path(name).name.startswith(".")} == set(foreign)


def test_the_checker_ignores_temporary_files(tmp_path: Path) -> None:
    """A run that was killed last in a write is accepted before it is resumed, too."""
    TRAININGS["two-layer"](tmp_path)
    for name in (".certificate.json.abcdefgh", "checkpoints/.000000005.safetensors.abcdefgh"):
        (tmp_path / name).write_text("half")
    assert check(tmp_path).outcome is Outcome.ACCEPT


def test_a_real_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The system call itself fails, in the middle of an append; Python ignores SIGXFSZ."""
    whole, directory = tmp_path / "whole", tmp_path / "run"
    TRAININGS["sgd"](whole, steps=100)
    others = max(path.stat().st_size for name, path in files_of(whole).items() if name != "trace.jsonl")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (others + 999, hard))
    try:
        with pytest.raises(OSError, match=r"could not write the trace \(File too large\); free space"):
            TRAININGS["sgd"](directory, steps=100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (directory / "trace.jsonl").stat().st_size == others + 999
    TRAININGS["sgd"](directory, True, steps=100)
    assert differences(directory, whole, whole) == []


# -- the command line --------------------------------------------------------------------------------------------------

SMALL = {
    "two-layer": ["--data", "diabetes", "--width", "30", "--max-iterations", "6"],
    "inverse": ["--size", "4x5", "--count", "3", "--epochs", "3"],
    "step-sizes": ["--size", "4x5", "--problems", "2", "--epochs", "2", "--iterations", "3"],
    "svd": ["--size", "4x5", "--count", "3", "--epochs", "2", "--layers", "1"],
}


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the plots, the slowest part of a small run."""
    monkeypatch.setattr(training, "write_report", lambda directory, data: Path(directory) / "report.html")


def surefoot(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("two-layer", "config.json"),
        ("two-layer", "final.safetensors"),
        ("two-layer", "report.html"),
        ("inverse", "settings.json"),
        ("inverse", "best.safetensors"),
        ("inverse", "net.safetensors"),
        ("inverse", "certificate.json"),
        ("step-sizes", "comparison.txt"),
        ("svd", "result.json"),
    ],
)
def test_a_command_on_a_full_disk(
    system: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """Exit code 2 and one line that says what to do; then the same command goes on."""
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    if name != "report.html":
        request.getfixturevalue("without_report")
    start = ["train", system, "--out", tmp_path / "run", "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert surefoot(*start, *SMALL[system]) == 2
    said = capsys.readouterr().err
    assert f"could not write {name} (No space left on device); free space or choose a writable directory" in said
    assert said.count("\n") == 1
    resumed = files.unused(tmp_path / "run") or surefoot(*start, "--resume")
    assert (surefoot(*start, *SMALL[system]) if resumed is True else resumed) == 0


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("system", SMALL)
def test_a_command_on_a_directory_in_use(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """During all of the command: also when the training is over, and its results are written."""
    directory = tmp_path / "run"
    directory.mkdir()
    start = ["train", system, "--out", directory, "--quiet"]
    with in_use(directory):
        assert surefoot(*start, *SMALL[system]) == 2
    assert f"another process is writing a run into {directory}; wait until it ends" in capsys.readouterr().err
    last, calls = (
        {"two-layer": "descend", "step-sizes": "show_comparison", "inverse": "_compared", "svd": "_compared"}[system],
        [],
    )
    module = training if system == "two-layer" else import_module(f"{modules()[system].__name__}_run")
    original = getattr(module, last)

    def contested(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        with pytest.raises(BlockingIOError), in_use(directory):
            pass
        calls.append(last)
        return result

    monkeypatch.setattr(module, last, contested)
    assert surefoot(*start, *SMALL[system]) == 0 and calls == [last]
    before = bytes_of(directory)
    with in_use(directory):
        assert surefoot(*start, "--resume") == 2
    assert "another process is writing" in capsys.readouterr().err
    assert bytes_of(directory) == before


@pytest.mark.usefixtures("without_report")
def test_a_command_that_was_cut_off_before_its_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not to be resumed, says so, and can be started in the same directory."""
    directory = tmp_path / "run"
    (directory / "checkpoints").mkdir(parents=True)
    (directory / "certificate.json").write_text("{}")
    (directory / ".problem.safetensors.abcdefgh").write_text("half")
    start = ["train", "two-layer", "--out", directory, "--quiet"]
    assert surefoot(*start, "--resume") == 2
    assert "cut off before its first step (config.json is missing); leave out --resume" in capsys.readouterr().err
    assert surefoot(*start, *SMALL["two-layer"]) == 0
