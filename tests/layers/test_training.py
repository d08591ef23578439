"""Training layer by layer: what its certificates say is true."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from surefoot._layers import training
from surefoot._layers.run import LayersRun
from surefoot._layers.schedules import best_schedule, course, follow
from surefoot.callbacks import Callback, Record
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems, TrainStatus, train_layers
from surefoot.nn import LayeredSteps
from surefoot_check.arrays import digest, read_safetensors
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

ALL = {
    "least squares": lambda: LeastSquares.random(5, 8, 12, seed=1),
    "lasso": lambda: Lasso.random(4, 8, 12, lam=0.1, seed=2),
    "logistic": lambda: Logistic.random(4, 15, 6, lam=0.3, l2=0.1, seed=3),
}


def trained(name: str, objective: str = "last", **options):
    problems: Problems = ALL[name]()
    return problems, train_layers(problems, 6, sectors=3, objective=objective, **options)  # pyright: ignore[reportArgumentType]


def after(run, problems: Problems, x: torch.Tensor, t: int) -> float:
    """What layer t is judged by."""
    rest = run.schedule[t + 1 :] if run.ahead else run.schedule[:0]
    return float(problems.objective(follow(problems, x, (1.0 / run.smoothness)[:, None], rest)).sum())


@pytest.mark.parametrize("objective", ["last", "next"])
@pytest.mark.parametrize("name", ALL)
def test_no_choice_of_steps_is_below_the_bound(name: str, objective: str) -> None:
    """All choices of one grid point per sector, at every layer; the constant steps are among them."""
    problems, run = trained(name, objective, steps=4)
    inverse = (1.0 / run.smoothness)[:, None]
    for t in (0, 2, 5):
        x, layer = run.passed.x[t], run.passed.problems[t]
        g = problems.gradient(x)
        reached = after(run, problems, run.passed.x[t + 1], t)
        assert reached <= run.values[t] <= reached * (1.0 + 1e-9)
        values = []
        for choice in itertools.product(run.net.grid, repeat=3):
            step = torch.stack(choice)[layer.entering.sectors] * inverse
            values.append(after(run, problems, problems.prox(x - step * g, step), t))
        assert run.lower[t] <= min(values) * (1.0 + 1e-14)
        if run.ahead or objective == "next":
            assert run.gaps[t] <= 2e-6 * run.values[t]
            assert reached <= min(values) * (1.0 + 2e-6)


@pytest.mark.parametrize("name", ALL)
def test_the_whole_is_not_worse_than_constants(name: str) -> None:
    problems, run = trained(name)
    inverse = (1.0 / run.smoothness)[:, None]
    constants = [course(problems, inverse, P.expand(6))[-1] for P in torch.linspace(0.0, 2.0, 201, dtype=torch.float64)]
    if name == "least squares":
        assert constants[0] * 1e-3 < run.constant <= min(constants)
        assert run.objectives[-1] < 0.97 * run.constant
    else:
        on_grid = [course(problems, inverse, P.expand(6))[-1] for P in run.net.grid]
        assert min(on_grid) * (1.0 - 1e-9) <= run.constant <= min(on_grid)
    assert run.not_worse and run.objectives[-1] <= run.scheduled
    np.testing.assert_allclose(run.net.solve(problems).objectives.sum(1), run.objectives, rtol=1e-9)


def test_a_schedule_is_stationary_and_below_the_constant() -> None:
    problems = ALL["least squares"]()
    inverse = (1.0 / problems.smoothness)[:, None]
    grid = torch.tensor([0.1, 1.9], dtype=torch.float64)
    schedule, constant = best_schedule(problems, inverse, grid, 5)
    best = course(problems, inverse, schedule)[-1]
    assert best < course(problems, inverse, torch.full((5,), constant).double())[-1]
    for t, move in itertools.product(range(5), (-0.01, 0.01)):
        other = schedule.clone()
        other[t] = (other[t] + move).clamp(0.1, 1.9)
        assert course(problems, inverse, other)[-1] >= best * (1.0 - 1e-12)


def test_one_constant_per_layer_is_the_schedule() -> None:
    """With one sector nothing is left to gain: the certified gap says so too."""
    problems = ALL["least squares"]()
    run = train_layers(problems, 4, sectors=1)
    np.testing.assert_allclose(run.objectives[-1], run.scheduled, rtol=1e-6)
    one = train_layers(problems, 1, sectors=1)
    assert one.not_worse and "<=" in str(one)


def test_a_layer_stays_where_little_can_be_won() -> None:
    _, run = trained("least squares", tolerance=0.1)
    gaps = torch.tensor(run.gaps) / torch.tensor(run.values)
    stayed = torch.isclose(run.net.steps, run.schedule[:, None], rtol=1e-12).all(1)
    assert bool(stayed.any()) and not bool(stayed.all())
    assert 1e-3 < float(gaps[stayed].max()) <= 0.1 and float(gaps[~stayed].max()) <= 1e-6
    assert run.not_worse and run.objectives[-1] < trained("least squares", tolerance=0.99)[1].objectives[-1]


def test_deterministic() -> None:
    first, second = trained("lasso")[1], trained("lasso")[1]
    assert torch.equal(first.net.weights, second.net.weights) and first.certificate == second.certificate


@pytest.mark.parametrize("name", ["least squares", "lasso"])
def test_an_interruption_keeps_finished_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def best_start(problem, fallback):
        calls.append(problem)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(problem, fallback)

    original = training._best_start
    _, whole = trained(name)
    monkeypatch.setattr(training, "_best_start", best_start)
    _, run = trained(name)
    assert run.status == TrainStatus.INTERRUPTED and run.trained == 3 and "3 trained" in str(run)
    assert torch.equal(run.net.weights[:3], whole.net.weights[:3])
    torch.testing.assert_close(run.net.steps[3:], run.schedule[3:, None].expand(3, 3))
    assert run.not_worse


def test_files(tmp_path: Path) -> None:
    problems, run = trained("lasso")
    run.save(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert record["format"] == "surefoot-layers/1" and record["sizes"]["trained"] == 6
    assert float.fromhex(record["conclusion"]["final"]) == run.objectives[-1]
    for name, digests in record["sha256"].items():
        arrays = read_safetensors(tmp_path / "run" / name)
        assert {key: digest(array) for key, array in arrays.items()} == digests
    assert set(record["sha256"]) == {"problem.safetensors", "layers.safetensors", "iterates.safetensors"}
    again = LayeredSteps.load(tmp_path / "run" / "layers.safetensors")
    assert torch.equal(again.solve(problems).solution, run.passed.x[-1])
    run.plot(tmp_path / "layers.png")
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")
    assert len(run.table().splitlines()) == 9 and repr(run) == repr(trained("lasso")[1])


def test_refusals() -> None:
    problems = ALL["lasso"]()
    for options, message in [
        ({"range": (0.0, 2.1)}, "beyond 2"),
        ({"range": (1.0, 1.0)}, "lo < hi"),
        ({"sectors": 0}, "sectors"),
        ({"sectors": 300}, "at most 256"),
        ({"steps": 1}, "steps"),
        ({"objective": "first"}, "objective"),
        ({"tolerance": -1.0}, "tolerance"),
    ]:
        with pytest.raises(ValueError, match=message):
            train_layers(problems, 2, **options)
    with pytest.raises(ValueError, match="rescale them"):
        train_layers(LeastSquares(1e60 * problems.M, problems.Y), 2)
    with pytest.raises(ValueError, match=r"array 'optimum' .* rescale them"):
        train_layers(LeastSquares(1e-44 * problems.M, problems.Y), 2)
    with pytest.raises(TypeError, match="two numbers"):
        train_layers(problems, 2, range=1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="float64"):
        train_layers(problems.to(dtype=torch.float32), 2)


@pytest.mark.parametrize(
    "problems",
    [
        LeastSquares(torch.ones(1, 2, 3).double(), torch.zeros(1, 2).double()),
        LeastSquares([[[2.0]]], [[3.0]]),
        LeastSquares(torch.eye(2).double().expand(2, 2, 2), 1e-145 * torch.arange(1.0, 5.0).reshape(2, 2).double()),
        LeastSquares(1e39 * torch.ones(1, 2, 3).double(), 1e-140 * torch.arange(1.0, 3.0).reshape(1, 2).double()),
        Lasso(torch.ones(1, 2, 3).double(), torch.zeros(1, 2).double(), 0.1),
        LeastSquares(torch.ones(2, 3, 1).double(), torch.arange(6.0).reshape(2, 3).double()),
        Lasso.random(2, 6, 9, lam=50.0),  # every threshold is beyond what it meets: nothing moves
        Lasso.random(2, 6, 9, lam=0.0),
        Logistic.random(2, 9, 3, lam=0.0, l2=0.5),
    ],
    ids=[
        "solved",
        "one number",
        "tiny",
        "huge and tiny",
        "solved with a penalty",
        "one column",
        "all thresholded",
        "no penalty",
        "ridge",
    ],
)
@pytest.mark.parametrize("objective", ["last", "next"])
def test_what_the_checker_says_at_the_edges(problems: Problems, objective: str, tmp_path: Path) -> None:
    run = train_layers(problems, 3, objective=objective)  # pyright: ignore[reportArgumentType]
    run.save(tmp_path / "run")
    assert check(tmp_path / "run").outcome == Outcome.ACCEPT
    assert all(low >= 0.0 and gap <= value for low, gap, value in zip(run.lower, run.gaps, run.values, strict=True))


def test_layers_tell_callbacks_and_are_stopped_by_them() -> None:
    class Stops(Callback):
        losses: tuple[float, ...] = ()

        def on_iteration(self, record: Record) -> bool:
            self.losses += (record["loss"],)
            return record["iteration"] == 1

        def on_end(self, run: LayersRun, last: Record) -> None:
            self.run, self.losses = run, (*self.losses, last["loss"])

    seen = Stops()
    problems = LeastSquares.random(3, 4, 5, seed=0)
    run = train_layers(problems, 4, callbacks=[seen])
    assert run is seen.run and run.status is TrainStatus.INTERRUPTED and run.trained == 2
    assert list(seen.losses) == pytest.approx([run.objectives[0], run.objectives[1], run.objectives[4]], rel=1e-12)
