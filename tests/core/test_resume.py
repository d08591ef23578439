"""A run that was stopped at any moment and resumed is bit for bit the run that was not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from draws import normal
from programs import run_program

import surefoot as sf
from surefoot._core.certificate import digests
from surefoot._two_layer.system import TwoLayerSystem
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

F64 = torch.float64


X, Y = normal(40, 5), normal(40, 3, seed=1)
DUPLICATED = torch.cat([X, X[:, :2]], 1)


_certify, _certificates = TwoLayerSystem.certify, {}


def remembered(system: TwoLayerSystem, net: Any, loss: Any, theorem: str, step: float | None = None) -> sf.Certificate:
    """The certificate of the same arrays again: it depends on nothing else, and iterates repeat here."""
    key = (theorem, step, *sorted(digests(loss.reduced.arrays(), system.reduced(net, loss)).items()))
    if key not in _certificates:
        _certificates[key] = _certify(system, net, loss, theorem, step)
    return _certificates[key]


@pytest.fixture(autouse=True)
def _remember_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TwoLayerSystem, "certify", remembered)


def rule(case: str) -> Any:
    if case == "backtracking, warm start":
        return sf.steps.Backtracking(warm_start=True)
    return None if case.startswith("certified-bb") else case


def descend(case: str, engine: str, directory: Path | None, resume: bool = False, **options: Any) -> sf.Run:
    x = DUPLICATED if "deficient" in case else X
    loss, net = sf.SquaredLoss(x, Y), sf.nn.TwoLayerLinear.gaussian(x.shape[1], 3, 12)
    options = {"max_iterations": 30, "tolerance": 1e-10, "steps": rule(case), **options}
    if "recertified" in case:
        options["certify_every"] = options.get("certify_every", 8)
    if case.startswith("paper"):
        options["certificate"] = sf.certify(net, loss, "two-layer/corrected")
    return sf.descend(net, loss, engine=engine, directory=directory, resume=resume, progress=False, **options)


def assert_same(resumed: sf.Run, whole: sf.Run) -> None:
    assert resumed.rows == whole.rows
    assert resumed.status is whole.status
    assert resumed.final.keys() == whole.final.keys()
    assert all(torch.equal(resumed.final[name], whole.final[name]) for name in whole.final)
    assert [(r.iteration, r.certificate) for r in resumed.adopted] == [
        (r.iteration, r.certificate) for r in whole.adopted
    ]
    known = [[(r.iteration, r.certificate) for r in run.recertified] for run in (resumed, whole)]
    assert known[0] == known[1]
    assert resumed.directory is not None
    again = sf.Run.load(resumed.directory)
    assert again.rows == whole.rows
    assert all(torch.equal(again.final[name], whole.final[name]) for name in whole.final)
    assert [r.iteration for r in again.adopted] == [r.iteration for r in whole.adopted]
    if whole.certified:
        assert str(again.audit()) == str(whole.audit())


CASES = [
    "certified-bb",
    "certified-bb, recertified",
    "certified-bb, recertified, deficient",
    "barzilai-borwein",
    "backtracking, warm start",
    "paper-rho",
]
cases = pytest.mark.parametrize("case", CASES)
engines = pytest.mark.parametrize("engine", ["gram", "weights"])

SIGNALLED = [
    ("certified-bb, recertified", "gram"),
    ("certified-bb, recertified, deficient", "weights"),
    ("backtracking, warm start", "gram"),
    ("paper-rho", "weights"),
]

# -- real signals ------------------------------------------------------------------------------------------------------

DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, {here!r})
import test_resume as t
t.TwoLayerSystem.certify = t.remembered

def slow(case, engine, directory):
    steps = t.sf.steps.CertifiedBB() if t.rule(case) is None else t.rule(case)
    if isinstance(steps, str):
        from surefoot._two_layer.steps import RULES
        steps = RULES[steps]()
    step = steps.step
    steps.step = lambda engine: (time.sleep(0.002), step(engine))[1]
    t.descend(case, engine, directory, steps=steps)

verdicts = {{}}
for case, engine in t.SIGNALLED:
    whole = t.descend(case, engine, None)
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        directory = Path({folder!r}) / f"{{case}} {{engine}} {{number.name}}"
        child = os.fork()
        if child == 0:
            slow(case, engine, directory)
            os._exit(0)
        while not list((directory / "checkpoints").glob("*.safetensors")) and not os.waitpid(child, os.WNOHANG)[0]:
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, 0.08))
        os.kill(child, number)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stopped = t.sf.Run.load(directory).status.value
        verdict = f"exit code {{code}}, {{stopped}}"
        try:
            t.assert_same(t.descend(case, engine, directory, resume=True), whole)
        except Exception as error:
            verdict = f"{{type(error).__name__}}: {{error}}"
        verdicts[directory.name] = verdict
print(json.dumps(verdicts))
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How each child ended, or what differs after the resume; all in one process, as starting one takes seconds."""
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    script = DRIVER.format(here=str(Path(__file__).parent), folder=str(tmp_path_factory.mktemp("signals")))
    done = run_program(["-c", script], 250.0)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("case", "engine"), SIGNALLED)
@pytest.mark.parametrize("number", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_stopped_by_a_signal_at_a_random_moment(verdicts: dict[str, str], case: str, engine: str, number: str) -> None:
    allowed = {"exit code 0, interrupted", "exit code 0, converged", "exit code 0, max_iterations"}
    if number == "SIGKILL":
        allowed = {"exit code -9, running", "exit code -9, converged", "exit code -9, max_iterations"}
    assert verdicts[f"{case} {engine} {number}"] in allowed


def test_signals_did_come_in_the_middle(verdicts: dict[str, str]) -> None:
    ends = list(verdicts.values())
    assert ends.count("exit code -9, running") + ends.count("exit code 0, interrupted") >= 3


# -- a crash at every write --------------------------------------------------------------------------------------------


class Crash(BaseException):
    """What a power failure looks like to the code: nothing catches it."""


STARTING = 4
"""Files written before the first step; without them there is no run to resume."""


@pytest.mark.parametrize(
    ("case", "engine"), [("certified-bb, recertified", "gram"), ("certified-bb, recertified, deficient", "weights")]
)
def test_crash_before_any_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, engine: str) -> None:
    replace = os.replace
    left = [10**9]

    def crashing(*names: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        replace(*names, **options)

    monkeypatch.setattr(os, "replace", crashing)
    whole = descend(case, engine, tmp_path / "whole", max_iterations=11)
    assert whole.adopted
    writes = 10**9 - left[0]
    for number in range(writes):
        directory = tmp_path / str(number)
        left[0] = number
        with pytest.raises(Crash):
            descend(case, engine, directory, max_iterations=11)
        left[0] = 10**9
        if number < STARTING:  # nothing was written: not even a directory is left
            missing = r"config.json is missing" if number else "is not a directory; there is no run to resume"
            with pytest.raises(sf.RunDirectoryError, match=missing):
                descend(case, engine, directory, resume=True, max_iterations=11)
        else:
            assert_same(descend(case, engine, directory, resume=True, max_iterations=11), whole)
        shutil.rmtree(directory, ignore_errors=number == 0)


def test_the_trace_is_on_the_disk_before_the_checkpoint_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure a file holds what was synchronised, and perhaps nothing of what was written since."""
    fsync, replace, synced, checked = os.fsync, os.replace, [0], []

    def syncing(handle: int) -> None:
        fsync(handle)
        trace = tmp_path / "run" / "trace.jsonl"
        if trace.exists() and os.fstat(handle).st_ino == trace.stat().st_ino:
            synced[0] = trace.read_bytes().count(b"\n")

    def replacing(source: Any, target: Any) -> None:
        if Path(target).parent.name == "checkpoints":
            checked.append(int(Path(target).stem))
            assert synced[0] >= checked[-1]
        replace(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    descend("certified-bb", "gram", tmp_path / "run", max_iterations=12)
    assert checked == [1, 2, 5, 10, 12]


def test_limits_of_a_resumed_run_survive_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next resume without limits, as the command line does it, goes by those in force when the run was killed."""
    descend("certified-bb", "gram", tmp_path / "run", max_iterations=3)
    with monkeypatch.context() as patch:
        patch.setattr(TwoLayerSystem, "write", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            descend("certified-bb", "gram", tmp_path / "run", resume=True, max_iterations=7)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["max_iterations"] == 7
    assert sf.Run.load(tmp_path / "run").status is sf.RunStatus.RUNNING


# -- resumes in other situations ---------------------------------------------------------------------------------------


@cases
@engines
@pytest.mark.parametrize("stops", [[1], [3, 8, 8, 20]])
def test_resumed_after_an_iteration_limit(tmp_path: Path, case: str, engine: str, stops: list[int]) -> None:
    whole = descend(case, engine, None)
    for index, stop in enumerate(stops):
        run = descend(case, engine, tmp_path / "run", resume=index > 0, max_iterations=stop)
        assert run.status is sf.RunStatus.MAX_ITERATIONS
    resumed = descend(case, engine, tmp_path / "run", resume=True)
    assert_same(resumed, whole)
    assert [r.iteration for r in resumed.recertified] == [r.iteration for r in whole.recertified]


@cases
@engines
def test_resume_of_a_finished_run_changes_nothing(tmp_path: Path, case: str, engine: str) -> None:
    whole = descend(case, engine, tmp_path / "run")
    before = (tmp_path / "run" / "trace.jsonl").read_bytes()
    assert_same(descend(case, engine, tmp_path / "run", resume=True), whole)
    assert (tmp_path / "run" / "trace.jsonl").read_bytes() == before


def stopped(directory: Path, case: str = "certified-bb, recertified") -> Path:
    descend(case, "gram", directory, max_iterations=13)
    return directory


@pytest.mark.parametrize("tail", ['{"iteration": 14, "gap"', '{"iteration": 14, "ga\\u00', "{", ""])
def test_unfinished_last_line_of_the_trace(tmp_path: Path, tail: str) -> None:
    whole = descend("certified-bb, recertified", "gram", None)
    with (stopped(tmp_path / "run") / "trace.jsonl").open("a") as file:
        file.write(tail)
    assert_same(descend("certified-bb, recertified", "gram", tmp_path / "run", resume=True), whole)


def test_trace_without_its_last_newline(tmp_path: Path) -> None:
    whole = descend("certified-bb", "gram", None)
    trace = stopped(tmp_path / "run", "certified-bb") / "trace.jsonl"
    trace.write_bytes(trace.read_bytes()[:-1])
    assert_same(descend("certified-bb", "gram", tmp_path / "run", resume=True), whole)


def test_damaged_line_in_the_middle_of_the_trace(tmp_path: Path) -> None:
    trace = stopped(tmp_path / "run") / "trace.jsonl"
    lines = trace.read_text().splitlines(keepends=True)
    trace.write_text("".join([*lines[:5], "{broken\n", *lines[6:]]))
    with pytest.raises(sf.RunDirectoryError, match=r"trace.jsonl is damaged at line 6 .*run again"):
        descend("certified-bb, recertified", "gram", tmp_path / "run", resume=True)


def test_trace_that_was_cut(tmp_path: Path) -> None:
    trace = stopped(tmp_path / "run") / "trace.jsonl"
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:7]))
    with pytest.raises(sf.RunDirectoryError, match=r"has 7 rows for 13 iterations; it was cut"):
        descend("certified-bb, recertified", "gram", tmp_path / "run", resume=True)


@pytest.mark.parametrize("damage", ["truncate", "rubbish", "empty", "other weights", "other certificate"])
@engines
def test_damaged_newest_checkpoint_falls_back(tmp_path: Path, damage: str, engine: str) -> None:
    case = "certified-bb, recertified"
    whole = descend(case, engine, None)
    descend(case, engine, tmp_path / "run", max_iterations=13)
    newest = tmp_path / "run" / "checkpoints" / "000000013.safetensors"
    content = newest.read_bytes()
    if damage == "other weights":
        other = sf.nn.TwoLayerLinear.gaussian(5, 3, 13)
        sf.descend(other, sf.SquaredLoss(X, Y), directory=tmp_path / "b", max_iterations=13, progress=False)
        content = (tmp_path / "b" / "checkpoints" / newest.name).read_bytes()
    elif damage == "other certificate":
        other = sf.nn.TwoLayerLinear.gaussian(5, 3, 12, seed=1)
        sf.descend(
            other, sf.SquaredLoss(X, Y), engine=engine, directory=tmp_path / "b", max_iterations=13, progress=False
        )
        content = (tmp_path / "b" / "checkpoints" / newest.name).read_bytes()
    damaged = {"truncate": content[:-20], "rubbish": b"\xff" * 500, "empty": b""}.get(damage, content)
    newest.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"checkpoint 000000013.safetensors cannot be used .* an earlier one is taken"):
        resumed = descend(case, engine, tmp_path / "run", resume=True)
    assert_same(resumed, whole)
    assert newest.with_name(newest.name + ".damaged").read_bytes() == damaged
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_all_checkpoints_lost_starts_again(tmp_path: Path) -> None:
    whole = descend("certified-bb, recertified", "gram", None)
    shutil.rmtree(stopped(tmp_path / "run") / "checkpoints")
    assert_same(descend("certified-bb, recertified", "gram", tmp_path / "run", resume=True), whole)


def test_a_recertification_that_the_checkpoint_knows_is_missing(tmp_path: Path) -> None:
    for file in stopped(tmp_path / "run").glob("certificate-*.json"):
        file.unlink()
    with pytest.raises(sf.RunDirectoryError, match=r"has 0 recertifications .*restore them, or start a new run"):
        descend("certified-bb, recertified", "gram", tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": "sharp"}, "has rule 'certified-bb', this call 'sharp'; resume with the same settings"),
        ({"engine": "weights"}, "has engine 'gram', this call 'weights'"),
        ({"certify_every": 5}, "has certify_every 8, this call 5"),
    ],
)
def test_resume_with_other_settings_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    stopped(tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(sf.RunDirectoryError, match=message):
        descend(
            "certified-bb, recertified", **{"engine": "gram", "directory": tmp_path / "run", **options}, resume=True
        )
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_resume_with_other_data_weights_or_theorem_is_refused(tmp_path: Path) -> None:
    loss, net = sf.SquaredLoss(X, Y), sf.nn.TwoLayerLinear.gaussian(5, 3, 12)
    sf.descend(net, loss, directory=tmp_path / "run", max_iterations=5, progress=False)
    first = sf.nn.TwoLayerLinear.gaussian(5, 3, 12)
    for other_net, other_loss, theorem in (
        (net, loss, None),  # the weights are those after the run
        (first, sf.SquaredLoss(X, 2 * Y), None),
        (first, loss, "two-layer/sharp"),
    ):
        cert = sf.certify(other_net, other_loss, theorem)
        with pytest.raises(sf.RunDirectoryError, match="certificate of other data, weights or theorem"):
            sf.descend(
                other_net,
                other_loss,
                certificate=cert,
                directory=tmp_path / "run",
                resume=True,
                progress=False,
                steps="certified-bb",
            )


def test_resume_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(sf.RunDirectoryError, match="is not a directory; there is no run to resume"):
        descend("certified-bb", "gram", tmp_path / "none", resume=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(sf.RunDirectoryError, match=r"config.json is missing"):
        descend("certified-bb", "gram", tmp_path / "empty", resume=True)
    with pytest.raises(ValueError, match="resume=True needs the directory"):
        descend("certified-bb", "gram", None, resume=True)
