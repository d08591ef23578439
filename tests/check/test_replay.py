"""Claim L3: runs are replayed and accepted, tampered ones never."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changes import GoodRun, once
from draws import normal
from tamper import StoredRun

import surefoot as sf
from surefoot.cli import main as surefoot
from surefoot_check import replay
from surefoot_check.__main__ import main as independent
from surefoot_check.checker import check
from surefoot_check.run_files import MAX_TRACE_BYTES, read_steps
from surefoot_check.verdict import Outcome, Report, lines

F64 = torch.float64
Lines = list[str]
RULES = ("certified-bb", "contraction", "sharp", "exact-line-search", "barzilai-borwein", "polyak", "backtracking")
RESNETS = ("local", "gd", "start")
MADE = (*RULES, *RESNETS, "constant step", "deficient", "narrow", "long")
TWO_LAYER = ("drift", "phases", "contraction", "constant", "corrected", "sharp", "completion", "sensing", "softmax")


def descend(net: Any, loss: Any, path: Path, steps: Any = None, theorem: str | None = None, **options: Any) -> sf.Run:
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds, str(certificate)
    return sf.descend(net, loss, steps, certificate=certificate, directory=path, progress=False, **options)


def resnet(name: str, path: Path) -> None:
    X, Y = normal(30, 3, seed=0), normal(30, 2, seed=1)
    net, every, theorem = sf.nn.LinearResNet.modified_identity(3, 2, 8, 4, 30.0), 6, None
    if name == "gd":
        net, every, theorem = sf.nn.LinearResNet.modified_identity(3, 2, 8, 4, 60.0), None, "linear-resnet/gd"
    elif name == "start":  # nonzero weights close to a minimiser
        net = sf.nn.LinearResNet(normal(6, 3, seed=3), normal(2, 6, seed=4), 0.1 * normal(3, 6, 6, seed=5))
        Y = (net(X) + 0.001 * normal(30, 2, seed=6)).detach()
    steps = None if name == "gd" else "smooth"
    descend(net, sf.SquaredLoss(X, Y), path, steps, theorem, max_iterations=12, certify_every=every)


def saddle(path: Path) -> None:
    """Weights of rank one up to rounding, on the way to a saddle: what is rounded later decides when the run leaves it."""
    angle = torch.tensor(0.7, dtype=F64)
    R = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    loss = sf.SquaredLoss(torch.eye(2, dtype=F64), R @ torch.diag(torch.tensor([3.0, 2.0], dtype=F64)) @ R.T)
    layer = R[:, :1] @ torch.tensor([[1.0, 1.1, -0.7]], dtype=F64)
    net = sf.nn.TwoLayerLinear(layer, layer.clone())
    descend(net, loss, path, 0.05, "two-layer/sharp", max_iterations=500, engine="weights")


def make(name: str, path: Path) -> None:
    if name in RESNETS:
        return resnet(name, path)
    if name == "saddle":
        return saddle(path)
    X, steps, options = normal(20, 5, seed=1), name if name in RULES else None, {}
    if name == "constant step":
        steps = 1e-4
    elif name == "deficient":
        X = normal(20, 3, seed=1) @ normal(3, 5, seed=2)
    elif name in ("long", "above"):  # steps far beyond 2/K, which take more bits
        X, options = X * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.05], dtype=F64), {"tolerance": 0.0}
        steps = "certified-bb" if name == "long" else "barzilai-borwein"
    width = 6 if name == "narrow" else 100
    net = sf.nn.TwoLayerLinear.gaussian(5, 4, width, std=1.0, seed=0)
    theorem = "two-layer/sharp" if name == "narrow" else None
    descend(net, sf.SquaredLoss(X, normal(20, 4, seed=3)), path, steps, theorem, max_iterations=150, **options)
    return None


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``made(name)``: the directory of one of the runs above, made once."""
    return once(tmp_path_factory, make)


def found(report: Report) -> list[str]:
    return [str(line) for line in report.lines if line.claim == "L3"]


@pytest.mark.parametrize("name", TWO_LAYER)
def test_runs_of_every_two_layer_theorem_are_replayed(name: str, good_run: GoodRun) -> None:
    report = check(good_run(name), replay=True)
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert len(found(report)) == 2 and not found(check(good_run(name)))


@pytest.mark.parametrize("name", MADE)
def test_runs_of_every_rule_and_linear_resnets_are_replayed(name: str, made: GoodRun) -> None:
    report = check(made(name), replay=True)
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    assert len(found(report)) == 2


@pytest.mark.parametrize("name", ["drift", "softmax", "gd"])
def test_runs_are_replayed_at_level_exact(name: str, good_run: GoodRun, made: GoodRun) -> None:
    report = check(made(name) if name in MADE else good_run(name), "exact", replay=True)
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_defects_are_those_of_rounding(made: GoodRun) -> None:
    for name in ("polyak", "start"):
        text = found(check(made(name), replay=True))[1]
        assert float(text.split("defect ")[1].split()[0]) < 1e-10, text


# -- tampering ---------------------------------------------------------------------------------------------------------


def copied(good: Path, directory: Path) -> Path:
    return Path(shutil.copytree(good, directory / "run"))


def with_trace(good: Path, directory: Path, change: Callable[[Lines], Lines]) -> Report:
    """The report on a copy whose trace has other lines (each with its line break)."""
    run = copied(good, directory)
    trace = run / "trace.jsonl"
    trace.write_text("".join(change(trace.read_text().splitlines(keepends=True))))
    return check(run, replay=True)


def with_weights(good: Path, directory: Path, change: Callable[[StoredRun], None]) -> Report:
    """The report on a copy with other stored weights, sealed as the run's."""
    run = StoredRun.read(good)
    change(run)
    path = directory / "changed"
    run.write(path)
    shutil.copy(good / "trace.jsonl", path)
    return check(path, replay=True)


def with_step(number: int, value: Any) -> Callable[[Lines], Lines]:
    """Another step in one row; a function of the old one, or a value as JSON writes it."""

    def change(rows: Lines) -> Lines:
        row = json.loads(rows[number])
        row["step"] = value(row["step"]) if callable(value) else value
        return [*rows[:number], json.dumps(row) + "\n", *rows[number + 1 :]]

    return change


def renumbered(rows: Lines) -> Lines:
    return [json.dumps({**json.loads(row), "iteration": number}) + "\n" for number, row in enumerate(rows)]


def without_step(rows: Lines) -> Lines:
    row = json.loads(rows[4])
    del row["step"]
    return [*rows[:4], json.dumps(row) + "\n", *rows[5:]]


TRACES: dict[str, Callable[[Lines], Lines]] = {
    "a step 1 % longer": with_step(4, lambda step: 1.01 * step),
    "a step 1e-4 shorter": with_step(2, lambda step: (1.0 - 1e-4) * step),
    "two steps exchanged": lambda rows: renumbered([*rows[:2], rows[3], rows[2], *rows[4:]]),
    "a row removed": lambda rows: rows[:4] + rows[5:],
    "a row removed, and the rest renumbered": lambda rows: renumbered(rows[:4] + rows[5:]),
    "a row twice": lambda rows: rows[:5] + rows[4:],
    "a row twice, and the rest renumbered": lambda rows: renumbered(rows[:5] + rows[4:]),
    "a short row inserted": lambda rows: renumbered([*rows[:3], '{"iteration": 3, "step": 1e-320}\n', *rows[3:]]),
    "in reverse": lambda rows: rows[::-1],
    "cut": lambda rows: rows[:-3],
    "cut to nothing": lambda _: [],
    "NaN": with_step(4, float("nan")),
    "infinity": with_step(4, float("inf")),
    "negative": with_step(4, -0.1),
    "zero": with_step(4, 0.0),
    "1e308": with_step(4, 1e308),
    "a string": with_step(4, "0.1"),
    "null": with_step(4, None),
    "true": with_step(4, True),
    "an integer": with_step(4, 1),
    "a list": with_step(4, [0.1]),
    "no step in the middle": without_step,
    "overflow": lambda rows: [*rows[:4], '{"iteration": 4, "step": 1e999}\n', *rows[5:]],
    "duplicate keys": lambda rows: [*rows[:4], rows[4].replace('"iteration"', '"step": 0.1, "iteration"'), *rows[5:]],
    "iteration as a float": lambda rows: [*rows[:4], rows[4].replace('"iteration": 4', '"iteration": 4.0'), *rows[5:]],
    "an array": lambda rows: [*rows[:4], "[4, 0.1]\n", *rows[5:]],
    "no JSON": lambda rows: [*rows[:4], "step\n", *rows[5:]],
    "an empty line": lambda rows: [*rows[:4], "\n", *rows[4:]],
    "a long line": lambda rows: [*rows[:4], rows[4].replace("{", "{" + " " * (1 << 17)), *rows[5:]],
    "denormal steps": lambda rows: [json.dumps({**json.loads(row), "step": 5e-324}) + "\n" for row in rows],
    "steps of 1e308": lambda rows: [json.dumps({**json.loads(row), "step": 1e308}) + "\n" for row in rows],
}


@pytest.mark.parametrize("change", TRACES)
def test_tampered_traces_are_rejected(change: str, made: GoodRun, tmp_path: Path) -> None:
    report = with_trace(made("polyak"), tmp_path, TRACES[change])
    # after an enormous step there are no bounds of the curvature in floats
    expected = (Outcome.REJECT, Outcome.UNDECIDED) if "1e308" in change else (Outcome.REJECT,)
    assert report.outcome in expected, "\n".join(lines(report))


@pytest.mark.parametrize(
    "change", [name for name in TRACES if name != "two steps exchanged"]
)  # its steps hardly differ
def test_tampered_traces_of_linear_resnets_are_not_accepted(change: str, made: GoodRun, tmp_path: Path) -> None:
    report = with_trace(made("local"), tmp_path, TRACES[change])
    assert report.outcome is not Outcome.ACCEPT, "\n".join(lines(report))


def test_only_the_replay_reads_the_trace(made: GoodRun, tmp_path: Path) -> None:
    run = copied(made("polyak"), tmp_path)
    (run / "trace.jsonl").unlink()
    assert check(run).outcome is Outcome.ACCEPT
    assert check(run, replay=True).outcome is Outcome.REJECT
    (run / "trace.jsonl").symlink_to(made("polyak") / "trace.jsonl")
    assert check(run, replay=True).outcome is Outcome.REJECT


def test_steps_of_another_rule_are_rejected(made: GoodRun, tmp_path: Path) -> None:
    for rule in ("contraction", "certified-bb"):
        other = (made(rule) / "trace.jsonl").read_text().splitlines(keepends=True)
        assert len(other) > 20
        (tmp_path / rule).mkdir()
        report = with_trace(made("polyak"), tmp_path / rule, lambda _, rows=other: rows)
        assert report.outcome is Outcome.REJECT


def renumber_checkpoint(run: StoredRun) -> None:
    """The checkpoint of iteration 10 is said to be of iteration 11: L2 has nothing against it."""
    arrays = run.arrays.pop("checkpoints/000000010.safetensors")
    arrays["iteration"] = np.array(11)
    run.arrays["checkpoints/000000011.safetensors"] = arrays


def earlier_final(run: StoredRun) -> None:
    """Only the weights of iteration 5 are kept, as the final ones of iteration 20."""
    arrays = run.arrays["checkpoints/000000005.safetensors"]
    for path in list(run.arrays):
        if path.startswith(("checkpoints/", "final")):
            del run.arrays[path]
    run.arrays["final.safetensors"] = {**arrays, "iteration": np.array(6)}


def moved(name: str, by: float) -> Callable[[StoredRun], None]:
    def change(run: StoredRun) -> None:
        for path, arrays in run.arrays.items():
            if path not in ("initial.safetensors", "problem.safetensors"):
                arrays[name] = arrays[name] * (1.0 + by)

    return change


WEIGHTS: dict[str, Callable[[StoredRun], None]] = {
    "a checkpoint of another iteration": renumber_checkpoint,
    "an earlier iterate as the final one": earlier_final,
}


@pytest.mark.parametrize("change", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("name", ["polyak", "gd"])
def test_weights_of_other_iterations_are_rejected(
    name: str, change: Callable[[StoredRun], None], made: GoodRun, tmp_path: Path
) -> None:
    report = with_weights(made(name), tmp_path, change)
    assert report.outcome is Outcome.REJECT, "\n".join(lines(report))
    assert check(tmp_path / "changed").outcome is Outcome.ACCEPT  # L1 and L2 are content with it


@pytest.mark.parametrize(
    ("name", "array", "by"), [("polyak", "W1", 1e-3), ("polyak", "W2", 1e-5), ("start", "W", 1e-5)]
)
def test_moved_weights_are_rejected(name: str, array: str, by: float, made: GoodRun, tmp_path: Path) -> None:
    report = with_weights(made(name), tmp_path, moved(array, by))
    assert report.outcome is Outcome.REJECT and len(found(report)) == 1, "\n".join(lines(report))
    assert check(tmp_path / "changed").outcome is Outcome.ACCEPT


def test_a_checkpoint_of_another_run_of_the_problem_is_rejected(made: GoodRun, tmp_path: Path) -> None:
    def change(run: StoredRun) -> None:
        other = StoredRun.read(made("contraction")).arrays["checkpoints/000000020.safetensors"]
        run.arrays["checkpoints/000000020.safetensors"] |= {name: other[name] for name in ("W1", "W2")}

    assert with_weights(made("polyak"), tmp_path, change).outcome is Outcome.REJECT
    assert check(tmp_path / "changed").outcome is Outcome.ACCEPT


def test_other_hidden_units_with_the_same_products_are_the_same_run(made: GoodRun, tmp_path: Path) -> None:
    """A rotation of the hidden units is another run of the same trajectory: L3 speaks of maps and Gram matrices."""

    def change(run: StoredRun) -> None:
        arrays = run.arrays["checkpoints/000000010.safetensors"]
        for name in ("W1", "W2"):
            arrays[name] = np.ascontiguousarray(arrays[name][:, ::-1])

    assert with_weights(made("polyak"), tmp_path, change).outcome is Outcome.ACCEPT


# -- runs that were cut short, limits ----------------------------------------------------------------------------------


def test_an_unfinished_last_line_counts_as_absent(made: GoodRun, tmp_path: Path) -> None:
    for number, end in enumerate(('{"curvature": 1.0, "gap": 0.', "{", '{"iteration": 999')):
        (tmp_path / str(number)).mkdir()
        report = with_trace(made("polyak"), tmp_path / str(number), lambda rows, end=end: [*rows, end])
        assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_a_killed_run_is_replayed_to_its_last_row(made: GoodRun, tmp_path: Path) -> None:
    """Rows after the newest checkpoint are descent too; without any stored weights there is nothing to compare."""
    run = copied(made("polyak"), tmp_path)
    (run / "final.safetensors").unlink()
    newest = sorted((run / "checkpoints").iterdir())[-1]
    newest.unlink()
    assert check(run, replay=True).outcome is Outcome.ACCEPT
    shutil.rmtree(run / "checkpoints")
    report = check(run, replay=True)
    assert report.outcome is Outcome.UNDECIDED and "no weights are stored" in found(report)[0]


def test_long_traces_end_undecided_and_quickly(made: GoodRun, tmp_path: Path) -> None:
    run = copied(made("polyak"), tmp_path)
    trace, start = run / "trace.jsonl", time.process_time()
    trace.write_text("".join(f'{{"iteration":{t},"step":1e-300}}\n' for t in range(50_000)))
    report = check(run, replay=True)
    assert report.outcome is Outcome.UNDECIDED and "50000 steps" in found(report)[0]
    with trace.open("r+b") as file:
        file.truncate(MAX_TRACE_BYTES + 1)
    assert check(run, replay=True).outcome is Outcome.UNDECIDED
    assert time.process_time() - start < 20.0


def test_large_problems_are_not_begun(made: GoodRun, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_ENTRIES", "MAX_WORK"):
        with monkeypatch.context() as patch:
            patch.setattr(replay, name, 100)
            report = check(made("polyak"), replay=True)
            assert report.outcome is Outcome.UNDECIDED and len(found(report)) == 1


def test_precision_adapts(made: GoodRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long steps magnify errors: 128 bits do not suffice, and are never taken for enough."""
    text = found(check(made("long"), replay=True))[0]
    assert int(text.split(" bits")[0].split()[-1]) > 128
    monkeypatch.setattr(replay, "MOST_BITS", 128)
    report = check(made("long"), replay=True)
    assert report.outcome is Outcome.UNDECIDED, "\n".join(lines(report))


def test_a_run_that_rounding_led_away_from_a_saddle_is_not_accepted(made: GoodRun) -> None:
    """It keeps every bound, and yet is not exact descent from its start."""
    assert check(made("saddle")).outcome is Outcome.ACCEPT
    report = check(made("saddle"), replay=True)
    assert report.outcome is Outcome.REJECT, "\n".join(lines(report))
    assert "distance" in found(report)[0]


def test_a_gap_above_the_bound_between_checkpoints_is_rejected(made: GoodRun) -> None:
    """Steps without a guarantee, whose gap rises above the bound for a while; no checkpoint shows it."""
    trace = [json.loads(line) for line in (made("above") / "trace.jsonl").read_text().splitlines()]
    assert max(row["gap"] for row in trace) > 1.1 * trace[0]["gap"]
    assert check(made("above")).outcome is Outcome.ACCEPT
    report = check(made("above"), replay=True)
    assert report.outcome is Outcome.REJECT and "guaranteed bound after" in found(report)[0]


def test_other_systems_have_no_replay(tmp_path: Path) -> None:
    sf.nn.LearnedInverse.chebyshev(4, 4, (1e-3, 1.0)).save_certificate(tmp_path / "inverse")
    report = check(tmp_path / "inverse", replay=True)
    assert report.outcome is Outcome.UNDECIDED and "no replay" in found(report)[0]


def test_the_replay_is_an_option_of_both_programs(
    made: GoodRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = copied(made("polyak"), tmp_path)
    step = with_step(2, lambda step: 1.5 * step)
    (renamed / "trace.jsonl").write_text("".join(step((renamed / "trace.jsonl").read_text().splitlines(keepends=True))))
    for run, code in ((made("polyak"), 0), (renamed, 1)):
        for program, command in ((independent, []), (surefoot, ["check"])):
            assert program([*command, str(run), "--replay"]) == code
            assert "L3" in capsys.readouterr().out
            assert program([*command, str(run)]) == 0
            assert "L3 not checked" in capsys.readouterr().out


def test_steps_are_read_exactly(made: GoodRun) -> None:
    rows = [json.loads(line) for line in (made("polyak") / "trace.jsonl").read_text().splitlines()]
    assert read_steps(made("polyak") / "trace.jsonl") == [row["step"] for row in rows if "step" in row]
