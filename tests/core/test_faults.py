"""Damaged, foreign, unwritable and contested run directories: a clear error, and nothing half-written under a final name."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from draws import normal
from trainings import in_use

import surefoot as sf
from surefoot._core import io as files
from surefoot._core.interrupts import StopRequest
from surefoot._core.progress import progress_line

F64 = torch.float64


X, Y = normal(30, 4), normal(30, 2, seed=1)


def network() -> sf.nn.TwoLayerLinear:
    return sf.nn.TwoLayerLinear.gaussian(4, 2, 8)


def descend(directory: Path | None = None, **options: Any) -> sf.Run:
    options = {"max_iterations": 12, "tolerance": 0.0, "progress": False, **options}
    return sf.descend(network(), sf.SquaredLoss(X, Y), directory=directory, **options)


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    descend(tmp_path / "run")
    return tmp_path / "run"


# -- where a run may be written ----------------------------------------------------------------------------------------

write = pytest.mark.parametrize("write", [descend, lambda path: descend().save(path)], ids=["descend", "save"])


def test_two_runs_in_one_directory(run_directory: Path) -> None:
    """Two that resume at once would both append to the trace."""
    before = {file.name: file.read_bytes() for file in run_directory.iterdir() if file.is_file()}
    with (
        in_use(run_directory),
        pytest.raises(sf.RunDirectoryError, match=r"another process is writing a run into .*; wait until it ends"),
    ):
        descend(run_directory, resume=True)
    assert before == {file.name: file.read_bytes() for file in run_directory.iterdir() if file.is_file()}
    assert descend(run_directory, resume=True, max_iterations=20).iterations == 20


def test_the_lock_is_of_a_thread(tmp_path: Path) -> None:
    """Nested contexts are of one run; the end of the inner one unlocks nothing. Another thread is another run."""

    def other() -> None:
        with pytest.raises(sf.RunDirectoryError, match="wait until it ends"), files.locked(tmp_path):
            pass

    with files.locked(tmp_path):
        with files.locked(tmp_path):
            pass
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other).result()
    with in_use(tmp_path):
        other()
    with files.locked(tmp_path):
        pass


@write
def test_existing_directory_with_files(tmp_path: Path, write: Callable[[Path], object]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(
        sf.RunDirectoryError,
        match=r"not an empty directory; choose another \(directory=, --out\), go on .*resume=True.*, or delete",
    ):
        write(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@write
def test_existing_run(run_directory: Path, write: Callable[[Path], object]) -> None:
    before = {p: p.read_bytes() for p in run_directory.rglob("*") if p.is_file()}
    with pytest.raises(sf.RunDirectoryError, match="not an empty directory"):
        write(run_directory)
    assert {p: p.read_bytes() for p in run_directory.rglob("*") if p.is_file()} == before


@write
def test_file_in_place_of_the_directory(tmp_path: Path, write: Callable[[Path], object]) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(sf.RunDirectoryError, match="is a file; choose a directory"):
        write(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


@write
def test_directory_that_cannot_be_created(tmp_path: Path, write: Callable[[Path], object]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot create a run directory \(Not a directory\); choose a writable place"):
        write(tmp_path / "file" / "run")


@write
def test_empty_and_nested_directories_are_fine(tmp_path: Path, write: Callable[[Path], object]) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    write(tmp_path / "a" / "b" / "c")
    assert sf.Run.load(tmp_path / "empty").rows == sf.Run.load(tmp_path / "a" / "b" / "c").rows


# -- what Run.load refuses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "file"])
def test_load_of_something_that_is_no_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(sf.RunDirectoryError, match="is not a directory; pass the directory of a run"):
        sf.Run.load(tmp_path / name)


def test_load_of_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(sf.RunDirectoryError, match=r"config.json is missing; this is not a complete run directory"):
        sf.Run.load(tmp_path)


FILES = ["config.json", "certificate.json", "trace.jsonl", "problem.safetensors", "initial.safetensors"]


@pytest.mark.parametrize("name", FILES)
def test_missing_file(run_directory: Path, name: str) -> None:
    (run_directory / name).unlink()
    with pytest.raises(sf.RunDirectoryError, match=f"{name} is missing"):
        sf.Run.load(run_directory)


@pytest.mark.parametrize("name", [*FILES, "final.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "bytes", "text", "nested", "empty"])
def test_damaged_file(run_directory: Path, name: str, damage: str) -> None:
    content = (run_directory / name).read_bytes()
    damaged = {
        "truncated": content[: len(content) // 2],
        "bytes": b"\xff\xfe\x00" * 50,
        "text": b"once upon a time\n" * 3,
        "nested": b"[" * 50_000 + b"\n\n",
        "empty": b"",
    }[damage]
    (run_directory / name).write_bytes(damaged)
    if name == "trace.jsonl" and damage in ("truncated", "empty"):
        # an unfinished last line is what a killed run leaves: the rows before it are good
        assert len(sf.Run.load(run_directory).rows) < 13
        return
    with pytest.raises(sf.RunDirectoryError, match=name):
        sf.Run.load(run_directory)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "surefoot-run/2", r"format 'surefoot-run/2'; this version reads .*use the version that wrote it"),
        ("format", None, "format None"),
        ("rule", ..., "config.json is damaged .*rule"),
        ("resolution", "small", "config.json is damaged .*small"),
        ("resolution", None, "config.json is damaged"),
        ("result", {"status": "great"}, "config.json is damaged .*great"),
        ("result", "great", "config.json is damaged"),
        ("result", {"recertified": [[1]]}, "config.json is damaged"),
        ("result", {"recertified": [[1, "{"]]}, "config.json is damaged"),
    ],
)
def test_config_of_another_version_or_with_a_bad_field(
    run_directory: Path, field: str, value: object, message: str
) -> None:
    config = json.loads((run_directory / "config.json").read_text())
    config = {k: v for k, v in config.items() if k != field} if value is ... else {**config, field: value}
    (run_directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(sf.RunDirectoryError, match=message):
        sf.Run.load(run_directory)


@pytest.mark.parametrize("config", ["[]", "null", "7"])
def test_config_that_is_no_object(run_directory: Path, config: str) -> None:
    (run_directory / "config.json").write_text(config)
    with pytest.raises(sf.RunDirectoryError, match=r"config.json has format None"):
        sf.Run.load(run_directory)


def test_certificate_of_another_version(run_directory: Path) -> None:
    path = run_directory / "certificate.json"
    path.write_text(path.read_text().replace("surefoot-certificate/2", "surefoot-certificate/9"))
    with pytest.raises(sf.RunDirectoryError, match=r"certificate.json: .*format 'surefoot-certificate/9'"):
        sf.Run.load(run_directory)


def test_recertification_with_a_foreign_name(run_directory: Path) -> None:
    (run_directory / "certificate-old.json").write_bytes((run_directory / "certificate.json").read_bytes())
    with pytest.raises(sf.RunDirectoryError):
        sf.Run.load(run_directory)


def test_trace_rows_out_of_order(run_directory: Path) -> None:
    trace = run_directory / "trace.jsonl"
    lines = trace.read_text().splitlines(keepends=True)
    trace.write_text("".join([*lines[:3], *lines[4:]]))
    with pytest.raises(sf.RunDirectoryError, match=r"trace.jsonl is damaged at line 4 \(iteration 3 expected\)"):
        sf.Run.load(run_directory)


# -- failing writes ----------------------------------------------------------------------------------------------------


def complete(directory: Path) -> None:
    """Every file under a final name reads; no temporary file is left."""
    for path in directory.rglob("*"):
        if path.is_dir():
            continue
        assert not path.name.startswith(".")
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".safetensors":
            files.read_tensors(path)


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_write_that_fails_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    """Every write fails once; what was there before stays, and the run resumes to the same result."""
    original, left = getattr(os, function), [10**9]

    def failing(*arguments: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(code, os.strerror(code))
        original(*arguments, **options)

    monkeypatch.setattr(os, function, failing)
    whole = descend(tmp_path / "whole")
    writes = 10**9 - left[0]
    assert writes > 8
    for number in range(0, writes, 2):
        directory = tmp_path / str(number)
        left[0] = number
        with pytest.raises(OSError, match=rf"could not write .* \({os.strerror(code)}\); free space") as caught:
            descend(directory)
        assert caught.value.errno == code
        complete(directory)
        left[0] = 10**9
        if (directory / "config.json").exists():
            resumed = descend(directory, resume=True)
            assert resumed.rows == whole.rows
            assert all(torch.equal(resumed.final[k], whole.final[k]) for k in whole.final)


def test_a_trace_that_cannot_be_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = descend(tmp_path / "whole")
    opened, left = Path.open, [2]

    def failing(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == "a":
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(OSError, match=r"could not write the trace \(No space left on device\); free space"):
        descend(tmp_path / "run")
    complete(tmp_path / "run")
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    monkeypatch.undo()
    assert descend(tmp_path / "run", resume=True).rows == whole.rows


def test_a_failed_run_leaves_the_network_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    net = network()
    before = net.W1.detach().clone()
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="could not write"):
        sf.descend(net, sf.SquaredLoss(X, Y), directory=tmp_path / "run", progress=False)
    assert torch.equal(net.W1.detach(), before)


def test_an_old_file_survives_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_atomic(tmp_path / "a.json", b"old")
    files.write_atomic(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"

    def failing(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=r"could not write a.json \(Input/output error\)"):
        files.write_atomic(tmp_path / "a.json", b"newer")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_bytes() == b"new"


# -- interrupts and progress -------------------------------------------------------------------------------------------


def test_a_second_interrupt_ends_at_once() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal_number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_second_sigterm_waits_for_the_checkpoint_too() -> None:
    """Supervisors repeat it; whoever cannot wait has SIGKILL."""
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal_number == signal.SIGTERM


def test_a_hangup_asks_to_stop_unless_it_is_ignored() -> None:
    """``nohup`` ignores it for what it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal_number == signal.SIGHUP
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal_number is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    sf.descend(network(), sf.SquaredLoss(X, Y), max_iterations=5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("start", "target"), [(1.0, 1e-12), (1.0, 0.0), (0.0, 0.0)])
def test_progress_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], start: float, target: float
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_line(True, 10, start, target) as show:
        for iteration, gap in enumerate((2.0, 1.0, 1e-3, 1e-12, 0.0)):
            show(iteration, gap, 0.5)
    assert "training" in capsys.readouterr().err


def test_a_run_cut_off_before_its_config_starts_again(tmp_path: Path) -> None:
    loss = sf.SquaredLoss(torch.eye(3, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64))
    directory = tmp_path / "run"
    sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 2, 8), loss, max_iterations=0, directory=directory, progress=False)
    for file in [*directory.glob("checkpoints/*"), *directory.glob("*.jsonl"), directory / "final.safetensors"]:
        file.unlink()
    with pytest.raises(sf.RunDirectoryError, match="not an empty directory"):
        sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 2, 8), loss, directory=directory, progress=False)
    (directory / "config.json").unlink()
    run = sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 2, 8), loss, directory=directory, progress=False)
    assert run.status is sf.RunStatus.CONVERGED and sf.Run.load(directory).iterations == run.iterations
