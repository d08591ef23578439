"""A job of several processes: what goes wrong in its programs, several of them one after the other, and jobs that are none."""

from __future__ import annotations

import json
import socket
from datetime import timedelta

import pytest
import torch
from ranks import run_ranks

import surefoot as sf
from surefoot import cli
from surefoot._core import team as teams
from surefoot._core.team import Message, RankLostError

# Jobs are found by module and name; these are put into that of the team, on every rank.
PROGRAM = """
import json, torch
import torch.distributed as dist
import surefoot as sf
from surefoot._core import team as teams
from surefoot._core.team import Message, RankLostError, team

def fail(message, memory):
    kind = message.facts["kind"]
    if kind == "cut off" and dist.get_rank() == 0:
        raise KeyboardInterrupt
    if kind == "cut off" or dist.get_rank() == 0:
        return Message()
    if kind == "subclass":
        open("/does/not/exist")
    if kind == "unusual":
        raise ZeroDivisionError("of all things")
    if kind == "answer":
        return Message({"x": object()})
    if kind == "nested":
        return Message({"answer": sf.distributed.run(lambda: team() is None)})

fail.__module__, fail.__qualname__ = teams.__name__, "fail_for_tests"
teams.fail_for_tests = fail
found = {}

def call(kind):
    return teams.team().call(fail, Message({"kind": kind}))

def program():
    outer = team()
    found["within"] = sf.distributed.run(lambda: team() is outer)
    for kind in ("subclass", "unusual", "answer"):
        try:
            call(kind)
        except Exception as error:
            found[kind] = [type(error).__name__, str(error)]
    found["nested"] = [answer.facts for answer in call("nested")]
    return "done"

found["first"] = sf.distributed.run(program)
found["second"] = sf.distributed.run(lambda: team().size)
try:
    sf.distributed.run(lambda: call("cut off"))
except (KeyboardInterrupt, RankLostError) as error:
    found["cut off"] = [type(error).__name__, str(error)]
found["third"] = sf.distributed.run(lambda: team().size)
found["after"] = team() is None
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
found["sum"] = float(total)
print(json.dumps(found))
"""


def test_programs_of_one_job() -> None:
    """Nested ones, errors of a rank, and programs after others, one of which was cut off in the midst of a call."""
    results = run_ranks(["-c", PROGRAM], 2, 120)
    assert [(done.returncode, done.stderr) for done in results] == [(0, ""), (0, "")], results
    first, second = (json.loads(done.stdout) for done in results)
    assert first["within"] is True
    assert first["subclass"] == ["OSError", "[Errno 2] No such file or directory: '/does/not/exist' (on rank 1)"]
    assert first["unusual"] == ["RuntimeError", "ZeroDivisionError: of all things (on rank 1)"]
    assert first["answer"] == ["TypeError", "Object of type object is not JSON serializable (on rank 1)"]
    assert first["nested"] == [{}, {"answer": True}]
    assert (first["first"], first["second"], first["third"]) == ("done", 2, 2)
    assert (second["first"], second["second"], second["third"]) == (None, None, None)
    assert first["cut off"] == ["KeyboardInterrupt", ""]
    assert second["cut off"][0] == "RankLostError" and "rank 0 of the job was lost before" in second["cut off"][1]
    assert first["after"] and second["after"] and first["sum"] == second["sum"] == 3.0


DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_messages_arrive_as_they_are(dtype: torch.dtype) -> None:
    base = torch.arange(24).reshape(4, 6).to(dtype)
    tensors = {
        "whole": base,
        "transposed": base.T,
        "strided": base[::2, 1::2],
        "column": base[:, 1:2],
        "expanded": base[:1].expand(5, 6),
        "empty": base[:0],
        "scalar": base[1, 2],
    }
    numbers = {"nan": float("nan"), "inf": [float("inf"), -float("inf")], "tiny": 5e-324, "big": 2**80, "text": "κ\n"}
    found = Message.decode(Message(numbers, tensors).encode())
    assert str(found.facts) == str(numbers)
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == dtype and torch.equal(found.tensors[name], tensor)


# -- variables of a job without a job --------------------------------------------------------------------------------------


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of rank 0 of 2, whose other rank never comes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    for name, value in (("RANK", 0), ("WORLD_SIZE", 2), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)):
        monkeypatch.setenv(name, str(value))
    return monkeypatch


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [("MASTER_ADDR", None, "MASTER_ADDR expected, but not set"), ("WORLD_SIZE", "two", "invalid literal for int")],
)
def test_half_of_the_variables_of_a_job(
    as_rank: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str | None, reason: str
) -> None:
    as_rank.delenv(name)
    if value is not None:
        as_rank.setenv(name, value)
    assert cli.main(["list"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith("surefoot: error: RANK and WORLD_SIZE are set, but not as for a job (")
    assert reason in said.err and said.err.endswith("unset RANK and WORLD_SIZE\n")


def test_ranks_that_never_come(as_rank: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The program says for what it waits, and ends."""
    as_rank.setattr(teams, "ARRIVAL", timedelta(seconds=2))
    as_rank.setattr(cli, "NOTICE", 0.2)
    assert cli.main(["list"]) == 4
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("surefoot: waiting for the other ranks of a job of 2 processes")
    assert said[-1].startswith("surefoot: error: not all ranks of the job came, or not within 2 s (")
    assert said[-1].endswith("unset RANK and WORLD_SIZE")
    with pytest.raises(RankLostError, match="start the program with torchrun"):
        sf.distributed.run(lambda: 1)
