"""Runs whose problem is too large for the run directory: what is stored instead, and how such a run is loaded, reported, resumed
and checked with the file of its arrays."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from draws import normal

import surefoot as sf
from surefoot import cli
from surefoot._cli import training
from surefoot._core import run as runs
from surefoot._core.io import read_tensors, write_tensors
from surefoot._report import write as write_report
from surefoot_check import Outcome, check
from surefoot_check.__main__ import main
from surefoot_check.arrays import read_safetensors

F64 = torch.float64


def two_layer() -> tuple[sf.nn.TwoLayerLinear, sf.SquaredLoss]:
    return sf.nn.TwoLayerLinear.gaussian(4, 2, 12, std=1.0, seed=0), sf.SquaredLoss(
        normal(30, 4), normal(30, 2, seed=1)
    )


def resnet() -> tuple[sf.nn.LinearResNet, sf.SquaredLoss]:
    net = sf.nn.LinearResNet.modified_identity(3, 2, 5, 3, alpha="sufficient", loss=resnet_loss())
    return net, resnet_loss()


def resnet_loss() -> sf.SquaredLoss:
    return sf.SquaredLoss(normal(20, 3), normal(20, 2, seed=1))


def implicit() -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]:
    X, y = normal(5, 4), normal(5, seed=1).sign()
    X /= torch.linalg.vector_norm(X, dim=1, keepdim=True)
    return sf.nn.ImplicitReLU.certifiable(X, y, 20, seed=0), sf.SquaredLoss(X, y)


def step_sizes() -> tuple[sf.nn.StepSizeNet, sf.learned.LeastSquares]:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), (1.0, 1.95))
    return net, sf.learned.LeastSquares(normal(3, 8, 4), normal(3, 8, seed=1))


SYSTEMS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "two-layer": two_layer,
    "linear-resnet": resnet,
    "implicit": implicit,
    "step-sizes": step_sizes,
}


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every problem here is larger than this."""
    monkeypatch.setattr(runs, "LARGE", 64)


def descend(make: Callable[[], tuple[Any, Any]], directory: Path | None = None, **options: Any) -> sf.Run:
    net, problem = make()
    options = {"max_iterations": 12, "tolerance": 0.0, "progress": False, **options}
    return sf.descend(net, problem, directory=directory, **options)


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Path]:
    """A run directory without its problem, and the problem's file."""
    run = descend(two_layer, tmp_path / "run")
    return tmp_path / "run", run.save_problem(tmp_path / "problem.safetensors")


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_names_shapes_and_hashes_stand_for_the_arrays(stored: tuple[Path, Path]) -> None:
    directory, data = stored
    assert not (directory / "problem.safetensors").exists()
    record = json.loads((directory / "problem.json").read_text())
    certificate = json.loads((directory / "certificate.json").read_text())
    assert record == {
        "format": "surefoot-problem/1",
        "arrays": {
            name: {"dtype": "F64", "shape": shape, "sha256": certificate["arrays"][f"problem/{name}"]}
            for name, shape in (("X", [4, 4]), ("Y", [4, 2]), ("optimum", [4, 2]))
        },
    }
    assert read_safetensors(data).keys() == record["arrays"].keys()


@pytest.mark.parametrize("excess", [0, 1])
def test_the_limit_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int) -> None:
    size = 8 * (4 * 4 + 4 * 2 + 4 * 2)
    monkeypatch.setattr(runs, "LARGE", size - excess)
    descend(two_layer, tmp_path / "run")
    assert (tmp_path / "run" / "problem.json").exists() == bool(excess)
    assert (tmp_path / "run" / "problem.safetensors").exists() != bool(excess)


def test_the_limit_is_256_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    at_limit = torch.empty(256 << 17, device="meta", dtype=F64)
    assert not runs.large({"X": at_limit})
    assert runs.large({"X": at_limit, "y": torch.zeros(1)})


def test_save_writes_what_a_run_with_a_directory_does(tmp_path: Path) -> None:
    run = descend(two_layer)
    run.save(tmp_path / "saved")
    descend(two_layer, tmp_path / "run")
    assert (tmp_path / "saved" / "problem.json").read_bytes() == (tmp_path / "run" / "problem.json").read_bytes()
    assert not (tmp_path / "saved" / "problem.safetensors").exists()


def test_a_directory_cut_off_before_its_config_counts_as_empty(tmp_path: Path) -> None:
    descend(two_layer, tmp_path / "whole")
    (tmp_path / "cut").mkdir()
    for name in ("certificate.json", "problem.json", "initial.safetensors"):
        shutil.copy(tmp_path / "whole" / name, tmp_path / "cut")
    descend(two_layer, tmp_path / "cut")
    assert sf.Run.load(tmp_path / "cut").gaps == sf.Run.load(tmp_path / "whole").gaps


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs the peak of Linux's /proc")
def test_arrays_are_written_without_a_copy_in_memory(tmp_path: Path) -> None:
    program = """
import re, sys, torch
from pathlib import Path
from surefoot._core.io import write_tensors
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
write_tensors(Path(sys.argv[1]), {"X": torch.ones(8)})
tensors = {"X": torch.ones(8 << 20), "Y": torch.ones(4 << 20, dtype=torch.float64)}  # 32 MiB each
Path("/proc/self/clear_refs").write_text("5")
before = peak()
write_tensors(Path(sys.argv[1]), tensors)
print(peak() - before)
"""
    path = tmp_path / "x.safetensors"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert path.stat().st_size > 64 << 20
    assert int(done.stdout) < 8 << 20


def test_written_tensors_are_read_back(tmp_path: Path) -> None:
    """By the package that defines the format, and by the checker's reader where it knows the dtype."""
    base = normal(6, 5)
    tensors = {
        "transposed": base.T,
        "shared": base,
        "slice": base[1:3, ::2],
        "scalar": torch.tensor(2.5, dtype=F64),
        "empty": torch.zeros(0, 3),
        "single": torch.arange(3.0),
        "half": torch.arange(3.0).half(),
        "brain": torch.arange(3.0).bfloat16(),
        "count": torch.tensor([1, -(2**62)]),
        "index": torch.tensor([3, -4], dtype=torch.int32),
        "bytes": torch.tensor([0, 255, 7], dtype=torch.uint8),
        "mask": torch.tensor([True, False, True]),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "Ω": torch.tensor([float("nan"), float("-inf"), -0.0, 5e-324], dtype=F64),
    }
    path = tmp_path / "tensors.safetensors"
    write_tensors(path, tensors)
    again = read_tensors(path)
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype and again[name].shape == tensor.shape
        assert torch.equal(
            again[name].reshape(-1).view(torch.uint8), tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        )
    del tensors["half"], tensors["brain"]
    write_tensors(path, tensors)
    for name, array in read_safetensors(path).items():
        assert array.tobytes() == tensors[name].detach().contiguous().numpy().tobytes()


# -- checking with the file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["fast", "exact"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_large_problem_is_checked_as_a_small_one(
    system: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = descend(SYSTEMS[system], tmp_path / "run")
    assert run.certificate.holds, run.certificate
    report = check(tmp_path / "run", level, run.save_problem(tmp_path / "problem.safetensors"))
    monkeypatch.setattr(runs, "LARGE", 1 << 20)
    descend(SYSTEMS[system], tmp_path / "small")
    expected = check(tmp_path / "small", level)
    assert expected.outcome is Outcome.ACCEPT or level == "exact"
    assert report.lines == expected.lines and report.theorem == expected.theorem


def test_without_the_file_there_is_no_verdict(stored: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = stored
    message = r"does not hold its problem's arrays \(X, Y, optimum\).*--data FILE"
    with pytest.raises(FileNotFoundError, match=message):
        check(directory)
    assert main([str(directory)]) == 2
    assert "--data FILE" in capsys.readouterr().err
    assert cli.main(["check", str(directory)]) == 2
    assert "--data FILE" in capsys.readouterr().err


def test_both_programs_take_the_file(stored: tuple[Path, Path], tmp_path: Path) -> None:
    directory, data = stored
    assert main([str(directory), "--data", str(data)]) == 0
    assert cli.main(["check", str(directory), "--data", str(data)]) == 0
    link = tmp_path / "link"
    link.symlink_to(data)
    assert check(directory, data=link).outcome is Outcome.ACCEPT


def test_a_file_that_is_not_there_is_bad_usage(stored: tuple[Path, Path], tmp_path: Path) -> None:
    directory, _ = stored
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError, match="is not a file"):
            check(directory, data=path)
        assert main([str(directory), "--data", str(path)]) == 2


def test_a_run_that_holds_its_arrays_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LARGE", 1 << 20)
    data = descend(two_layer, tmp_path / "run").save_problem(tmp_path / "problem.safetensors")
    with pytest.raises(ValueError, match="leave out --data"):
        check(tmp_path / "run", data=data)
    assert main([str(tmp_path / "run"), "--data", str(data)]) == 2
    with pytest.raises(sf.RunDirectoryError, match="leave out data"):
        sf.Run.load(tmp_path / "run", data)


Arrays = dict[str, np.ndarray]
WRONG_DATA: dict[str, Callable[[Arrays], Arrays]] = {
    "one bit": lambda a: a | {"X": np.nextafter(a["X"], 9.0)},
    "transposed": lambda a: a | {"X": np.ascontiguousarray(a["X"].T)},
    "single precision": lambda a: a | {"X": a["X"].astype(np.float32)},
    "reshaped": lambda a: a | {"Y": a["Y"].reshape(2, 4)},
    "one too few": lambda a: {k: v for k, v in a.items() if k != "optimum"},
    "one too many": lambda a: a | {"Z": a["X"]},
    "renamed": lambda a: {k.lower(): v for k, v in a.items()},
    "not finite": lambda a: a | {"X": a["X"] * np.nan},
}


@pytest.mark.parametrize("change", WRONG_DATA.values(), ids=WRONG_DATA.keys())
def test_other_data_is_rejected(stored: tuple[Path, Path], tmp_path: Path, change: Callable[[Arrays], Arrays]) -> None:
    directory, data = stored
    wrong = tmp_path / "wrong.safetensors"
    write_tensors(wrong, {k: torch.from_numpy(v) for k, v in change(read_safetensors(data)).items()})
    report = check(directory, data=wrong)
    assert report.outcome is Outcome.REJECT
    assert "differ from what problem.json declares" in str(report.lines[0])
    with pytest.raises(sf.RunDirectoryError, match="of another problem"):
        sf.Run.load(directory, wrong)


def test_data_and_declaration_changed_together_are_rejected(stored: tuple[Path, Path], tmp_path: Path) -> None:
    """The certificate's own hashes count."""
    directory, data = stored
    arrays = {k: torch.from_numpy(v) for k, v in read_safetensors(data).items()}
    arrays["X"] = 0.9 * arrays["X"]
    write_tensors(data, arrays)
    record = json.loads((directory / "problem.json").read_text())
    record["arrays"]["X"]["sha256"] = sf._core.certificate.digest(arrays["X"].numpy())
    (directory / "problem.json").write_text(json.dumps(record))
    report = check(directory, data=data)
    assert report.outcome is Outcome.REJECT
    assert "problem/X differ" in str(report.lines[0])


@pytest.mark.parametrize("content", [b"", b"\x02", b"cut" * 100], ids=["empty", "short", "other"])
def test_a_damaged_file_is_rejected(stored: tuple[Path, Path], content: bytes) -> None:
    directory, data = stored
    data.write_bytes(content)
    assert check(directory, data=data).outcome is Outcome.REJECT


def _entry(**change: Any) -> Callable[[dict[str, Any]], None]:
    def apply(record: dict[str, Any]) -> None:
        record["arrays"]["X"] = {k: v for k, v in (record["arrays"]["X"] | change).items() if v is not ...}

    return apply


BAD_DECLARATIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "another format": lambda r: r.update(format="surefoot-problem/2"),
    "no format": lambda r: r.pop("format"),
    "a further field": lambda r: r.update(path="/etc/passwd"),
    "arrays a list": lambda r: r.update(arrays=[*r["arrays"].values()]),
    "no arrays": lambda r: r.update(arrays={}),
    "an array left out": lambda r: r["arrays"].pop("Y"),
    "an array more": lambda r: r["arrays"].update(Z=r["arrays"]["Y"]),
    "an entry a string": lambda r: r["arrays"].update(X="F64"),
    "an entry's further field": _entry(path="x"),
    "an entry without hash": _entry(sha256=...),
    "a hash in capitals": lambda r: _entry(sha256=r["arrays"]["X"]["sha256"].upper())(r),
    "a hash with a newline": lambda r: _entry(sha256=r["arrays"]["X"]["sha256"] + "\n")(r),
    "a short hash": _entry(sha256="0" * 63),
    "another hash": _entry(sha256="0" * 64),
    "another dtype": _entry(dtype="F32"),
    "an unknown dtype": _entry(dtype="<f8"),
    "a dtype that is no string": _entry(dtype=["F64"]),
    "another shape": _entry(shape=[4, 5]),
    "a shape that is no list": _entry(shape=16),
    "a boolean size": _entry(shape=[4, True]),
    "a negative size": _entry(shape=[-4, -4]),
    "an enormous shape": _entry(shape=[2**62, 2**62]),
}


@pytest.mark.parametrize("change", BAD_DECLARATIONS.values(), ids=BAD_DECLARATIONS.keys())
def test_a_declaration_is_read_strictly(stored: tuple[Path, Path], change: Callable[[dict[str, Any]], None]) -> None:
    directory, data = stored
    record = json.loads((directory / "problem.json").read_text())
    change(record)
    (directory / "problem.json").write_text(json.dumps(record))
    assert check(directory, data=data).outcome is Outcome.REJECT


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "format": 1}', '"surefoot-problem/1"', "NaN"])
def test_a_declaration_that_is_no_record_is_rejected(stored: tuple[Path, Path], text: str) -> None:
    directory, data = stored
    (directory / "problem.json").write_text(text)
    assert check(directory).outcome is Outcome.REJECT
    assert check(directory, data=data).outcome is Outcome.REJECT


def test_declaration_and_arrays_together_are_rejected(stored: tuple[Path, Path]) -> None:
    directory, data = stored
    shutil.copy(data, directory / "problem.safetensors")
    assert check(directory).outcome is Outcome.REJECT
    assert check(directory, data=data).outcome is Outcome.REJECT


def test_a_declaration_outside_of_the_directory_is_rejected(stored: tuple[Path, Path], tmp_path: Path) -> None:
    directory, data = stored
    os.replace(directory / "problem.json", tmp_path / "problem.json")
    (directory / "problem.json").symlink_to(tmp_path / "problem.json")
    report = check(directory, data=data)
    assert report.outcome is Outcome.REJECT and "symbolic link" in str(report.lines[0])


def test_neither_declaration_nor_arrays_is_rejected(stored: tuple[Path, Path]) -> None:
    directory, data = stored
    (directory / "problem.json").unlink()
    assert check(directory).outcome is Outcome.REJECT
    assert check(directory, data=data).outcome is Outcome.REJECT


# -- loading, saving, resuming, reporting --------------------------------------------------------------------------------


def test_a_run_is_loaded_with_and_without_its_arrays(stored: tuple[Path, Path], tmp_path: Path) -> None:
    directory, data = stored
    run, without, whole = descend(two_layer), sf.Run.load(directory), sf.Run.load(directory, data)
    assert without.gaps == whole.gaps == run.gaps
    assert str(without.audit()) == str(run.audit())
    assert not without.problem and whole.problem.keys() == run.problem.keys()
    assert all(torch.equal(whole.problem[name], value) for name, value in run.problem.items())
    whole.save(tmp_path / "again")
    assert check(tmp_path / "again", data=data).outcome is Outcome.ACCEPT
    for write in (without.save, without.save_problem):
        with pytest.raises(sf.RunDirectoryError, match=r"loaded without its problem's arrays.*Run\.load"):
            write(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_resume_needs_no_file(tmp_path: Path) -> None:
    descend(two_layer, tmp_path / "run", max_iterations=5)
    again = descend(two_layer, tmp_path / "run", max_iterations=12, resume=True)
    assert again.gaps == descend(two_layer).gaps
    assert not (tmp_path / "run" / "problem.safetensors").exists()
    assert check(tmp_path / "run", data=again.save_problem(tmp_path / "data")).outcome is Outcome.ACCEPT


def test_a_report_says_more_with_the_arrays(tmp_path: Path) -> None:
    data = descend(implicit, tmp_path / "run").save_problem(tmp_path / "data.safetensors")
    short = write_report(tmp_path / "run").read_text()
    assert "kept elsewhere" in short and "--data FILE" in short and "missing" not in short and "Features" not in short
    full = write_report(tmp_path / "run", data).read_text()
    assert "kept elsewhere" not in full and "--data FILE" in full and "Features" in full


# -- the command line ------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 4))
    np.savetxt(tmp_path / "table.csv", np.column_stack([X, X.sum(1) + random.standard_normal(40)]), delimiter=",")
    return tmp_path / "table.csv"


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """With which file of arrays each report would have been written, in place of its plots."""
    asked: list[str | None] = []

    def write(directory: str | Path, data: str | None = None) -> Path:
        asked.append(data)
        return Path(directory) / "report.html"

    monkeypatch.setattr(training, "write_report", write)
    return asked


def test_train_keeps_the_arrays_where_it_is_told(
    table: Path, tmp_path: Path, reports: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = str(tmp_path / "run"), str(tmp_path / "arrays.safetensors")
    train = ["train", "two-layer", "--data", str(table), "--width", "20", "--max-iterations", "20", "--out", out]
    assert cli.main(train) == 0
    said = capsys.readouterr().out
    assert "--resume --keep-problem FILE" in said and "--data FILE" in said
    assert cli.main(["train", "two-layer", "--out", out, "--resume", "--keep-problem", data]) == 0
    assert f"--data {data}" in capsys.readouterr().out.replace("\n", "")
    assert cli.main(["check", out, "--data", data]) == 0
    assert cli.main(["report", out, "--data", data]) == 0
    assert cli.main(["report", out]) == 0
    assert reports == [None, data, data, None]


def test_train_step_sizes_keeps_them_too(tmp_path: Path, reports: list[str | None]) -> None:
    out, data = str(tmp_path / "run"), str(tmp_path / "arrays.safetensors")
    sizes = ["--problems", "3", "--size", "8x4", "--epochs", "1", "--iterations", "5"]
    assert cli.main(["train", "step-sizes", *sizes, "--out", out, "--keep-problem", data]) == 0
    assert reports == [data]
    assert cli.main(["check", out, "--data", data]) == 0
    assert cli.main(["check", out]) == 2


# -- shares that are reduced on their own ------------------------------------------------------------------------------------


def test_statistics_of_shares_make_the_loss_of_all_rows(tmp_path: Path) -> None:
    """The recipe of docs/scale.md."""
    X, Y = normal(1000, 6), normal(1000, 2, seed=1)
    for i in range(4):
        part = slice(250 * i, 250 * (i + 1))
        s = sf.SquaredLoss(X[part], Y[part]).statistics
        np.savez(tmp_path / f"share-{i:04d}.npz", design=s.design, target=s.target, offset=s.offset, rows=s.rows)
    shares = [np.load(file) for file in sorted(tmp_path.glob("share-*.npz"))]
    pairs = ((torch.from_numpy(s["design"]), torch.from_numpy(s["target"])) for s in shares)
    merged = sf.SquaredLoss.from_blocks(pairs).statistics
    offset = merged.offset + sum(float(s["offset"]) for s in shares)
    rows = sum(int(s["rows"]) for s in shares)
    loss, whole = (
        sf.SquaredLoss.from_statistics(dataclasses.replace(merged, offset=offset, rows=rows)),
        sf.SquaredLoss(X, Y),
    )
    assert loss.statistics.rows == 1000
    for name in ("smoothness", "strong_convexity", "optimal_value"):
        assert getattr(loss, name) == pytest.approx(getattr(whole, name), rel=1e-13)
    torch.testing.assert_close(loss.optimum, whole.optimum, rtol=1e-12, atol=1e-15)
