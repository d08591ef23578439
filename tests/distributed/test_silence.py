"""Ranks that are stopped, and ranks that only seem to be: they compute for longer than the limit, in C, with Python's lock."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from programs import wait_until
from ranks import Ranks, run_ranks

import surefoot as sf
from surefoot import cli
from surefoot._core import heartbeat

TRAIN = ["train", "step-sizes", "--size", "4x5", "--problems", "6", "--iterations", "3", "--quiet"]
LIMIT = {heartbeat.VARIABLE: "4"}


def checkpoints(run: Path) -> list[Path]:
    return sorted(run.rglob("checkpoints/*.safetensors"))


@pytest.fixture(scope="module", params=[1, pytest.param(0, marks=pytest.mark.slow)], ids=["a worker", "rank 0"])
def stopped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, Path, list[CompletedProcess[str]], list[Path]]]:
    """A training by three processes, one of which is stopped, and goes on when the others have ended; the rank, the run, the
    results, and the checkpoints when it was stopped."""
    rank, run = request.param, tmp_path_factory.mktemp("stopped") / "run"
    with Ranks(["-m", "surefoot", *TRAIN, "--epochs", "100000000", "--out", str(run)], 3, LIMIT) as job:
        wait_until(lambda: len(checkpoints(run)) >= 2 or any(process.poll() is not None for process in job.processes))
        one = job.processes[rank]
        one.send_signal(signal.SIGSTOP)
        before = checkpoints(run)
        for other in job.processes:
            if other is not one:
                other.wait(120.0)
        assert one.poll() is None
        one.send_signal(signal.SIGCONT)
        yield rank, run, job.wait(60.0), before


def test_a_stopped_rank_ends_the_job(stopped: tuple[int, Path, list[CompletedProcess[str]], list[Path]]) -> None:
    """Whoever waits for it says which rank was lost and why; it ends, too, once it goes on."""
    rank, _, results, _ = stopped
    assert [done.returncode for done in results] == [4, 4, 4], results
    waiting = [0] if rank == 1 else [1, 2]
    for other in waiting:
        assert f"error: rank {rank} of the job was lost " in results[other].stderr, results
        assert "no sign of life from 127.0.0.1:" in results[other].stderr
        assert "for 4 s, the limit that SUREFOOT_RANK_TIMEOUT sets" in results[other].stderr
        assert "a run with --resume" in results[other].stderr


def test_its_checkpoints_are_whole(
    stopped: tuple[int, Path, list[CompletedProcess[str]], list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, run, _, before = stopped
    assert len(before) >= 2
    newest = max(int(path.stem) for path in checkpoints(run))
    resumed = ["train", "step-sizes", "--out", str(run), "--resume", "--quiet", "--epochs", str(newest + 1)]
    assert cli.main(resumed) == 0, capsys.readouterr().err
    assert not list(run.rglob("*.damaged"))


# A job is found by module and name, and so is put into that of the team; PyDLL keeps Python's lock during the call.
BUSY = """
import ctypes, json, time
import torch.distributed as dist
import surefoot as sf
from surefoot._core import team as teams
from surefoot._core.team import Message, team

def busy(message, memory):
    if dist.get_rank() == message.facts["rank"]:
        start = time.monotonic()
        ctypes.PyDLL(None).sleep(message.facts["seconds"])
        return Message({"held": time.monotonic() - start})
    return Message()

busy.__module__, busy.__qualname__ = teams.__name__, "busy_for_tests"
teams.busy_for_tests = busy

def program():
    return [team().call(busy, Message({"rank": rank, "seconds": 5}))[rank].facts["held"] for rank in (0, 1)]

print(json.dumps(sf.distributed.run(program)))
"""


@pytest.mark.slow
def test_a_rank_that_computes_is_not_given_up() -> None:
    """Rank 0 and another one, each without a line of Python for longer than the limit."""
    results = run_ranks(["-c", BUSY], 2, 120.0, {heartbeat.VARIABLE: "3"})
    assert [(done.returncode, done.stderr) for done in results] == [(0, ""), (0, "")], results
    assert min(json.loads(results[0].stdout)) >= 5.0


@pytest.mark.parametrize(("text", "seconds"), [(None, 60.0), ("0", None), ("0.5", 0.5), ("90", 90.0)])
def test_the_limit(monkeypatch: pytest.MonkeyPatch, text: str | None, seconds: float | None) -> None:
    monkeypatch.delenv(heartbeat.VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(heartbeat.VARIABLE, text)
    assert heartbeat.limit() == seconds


@pytest.mark.parametrize("text", ["", "-1", "inf", "nan", "one minute"])
def test_limits_that_are_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(heartbeat.VARIABLE, text)
    with pytest.raises(ValueError, match=r"SUREFOOT_RANK_TIMEOUT is '.*'; give a number of seconds, or 0 to wait"):
        sf.distributed.run(lambda: None)


def test_threads_that_have_ended_are_forgotten() -> None:
    others = set(heartbeat._started)
    for _ in range(3):
        one = heartbeat.Heartbeat(0, 1.0)
        one.listen([one.address])  # a job of one rank: nobody is asked, two threads wait
        waiting = set(heartbeat._started) - others
        assert len(waiting) == 2
        one.close()
        for thread in waiting:
            thread.join(10.0)
        del thread, waiting
        assert set(heartbeat._started) <= others
