"""Rows shared by several ranks: the reduction, errors of one rank, a rank that is lost, and the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from programs import wait_until
from ranks import Ranks, run_ranks
from safetensors.numpy import load_file

import surefoot as sf
from surefoot._cli import training
from surefoot._core.statistics import LeastSquaresStatistics, merge, reduce_blocks, row_blocks, statistics_of, triangle
from surefoot.cli import main
from surefoot_check import Outcome, check

N, INPUTS, OUTPUTS = 6000, 6, 2
ROUNDING = 1e-13
"""Relative difference of XᵀX, XᵀY and the offset between two orders of reduction of these well-conditioned rows."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """X.npy (float32, more in the file than is used) and Y.npy."""
    directory = tmp_path_factory.mktemp("rows")
    generator = np.random.default_rng(7)
    X = generator.standard_normal((N, INPUTS)).astype(np.float32)
    Y = X @ generator.standard_normal((INPUTS, OUTPUTS)) + 0.1 * generator.standard_normal((N, OUTPUTS))
    np.save(directory / "X.npy", X)
    np.save(directory / "Y.npy", Y)
    weights = np.abs(generator.standard_normal(N))
    weights[:1000] = 0.0
    np.save(directory / "weights.npy", weights)
    bad = X.copy()
    bad[N - 5, 2] = np.nan
    np.save(directory / "bad.npy", bad)
    return directory


def same(found: LeastSquaresStatistics, expected: LeastSquaresStatistics) -> None:
    for left, right in ((found.design, expected.design), (found.target, expected.target)):
        a, b = found.design.T @ left, expected.design.T @ right
        assert float((a - b).norm()) <= ROUNDING * float(b.norm())
    assert found.offset == pytest.approx(expected.offset, rel=1e-11)
    assert (found.rows, found.columns) == (expected.rows, expected.columns)


@pytest.mark.parametrize("cuts", [[1], [3], [INPUTS, 50], [0.5], [100, 101, 5000]])
def test_merged_triangles_are_those_of_all_rows(cuts: list[float], rows: Path) -> None:
    X = torch.from_numpy(np.load(rows / "X.npy")).double()
    Y = torch.from_numpy(np.load(rows / "Y.npy"))
    ends = [int(c * N) if c < 1 else int(c) for c in cuts]
    parts = [triangle([(x, y)]) for x, y in zip(X.tensor_split(ends), Y.tensor_split(ends), strict=True)]
    same(statistics_of(merge(parts)), reduce_blocks([(X, Y)]))


def test_few_rows_stay_as_they_are() -> None:
    X, Y = torch.eye(4, dtype=torch.float64)[:3] * 3.0, torch.ones(3, 1, dtype=torch.float64)
    merged = merge([triangle([(X[:1], Y[:1])]), triangle([(X[1:], Y[1:])])])
    assert not merged.compressed
    assert torch.equal(merged.factor, torch.cat([X, Y], 1))


def test_shares_must_have_the_same_columns() -> None:
    one = triangle([(torch.ones(5, 2), torch.ones(5, 1))])
    with pytest.raises(ValueError, match=r"2 \+ 1 and 3 \+ 1 columns"):
        merge([one, triangle([(torch.ones(5, 3), torch.ones(5, 1))])])


# Every rank runs this: rows of its own in its own process group, then shares of one file, then rank 1 is killed.
PROGRAM = """
import json, os, pathlib, sys
import numpy as np, torch
import torch.distributed as dist
import surefoot as sf
from surefoot._core.row_shares import reduce_rows
from surefoot._core.team import team

place = pathlib.Path(sys.argv[1])
rank = int(os.environ["RANK"])
(place / f"pid{rank}").write_text(str(os.getpid()))
X, Y = np.load(place / "X.npy", "r"), np.load(place / "Y.npy", "r")

dist.init_process_group("gloo")
mine = [slice(0, 1000), slice(1000, 4000), slice(4000, None)][rank]
odd = rank == 1
loss = sf.SquaredLoss.from_shards(X[mine], torch.from_numpy(np.array(Y[mine])))
def numbers_of(loss):
    W = loss.optimum
    K, mu, best = loss.smoothness, loss.strong_convexity, loss.optimal_value
    return {"K": K, "mu": mu, "optimal": best, "W": W.tolist(), "b": loss.intercept(W).tolist()}

own = numbers_of(loss)
w = np.load(place / "weights.npy")  # 0 for all rows of rank 0
options = {"l2": 2.0, "sample_weight": w[mine], "intercept": True}
own["options"] = numbers_of(sf.SquaredLoss.from_shards(X[mine], Y[mine], **options))

class Unreadable(np.memmap):
    def __getitem__(self, rows):
        raise OSError("no such disk")

for name, x in (
    ("nan", np.load(place / "bad.npy", "r")[mine]),
    ("shape", X[mine][:, 0] if odd else X[mine]),
    ("columns", X[mine][:, :2] if odd else X[mine]),
    ("weight", X[mine]),
    ("disk", X[mine].view(Unreadable) if odd else X[mine]),
):
    try:
        sf.SquaredLoss.from_shards(x, Y[mine], sample_weight=-w[mine] if name == "weight" else None)
    except ValueError as error:
        own[name] = str(error)
print(json.dumps(own), flush=True)

def numbers(s):
    return {"XX": (s.design.T @ s.design).tolist(), "XY": (s.design.T @ s.target).tolist(), "offset": s.offset, "rows": s.rows}

def program():
    found = {"size": team().size}
    found["mapped"] = numbers(reduce_rows(X, Y))
    how = {"l2": 2.0, "intercept": True}
    found["options"] = numbers_of(sf.SquaredLoss(X, Y, sample_weight=w, **how))
    mapped = np.load(place / "weights.npy", "r")
    found["mapped weights"] = numbers_of(sf.SquaredLoss(X, Y, sample_weight=mapped, **how)) == found["options"]
    found["again"] = numbers(reduce_rows(X, Y)) == found["mapped"]
    found["tensor"] = numbers(reduce_rows(X, torch.from_numpy(np.array(Y))))
    found["view"] = numbers(reduce_rows(X[100::2, ::-1], Y[100::2]))
    for name, bad in (("nan", np.load(place / "bad.npy", "r")), ("gone", X)):
        if name == "gone":
            os.rename(place / "X.npy", place / "moved.npy")
        try:
            reduce_rows(bad, Y)
        except (ValueError, OSError) as error:
            found[name] = f"{type(error).__name__}: {error}"
        if name == "gone":
            os.rename(place / "moved.npy", place / "X.npy")
    found["after"] = numbers(reduce_rows(X, Y)) == found["mapped"]
    print(json.dumps(found), flush=True)
    os.kill(int((place / "pid1").read_text()), 9)
    reduce_rows(X, Y)

sf.distributed.run(program)
"""


@pytest.fixture(scope="module")
def job(rows: Path) -> list[subprocess.CompletedProcess[str]]:
    return run_ranks(["-c", PROGRAM, str(rows)], 3, 240)


def test_ranks_reduce_their_own_rows(rows: Path, job: list[subprocess.CompletedProcess[str]]) -> None:
    found = json.loads(job[0].stdout.splitlines()[1])
    X, Y = np.load(rows / "X.npy").astype(np.float64), np.load(rows / "Y.npy")

    def expect(name: str, X: np.ndarray, Y: np.ndarray) -> None:
        whole = reduce_blocks(row_blocks(X, Y))
        design, target = whole.design.numpy(), whole.target.numpy()
        for key, value in (("XX", design.T @ design), ("XY", design.T @ target)):
            assert np.linalg.norm(found[name][key] - value) <= ROUNDING * np.linalg.norm(value)
        assert found[name]["offset"] == pytest.approx(whole.offset, rel=1e-11)
        assert found[name]["rows"] == len(X)

    assert found["size"] == 3
    expect("mapped", X, Y)
    expect("tensor", X, Y)
    expect("view", X[100::2, ::-1], Y[100::2])
    assert found["again"]
    assert found["after"]
    assert found["nan"].startswith(f"ValueError: X has nan at index ({N - 5}, 2)")
    assert found["nan"].endswith("(on rank 2)")
    assert found["gone"].startswith("FileNotFoundError")


def test_options_reach_the_shares_of_a_file(rows: Path, job: list[subprocess.CompletedProcess[str]]) -> None:
    found = json.loads(job[0].stdout.splitlines()[1])
    assert found["mapped weights"]
    close(found["options"], with_options(rows))


def with_options(rows: Path) -> sf.SquaredLoss:
    X, Y, w = (np.load(rows / f"{name}.npy") for name in ("X", "Y", "weights"))
    return sf.SquaredLoss(X, Y, l2=2.0, sample_weight=w, intercept=True)


def close(found: dict[str, Any], loss: sf.SquaredLoss) -> None:
    assert found["K"] == pytest.approx(loss.smoothness, rel=ROUNDING)
    assert found["mu"] == pytest.approx(loss.strong_convexity, rel=ROUNDING)
    assert found["optimal"] == pytest.approx(loss.optimal_value, rel=1e-11)
    assert np.allclose(found["W"], loss.optimum, rtol=0, atol=1e-12)
    assert np.allclose(found["b"], loss.intercept(loss.optimum), rtol=0, atol=1e-12)


def test_a_lost_rank_ends_the_program_on_all_others(job: list[subprocess.CompletedProcess[str]]) -> None:
    """None waits for the patience of 30 days."""
    assert [r.returncode for r in job] == [1, -signal.SIGKILL, 1], job
    assert re.search(r"RankLostError: (rank 1|a rank) of the job was lost", job[0].stderr)
    assert "RankLostError: rank 0 of the job was lost before the program was done" in job[2].stderr


def test_without_torchrun_there_are_no_ranks() -> None:
    with pytest.raises(RuntimeError, match="start the program with torchrun"):
        sf.distributed.run(lambda: 1)


def test_ranks_with_rows_of_their_own_get_one_loss(rows: Path, job: list[subprocess.CompletedProcess[str]]) -> None:
    """In a process group of the program's own."""
    found = [json.loads(r.stdout.splitlines()[0]) for r in job]
    whole = sf.SquaredLoss(np.load(rows / "X.npy"), np.load(rows / "Y.npy"))
    assert found[0] == found[1] == found[2]
    close(found[0], whole)
    close(found[0]["options"], with_options(rows))
    assert "weights must be at least 0 (on rank 1)" in found[0]["weight"]
    assert f"X has nan at index ({N - 5 - 4000}, 2)" in found[0]["nan"]
    assert found[0]["nan"].endswith("(on rank 2)")
    assert "they must be (N, n)" in found[0]["shape"]
    assert "columns of X and Y; all must have the same" in found[0]["columns"]
    assert found[0]["disk"] == "no such disk (on rank 1)"


# -- the command line ------------------------------------------------------------------------------------------------------

TRAIN = ["train", "two-layer", "--inputs", "raw", "--targets", "raw", "--width", "40", "--quiet"]
# commands one after the other in one job
COMMANDS = """
import json, sys
from surefoot._cli import training
from surefoot.cli import main
training.write_report = lambda directory, data: directory / "report.html"  # the slowest part of a small run
sys.exit(json.dumps([main(command) for command in json.loads(sys.argv[1])]))
"""


def test_the_command_line_shares_the_rows(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an error is said once."""
    monkeypatch.setattr(training, "write_report", lambda directory, data: directory / "report.html")
    data = ["--data", f"{rows / 'X.npy'},{rows / 'Y.npy'}", "--seed", "3"]
    bad = ["--data", f"{rows / 'bad.npy'},{rows / 'Y.npy'}", "--out", str(tmp_path / "run")]
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    assert main([*TRAIN, *data, "--out", str(alone)]) == 0
    done = capsys.readouterr().out
    commands = json.dumps([[*TRAIN, *data, "--out", str(shared)], [*TRAIN, *bad]])
    results = run_ranks(["-c", COMMANDS, commands], 2, 120)
    assert results[1].stdout == "" and results[1].stderr == "[0, 0]\n"
    said = results[0].stderr.splitlines()
    assert said[1:] == ["[0, 2]"]
    assert said[0].startswith("surefoot: error: ") and f"bad.npy is nan at index [{N - 5}, 2]" in said[0]
    assert results[0].stdout.startswith(f"{shared}: converged")
    assert results[0].stdout.split(": ")[1].split(",")[:2] == done.split(": ")[1].split(",")[:2]
    ours, theirs = load_file(shared / "final.safetensors"), load_file(alone / "final.safetensors")
    for name in ("W1", "W2"):
        difference = np.linalg.norm(ours[name] - theirs[name]) / np.linalg.norm(theirs[name])
        assert 0.0 <= difference <= 1e-10, name
    assert check(shared).outcome is Outcome.ACCEPT


def test_sigterm_to_every_rank_ends_with_a_checkpoint(rows: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    limit = ["--max-iterations", "100000000", "--tolerance", "0", "--steps", "1e-9"]
    with Ranks(
        ["-m", "surefoot", *TRAIN, "--data", f"{rows / 'X.npy'},{rows / 'Y.npy'}", *limit, "--out", str(run)], 2
    ) as job:
        written = lambda: list(run.glob("checkpoints/*.safetensors"))  # noqa: E731
        wait_until(lambda: written() or any(process.poll() is not None for process in job.processes))
        for process in job.processes:  # as torchrun does
            process.send_signal(signal.SIGTERM)
        results = job.wait(120)
    assert [r.returncode for r in results] == [143, 0], results
    assert "--resume" in results[0].stderr
    newest = max(written())
    assert int(newest.stem) >= 1
