"""Callbacks of ``sf.descend`` and of mini-batches: what they are told, how they stop a run, and the files of the two writers."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot.callbacks import Callback, CSVWriter, Start, TensorBoardWriter
from surefoot_check.__main__ import main as surefoot_check


class Recorder(Callback):
    """Keeps all that it is told; asks for the end at ``stop``, fails at ``fail``."""

    def __init__(self, stop: int | None = None, fail: int | None = None) -> None:
        self.stop, self.fail = stop, fail
        self.starts: list[Start] = []
        self.records: list[dict[str, float]] = []
        self.ends: list[tuple[Any, dict[str, float]]] = []

    def on_start(self, start: Start) -> None:
        self.starts.append(start)

    def on_iteration(self, record: Mapping[str, float]) -> bool:
        self.records.append(dict(record))
        if record["iteration"] == self.fail:
            raise RuntimeError("the disk of the logger is full")
        return record["iteration"] == self.stop

    def on_end(self, run: Any, last: Mapping[str, float]) -> None:
        self.ends.append((run, dict(last)))


def problem() -> tuple[sf.nn.TwoLayerLinear, sf.SquaredLoss]:
    """The same each time: some fifteen iterations."""
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(30, n, dtype=torch.float64, generator=generator) for n in (4, 2))
    return sf.nn.TwoLayerLinear.gaussian(4, 2, 20, seed=0), sf.SquaredLoss(X, Y)


def descend(**options: Any) -> sf.Run:
    return sf.descend(*problem(), progress=False, **options)


def table(path: Path) -> list[dict[str, float | None]]:
    """Rows of a CSV file as numbers."""
    with path.open(newline="") as file:
        return [{name: float(cell) if cell else None for name, cell in row.items()} for row in csv.DictReader(file)]


def full(rows: list[dict[str, float]]) -> list[dict[str, float | None]]:
    """Rows of a trace with all the names that any has."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def test_a_callback_sees_every_iterate_once_and_changes_nothing(tmp_path: Path) -> None:
    seen = Recorder()
    run = descend(callbacks=[seen], directory=tmp_path / "run")
    assert run.gaps == descend().gaps and len(run.rows) > 10
    assert [*seen.records, seen.ends[0][1]] == run.rows and seen.ends[0][0] is run and len(seen.ends) == 1
    assert seen.starts == [Start(0, 1000, tmp_path / "run", run.certificate)]


def test_a_record_cannot_be_changed() -> None:
    class Changes(Callback):
        def on_iteration(self, record: Any) -> None:
            record["gap"] = 0.0

    with pytest.raises(TypeError, match="does not support item assignment"):
        descend(callbacks=[Changes()])


@pytest.mark.parametrize("stop", [0, 7])
def test_a_stopped_run_says_so_and_can_be_resumed(stop: int, tmp_path: Path) -> None:
    whole, before, after = descend(), Recorder(stop), Recorder()
    run = descend(callbacks=[Recorder(), before, Recorder()], directory=tmp_path)
    assert run.status is sf.RunStatus.INTERRUPTED and run.stopped_by is None and run.iterations == stop + 1
    assert before.ends[0][1] == run.rows[-1] and "step" not in run.rows[-1]
    assert sf.Run.load(tmp_path).status is sf.RunStatus.INTERRUPTED and surefoot_check([str(tmp_path)]) == 0
    resumed = descend(callbacks=[after], directory=tmp_path, resume=True)
    assert resumed.rows == whole.rows and after.starts[0].iteration == stop + 1
    assert [*before.records, *after.records] == whole.rows[:-1]  # no iteration twice, none left out


def test_only_true_stops() -> None:
    class Returns(Callback):
        def on_iteration(self, record: Any) -> str:
            return "not a verdict"

    assert descend(callbacks=[Returns()]).status is sf.RunStatus.CONVERGED


@pytest.mark.parametrize("answer", [np.bool_(True), np.array(True), torch.tensor(True)])
def test_true_of_an_array_library_stops_too(answer: Any) -> None:
    class Returns(Callback):
        def on_iteration(self, record: Any) -> Any:
            return answer

    run = descend(callbacks=[Returns()])
    assert run.status is sf.RunStatus.INTERRUPTED and run.iterations == 1 and "checkpoint" not in run.status.text


@pytest.mark.parametrize(
    "change", [lambda net, loss: loss.reduced.arrays()["X"].mul_(0.5), lambda net, loss: net.W1.mul_(0.5)]
)
@torch.no_grad()
def test_what_a_callback_writes_into_data_ends_the_run_and_what_into_weights_is_without_effect(change: Any) -> None:
    """Else a run of other data would show the certificate of these."""

    class Writes(Callback):
        def on_iteration(self, record: Any) -> None:
            change(net, loss)

    net, loss = problem()
    try:
        run = sf.descend(net, loss, progress=False, callbacks=[Writes()])
    except ValueError as error:
        assert re.search(r"arrays of the loss changed .*problem/X differ.* a callback must not", str(error))
    else:
        assert run.gaps == descend().gaps and torch.equal(net.W1, run.final["W1"])


def test_every_callback_learns_of_the_end_whichever_fails(tmp_path: Path) -> None:
    class Fails(Callback):
        def on_end(self, run: Any, last: Any) -> None:
            raise OSError("no connection")

    other = Recorder()
    with pytest.raises(OSError, match="no connection"):
        descend(callbacks=[Fails(), other])
    with pytest.raises(RuntimeError, match="logger is full") as caught:
        descend(callbacks=[Recorder(fail=2), Fails(), other], directory=tmp_path)
    assert len(other.ends) == 2 and "on_end of Fails failed too" in caught.value.__notes__[1]


def test_an_exception_loses_nothing(tmp_path: Path) -> None:
    failing, other = Recorder(fail=5), Recorder()
    with pytest.raises(RuntimeError, match="logger is full") as caught:
        descend(callbacks=[failing, other], directory=tmp_path)
    assert f"kept in {tmp_path}; go on with resume=True" in caught.value.__notes__[0]
    assert len(other.records) == 5 and len(failing.ends) == len(other.ends) == 1
    assert sf.Run.load(tmp_path).iterations == 6 and surefoot_check([str(tmp_path)]) == 0
    assert descend(directory=tmp_path, resume=True).gaps == descend().gaps


def test_a_callback_that_fails_at_the_start_leaves_a_run_to_resume(tmp_path: Path) -> None:
    class Fails(Callback):
        def on_start(self, start: Start) -> None:
            raise RuntimeError("no connection")

    with pytest.raises(RuntimeError, match="no connection"):
        descend(callbacks=[Fails()], directory=tmp_path)
    assert descend(directory=tmp_path, resume=True).gaps == descend().gaps


class Partial:
    def on_iteration(self, record: Any) -> None:
        """Two methods are missing."""


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (3, r"callbacks is an int; pass a list"),
        ([Recorder(), print], r"callbacks\[1\] is a builtin_function_or_method; pass an object with on_start, on_iteration"),
        ([Recorder], r"callbacks\[0\] is the class Recorder"),
        ([Partial()], r"callbacks\[0\] is a Partial; .* inherits sf\.callbacks\.Callback"),
    ],
)  # fmt: skip
def test_what_is_no_callback_is_refused(callbacks: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=message):
        descend(callbacks=callbacks, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mini_batches_tell_callbacks_too(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(30, n, dtype=torch.float64, generator=generator) for n in (3, 2))
    seen = Recorder(4)
    net = sf.nn.LinearResNet.gaussian(3, 2, 6, 2, seed=0)
    run = sf.sgd.descend(net, X, Y, 5, 1e-4, 20, callbacks=[seen], directory=tmp_path / "run")
    assert isinstance(run, sf.sgd.SGDRun) and run.status is sf.RunStatus.INTERRUPTED and run.iterations == 5
    assert [*seen.records, seen.ends[0][1]] == run.rows


# -- CSV -------------------------------------------------------------------------------------------------------------------------


def test_a_table_has_every_iterate_to_the_last_digit(tmp_path: Path) -> None:
    run = descend(callbacks=[CSVWriter(tmp_path / "run.csv")])
    assert table(tmp_path / "run.csv") == full(run.rows)
    assert (tmp_path / "run.csv").read_text().startswith("iteration,gap,step,")
    with pytest.raises(FileExistsError, match=r"run\.csv exists; choose another file"):
        descend(callbacks=[CSVWriter(tmp_path / "run.csv")])


@pytest.mark.parametrize("cut", [False, True])
def test_a_resumed_table_has_no_row_twice(cut: bool, tmp_path: Path) -> None:
    """Also after a kill, which leaves rows behind the newest checkpoint, the last one cut off."""
    file = tmp_path / "run.csv"
    descend(callbacks=[CSVWriter(file), Recorder(7)], directory=tmp_path / "run")
    if cut:
        ahead = file.read_text().splitlines()[-1].split(",", 1)[1]
        file.write_text(file.read_text() + f"9,{ahead}\n10,{ahead[:9]}")
    run = descend(callbacks=[CSVWriter(file)], directory=tmp_path / "run", resume=True)
    assert table(file) == full(run.rows)


def test_a_run_that_was_killed_before_its_first_checkpoint_goes_on_with_its_table(tmp_path: Path) -> None:
    writer, file = CSVWriter(tmp_path / "a.csv"), tmp_path / "a.csv"
    writer.on_start(Start(0, 3))
    writer.on_iteration({"iteration": 0, "gap": 0.1})
    with pytest.raises(FileExistsError):
        CSVWriter(file).on_start(Start(0, 3))
    again = CSVWriter(file)
    again.on_start(Start(0, 3, resumed=True))
    again.on_iteration({"iteration": 0, "gap": 0.2})
    assert file.read_text() == "iteration,gap\n0,0.2\n"


def test_behind_a_row_that_a_full_disk_cut_off_nothing_is_written(tmp_path: Path) -> None:
    """It would make one row of two. The limit on the size of files stands for the disk."""
    resource = pytest.importorskip("resource")
    writer, file = CSVWriter(tmp_path / "a.csv"), tmp_path / "a.csv"
    writer.on_start(Start(0, 3))
    writer.on_iteration({"iteration": 0, "gap": 0.125})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 4, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.on_iteration({"iteration": 1, "gap": 0.0625})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.on_end(None, {"iteration": 2, "gap": 0.03125})
    assert file.read_text() == "iteration,gap\n0,0.125\n1,0."
    again = CSVWriter(file)
    again.on_start(Start(1, 3, resumed=True))
    again.on_iteration({"iteration": 1, "gap": 0.0625})
    assert [row["gap"] for row in table(file)] == [0.125, 0.0625]


@pytest.mark.parametrize("row", ["3", "x,0.1", "1.5,0.1", "3,0.1,0.2"])
def test_a_damaged_table_is_refused(row: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"iteration,gap\n0,0.1\n{row}\n1,0.2\n")
    with pytest.raises(ValueError, match=r"a\.csv, line 3 is no row of a run"):
        CSVWriter(tmp_path / "a.csv").on_start(Start(5, 10, resumed=True))


def test_a_table_takes_new_columns(tmp_path: Path) -> None:
    writer = CSVWriter(tmp_path / "a.csv")
    writer.on_start(Start(0, 3))
    assert (tmp_path / "a.csv").read_text() == ""
    writer.on_iteration({"iteration": 0, "gap": 0.1, "step": 2.0})
    writer.on_iteration({"iteration": 1, "gap": float("nan"), "other": 1e-300})
    assert (tmp_path / "a.csv").read_text() == "iteration,gap,step,other\n0,0.1,2.0,\n1,nan,,1e-300\n"  # before the end
    writer.on_end(None, {})
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_another_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("name,price\nbread,3\n")
    with pytest.raises(ValueError, match=r"mine\.csv has no column iteration"):
        CSVWriter(tmp_path / "mine.csv").on_start(Start(5, 10, resumed=True))
    assert (tmp_path / "mine.csv").read_text() == "name,price\nbread,3\n"
    with pytest.raises(OSError, match="cannot be written"):
        descend(callbacks=[CSVWriter(tmp_path / "nowhere" / "a.csv")])


# -- TensorBoard -----------------------------------------------------------------------------------------------------------------


def scalars(directory: Path) -> dict[str, dict[int, float]]:
    """By name and step, as TensorBoard itself reads them; a step that it would show twice fails."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    found = {}
    for name in events.Tags()["scalars"]:
        shown = events.Scalars(name)
        found[name] = {event.step: event.value for event in shown}
        assert len(found[name]) == len(shown), name
    return found


def test_tensorboard_reads_every_measurement_once(tmp_path: Path) -> None:
    descend(callbacks=[TensorBoardWriter(tmp_path / "events"), Recorder(7)], directory=tmp_path / "run")
    writer = TensorBoardWriter(tmp_path / "events")
    run = descend(callbacks=[writer], directory=tmp_path / "run", resume=True)
    found = scalars(tmp_path / "events")
    assert set(found) == {name for row in run.rows for name in row} - {"iteration"}
    gaps = {int(row["iteration"]): pytest.approx(row["gap"], rel=1e-6) for row in run.rows}  # it keeps float32
    assert found["gap"] == gaps and len(found["step"]) == run.iterations


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard.writer", raising=False)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'surefoot\[tensorboard\]'"):
        TensorBoardWriter(tmp_path)
