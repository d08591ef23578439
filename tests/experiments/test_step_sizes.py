"""The experiments on learned step sizes in settings far smaller than the quick ones, and the pieces they are made of."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments_page import tables

import surefoot_experiments
from surefoot._lasso.learned_solver import LassoSolution, LassoSolver
from surefoot._problems import Lasso
from surefoot._step_sizes.compare import compare
from surefoot._step_sizes.smoothness import smoothness_of
from surefoot._step_sizes.training_loss import training_loss
from surefoot_experiments import step_sizes_ablation as ablation
from surefoot_experiments import step_sizes_lasso as lasso
from surefoot_experiments import step_sizes_lista as lista
from surefoot_experiments import step_sizes_runs as runs
from surefoot_experiments import step_sizes_training as training
from surefoot_experiments import step_sizes_unrolled as unrolled
from surefoot_experiments.result import Experiment
from surefoot_experiments.step_sizes_runs import Setting, Size
from surefoot_experiments.step_sizes_training_plots import draw_training
from surefoot_experiments.step_sizes_training_runs import CONDITIONS, shortfalls

TINY = Size(6, 4, 8, 3)
TALL = Size(4, 6, 8, 3)
NAMES = [f"step-sizes/fig{number}" for number in range(2, 10)]


def quiet(text: str) -> None:
    pass


def finding(experiment: Experiment, start: str) -> Any:
    (found,) = [f for f in experiment.findings if f.claim.startswith(start)]
    return found


# -- the registry ----------------------------------------


def test_names() -> None:
    found = [name for name in surefoot_experiments.names() if name.startswith("step-sizes/")]
    assert found == [
        *NAMES,
        *(f"step-sizes/{part}" for part in ("table1", "fig10", "fig11", "ranges", "lista", "lasso")),
    ]


@pytest.mark.parametrize(
    ("name", "run", "quick", "files"),
    [
        (
            "fig2",
            lista.figure2,
            {"rows": 8, "columns": 12, "layers": 4, "epochs": 3, "batch": 4},
            "fig2-violations.png",
        ),
        ("fig6", partial(training.training, "step-sizes/fig6", TINY), {"epochs": 6, "sets": 1}, "fig6-training.png"),
        (
            "table1",
            partial(training.table1, (TINY, TALL)),
            {"epochs": {6: 3, 4: 3}, "sets": 1},
            "table1-methods.png",
        ),
        ("fig10", partial(ablation.expansions, size=TINY), {"epochs": 4, "sets": 1}, "fig10-improvement.png"),
        ("fig11", partial(ablation.rates, sizes=(TINY,)), {"epochs": {6: 4}, "sets": 1}, "fig11-6-improvement.png"),
        ("ranges", partial(ablation.ranges, size=TINY), {"epochs": 4, "sets": 1}, "ranges-improvement.png"),
        (
            "lista",
            unrolled.unrolled,
            {"rows": 8, "columns": 12, "layers": 3, "epochs": 3, "batch": 4, "pool": 9},
            "lista-gaps.png",
        ),
        (
            "lasso",
            lasso.lasso,
            {"count": 2, "rows": 20, "columns": 40, "methods": ("FISTA", "restarted FISTA")},
            "lasso-products.png",
        ),
    ],
)
def test_an_experiment_runs_and_reads_what_it_kept(
    name: str, run: Any, quick: dict[str, Any], files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "ITERATIONS", 10)
    name = f"step-sizes/{name}"
    entry = dataclasses.replace(surefoot_experiments.EXPERIMENTS[name], run=run, quick=quick)
    monkeypatch.setitem(surefoot_experiments.EXPERIMENTS, name, entry)
    first = surefoot_experiments.reproduce(name, directory=tmp_path)
    assert (tmp_path / files).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert [plot.file for plot in first.figures] == [files]
    record = json.loads(json.dumps(first.to_dict(), allow_nan=False))
    assert record["name"] == name
    assert all(f["why"] and f["claim"] and f["measured"] for f in record["findings"])
    kept = {p: p.read_bytes() for p in (tmp_path / surefoot_experiments.RUNS).rglob("*") if p.is_file()}
    assert kept
    second = surefoot_experiments.reproduce(name, directory=tmp_path)
    assert second.tables == first.tables
    assert second.findings == first.findings
    assert {p for p in (tmp_path / surefoot_experiments.RUNS).rglob("*") if p.is_file()} == set(kept)


@pytest.mark.parametrize("name", ["fig6", "fig10", "ranges"])
def test_rows_of_schedules_on_the_page(name: str) -> None:
    """On the training problems, which are those of size 32/20 and seed 0; the fresh ones are drawn alike."""
    (rows,) = [table for table in tables(f"step-sizes/{name}") if "training, at T" in table[0]]
    told = {row["method"]: row for row in rows}
    size = runs.SIZES[0]
    methods = ("FISTA", "silver", "OGM", "Chebyshev")
    found = compare(size.problems(0), runs.ITERATIONS, baselines=methods, smoothness=runs.SMOOTHNESS)
    for method in methods:
        measured, row = found[method].training, told[method]
        percent = [
            float(row[name].strip("% ").replace(",", "")) for name in ("training, at T", "training, mean t <= T")
        ]
        assert percent[0] == pytest.approx(100.0 * measured.improvement, abs=0.06), method
        assert percent[1] == pytest.approx(100.0 * measured.mean_improvement, abs=0.6), method


# -- training runs ---------------------------------------


def test_training_starts_as_gradient_descent() -> None:
    found, _ = runs.run(Setting(TINY), (0,), None, quiet)
    reference = runs.gradient_descent(TINY.problems(0))
    assert found.last.objectives == pytest.approx(reference, rel=1e-5)
    assert found.last.at_end == pytest.approx(0.0, abs=1e-5)
    assert found.last.worse == 0.0


def test_training_is_gradient_descent_on_the_weights() -> None:
    rate = 1e-4
    setting = Setting(TINY, expansion=10.0, rate=rate)
    found, net = runs.run(setting, (0, 2, 5), None, quiet)
    problems, by_hand = TINY.problems(0), setting.network()
    beta = smoothness_of(problems, runs.SMOOTHNESS)
    losses = []
    for _ in range(5):
        value, slopes = training_loss(by_hand, problems, runs.ITERATIONS, beta, "detached")
        losses.append(value)
        with torch.no_grad():
            for W, slope in zip(by_hand.weights, slopes, strict=True):
                W -= rate * slope
    assert found.losses[:5] == losses
    assert min(found.losses) == found.losses[-1]
    for mine, theirs in zip(net.matrices, by_hand.matrices, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=0.0)


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, marks = Setting(TINY, rate=1e-6), (0, 3, 7)
    whole, net = runs.run(setting, marks, None, quiet)
    runs.run(setting, marks[:2], tmp_path, quiet)
    asked: list[bool] = []
    true = runs.train

    def watched(*args: Any, **options: Any) -> Any:
        asked.append(options["resume"])
        return true(*args, **options)

    monkeypatch.setattr(runs, "train", watched)
    again, other = runs.run(setting, marks, tmp_path, quiet)
    assert asked == [True, True, True]
    assert again == whole
    for mine, theirs in zip(net.matrices, other.matrices, strict=True):
        assert torch.equal(mine, theirs)


def test_a_damaged_run_starts_again(tmp_path: Path) -> None:
    setting = Setting(TINY, rate=1e-6)
    whole, _ = runs.run(setting, (0, 3), tmp_path, quiet)
    for path in tmp_path.rglob("config.json"):
        path.write_text("{")
    again, _ = runs.run(setting, (0, 3), tmp_path, quiet)
    assert again == whole


def test_plots_show_the_network_of_each_epoch_and_the_best() -> None:
    trained, _ = runs.run(Setting(TALL, rate=1e-6), (0, 3), None, quiet)
    least = float(TALL.problems(0).optimal_value.sum())
    assert least > 0.0
    swinging = dataclasses.replace(trained, losses=[least + gap for gap in (4.0, 1.0, 3.0, 0.5)])
    figure = draw_training({"4/6": swinging}, 0)
    lines = {line.get_label(): [float(y) for y in line.get_ydata()] for line in figure.axes[0].get_lines()}  # pyright: ignore
    assert lines["network of the epoch"] == pytest.approx([4.0, 1.0, 3.0, 0.5])
    assert lines["best so far"] == pytest.approx([4.0, 1.0, 1.0, 0.5])
    course = [float(y) for y in figure.axes[2].get_lines()[0].get_ydata()]  # pyright: ignore
    reference = runs.gradient_descent(TALL.problems(0))[-1]
    assert course == pytest.approx([max(-100.0, 100.0 * (1.0 - gap / reference)) for gap in (4.0, 1.0, 3.0, 0.5)])


def test_marks_begin_with_none_and_end_with_all() -> None:
    found = runs.marks(1000)
    assert found[0] == 0
    assert found[-1] == 1000
    assert list(found) == sorted(set(found))
    assert runs.marks(1) == (0, 1)


def test_sizes_are_those_of_the_paper() -> None:
    assert [str(size) for size in runs.SIZES] == ["32/20", "64/50", "128/100", "256/200"]
    assert [size.hidden for size in runs.SIZES] == [1024, 2048, 4096, 8192]
    assert [size.count for size in runs.SIZES] == [32, 32, 32, 24]
    problems = runs.SIZES[0].problems(3)
    assert problems.M.shape == (32, 20, 32)
    torch.testing.assert_close(problems.M.norm(dim=1), torch.ones(32, 32, dtype=torch.float64))


def test_fresh_problems_are_others() -> None:
    sets = TINY.fresh(0, 2)
    matrices = [p.M for p in (TINY.problems(0), *sets)]
    assert not any(torch.equal(a, b) for i, a in enumerate(matrices) for b in matrices[:i])


# -- conditions of Theorem 4.7 ---------------------------


def test_conditions_fall_short_by_many_orders_and_more_for_larger_expansions() -> None:
    small = shortfalls(Setting(TINY, expansion=1.0))
    large = shortfalls(Setting(TINY, expansion=100.0))
    assert all(small[name] > 0.0 for name in CONDITIONS)
    assert large["13a"] > 1000.0 * small["13a"]
    assert all(math.isfinite(value) for value in large.values())


# -- LASSO -----------------------------------------------


def test_penalties_of_lasso_problems() -> None:
    p = lasso.problems("0.1 max|M'y|", 2, 10, 20, 0)
    largest = torch.einsum("pbd,pb->pd", p.M, p.Y).abs().amax(1)
    torch.testing.assert_close(p.lam, 0.1 * largest)
    assert lasso.problems("0.01", 2, 10, 20, 0).lam.tolist() == [0.01, 0.01]


@pytest.mark.parametrize("name", ["FISTA", lasso.OURS])
def test_products_are_counted_up_to_the_first_accurate_iterate(name: str) -> None:
    found = lasso._measure(name, "0.1", 2, 20, 40, 0)
    assert len(found.products) == 2
    assert found.gaps[0] > lasso.ACCURACY > found.gaps[-1]
    assert 0.0 < min(found.products) <= found.spent[-1]  # a mean over the problems
    assert (found.rejected is None) == (name == "FISTA")


def test_rejections_are_counted_until_every_problem_is_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends only where nothing more can be proved changes nothing, though it rejects far more."""
    found = lasso._measure(lasso.OURS, "0.1", 4, 20, 40, 0)
    solve = LassoSolver.solve
    shares: list[float] = []

    def longer(
        self: LassoSolver, problems: Lasso, iterations: int, start: Any = None, *, tolerance: Any = None
    ) -> LassoSolution:
        solution = solve(self, problems, iterations, start, tolerance=None if tolerance is None else 0.0)
        shares.append(1.0 - solution.accepted_share)
        return solution

    monkeypatch.setattr(LassoSolver, "solve", longer)
    assert lasso._measure(lasso.OURS, "0.1", 4, 20, 40, 0).rejected == found.rejected
    assert shares[0] > shares[1] == pytest.approx(found.rejected)


def test_a_method_that_is_too_slow_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasso, "FIRST", 2)
    monkeypatch.setattr(lasso, "LIMIT", 2)
    with pytest.raises(RuntimeError, match="FISTA does not reach"):
        lasso._measure("FISTA", "0.1", 2, 20, 40, 0)


# -- LISTA -----------------------------------------------


def test_lista_starts_with_false_positives_counted_by_layer() -> None:
    experiment = lista.figure2(rows=8, columns=12, layers=4, epochs=0, batch=8, progress=quiet)
    table = experiment.table("violated, by layer")
    assert len(table.rows) == 5 * 4
    for row in table.records():
        assert row["W_i'M_i = 1"] == (0.0 if row["network"] == "ALISTA" else 1.0)  # 1/β before training
        assert row["network"] == "ALISTA" or row["|W_i'M_j| small"] == 0.0
    assert finding(experiment, "The columns of the learned W").agrees is None
