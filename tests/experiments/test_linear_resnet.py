"""The linear ResNet experiments in settings far smaller than the quick ones, and the pieces they are made of."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch

import surefoot as sf
import surefoot_experiments
from surefoot_experiments import linear_resnet_certified as certified
from surefoot_experiments import linear_resnet_instances as instances
from surefoot_experiments import linear_resnet_sgd_local as sgd_local
from surefoot_experiments import linear_resnet_training as training
from surefoot_experiments import linear_resnet_training_runs as training_runs
from surefoot_experiments.draws import repeat_generator
from surefoot_experiments.linear_resnet_remarks import holds_at, radius, widths_table
from surefoot_experiments.linear_resnet_training_verdict import SIMILAR
from surefoot_experiments.result import Experiment

SMALL = {"d": 2, "samples": 60, "repeats": 2}
FIGURE_A = {**SMALL, "depth": 3, "limit": 1200, "tuning": 100, "factors": (0.25, 1.0, 4.0)}
FIGURE_C = {**SMALL, "limit": 300, "tuning": 60, "factors": (1.0, 2.0, 4.0)}
CERTIFIED = {**SMALL, "networks": (certified.Kind(60, 3), certified.Kind(8, 3, 40.0), certified.Kind(8, 3, "3.1"))}


@pytest.fixture(scope="module")
def figure_a() -> Experiment:
    return training.transformations("linear-resnet/fig1a", 8, **FIGURE_A)


@pytest.fixture(scope="module")
def figure_c() -> Experiment:
    return training.depths("linear-resnet/fig1c", 12, (2, 6), **FIGURE_C)


@pytest.fixture(scope="module")
def table() -> Experiment:
    return certified.certified(**CERTIFIED)


def small_loss(repeat: int = 0) -> sf.SquaredLoss:
    return instances.opposing_data(repeat_generator(0, repeat), d=3, samples=50)


def cells(experiment: Experiment) -> dict[tuple[str, str], dict[str, object]]:
    return {(str(r["network"]), str(r["step"])): r for r in experiment.table("runs").records()}


# -- the registry ----------------------------------------


def test_names_are_those_of_the_paper() -> None:
    found = [name for name in surefoot_experiments.names() if name.startswith("linear-resnet/")]
    assert found == [
        f"linear-resnet/{part}" for part in ("fig1a", "fig1b", "fig1c", "fig1d", "sgd", "sgd-local", "certified")
    ]


@pytest.mark.parametrize(
    ("name", "run", "files"),
    [
        (
            "linear-resnet/fig1a",
            partial(training.transformations, "linear-resnet/fig1a", 8),
            ["fig1a-transformations.png"],
        ),
        ("linear-resnet/fig1c", partial(training.depths, "linear-resnet/fig1c", 12, (2, 6)), ["fig1c-depths.png"]),
        ("linear-resnet/certified", certified.certified, []),
    ],
)
def test_reproduce_writes_figures_and_plain_values(
    name: str, run: partial[Experiment], files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"a": FIGURE_A, "c": FIGURE_C}.get(name[-1], {**CERTIFIED, "networks": CERTIFIED["networks"][1:]})
    entry = dataclasses.replace(surefoot_experiments.EXPERIMENTS[name], run=run, quick={**small, "repeats": 1})
    monkeypatch.setitem(surefoot_experiments.EXPERIMENTS, name, entry)
    lines: list[str] = []
    experiment = surefoot_experiments.reproduce(name, directory=tmp_path, progress=lines.append, seed=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == files
    assert all((tmp_path / file).read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for file in files)
    assert lines
    record = json.loads(json.dumps(experiment.to_dict(), allow_nan=False))
    assert record["name"] == name
    assert sorted(record["figures"]) == files
    assert record["settings"]["seed"] == 3
    assert all(f["why"] and f["claim"] and f["measured"] for f in record["findings"])


def test_the_seed_decides_the_numbers(figure_c: Experiment) -> None:
    again = training.depths("linear-resnet/fig1c", 12, (2, 6), **FIGURE_C)
    other = training.depths("linear-resnet/fig1c", 12, (2, 6), **FIGURE_C, seed=1)
    assert again.tables == figure_c.tables
    assert other.tables != figure_c.tables


# -- figure 1 ----------------------------------------


def test_identity_is_stuck_where_the_others_converge(figure_a: Experiment) -> None:
    found = cells(figure_a)
    assert set(found) == {
        (label, step)
        for label in (training_runs.IDENTITY, training_runs.MODIFIED, training_runs.GAUSSIAN)
        for step in (training_runs.THEOREM, training_runs.GRID)
    }
    for label in (training_runs.MODIFIED, training_runs.GAUSSIAN):
        theorem, grid = (found[label, step]["iterations"] for step in (training_runs.THEOREM, training_runs.GRID))
        assert 0.0 < float(grid or 0) <= float(theorem or math.inf) < math.inf
    assert found[training_runs.IDENTITY, training_runs.THEOREM]["iterations"] is None
    assert [f.agrees for f in figure_a.findings] == [True, None, True, True]


def test_identity_without_noise_or_in_an_odd_dimension_has_no_way_out(figure_a: Experiment) -> None:
    records = figure_a.table("identity with the unit step").records()
    assert [(r["d = k"], r["noise"]) for r in records] == [(2, 0.1), (2, 0.0), (1, 0.1)]
    even, silent, odd = (float(r["last relative gap"] or 0) for r in records)
    assert even <= instances.TARGET
    assert silent > 0.01
    assert odd > 0.01


def test_the_table_has_the_initial_loss_of_each_transformation(figure_a: Experiment) -> None:
    losses = {r["network"]: float(r["initial loss"] or 0) for r in figure_a.table("initial loss").records()}
    expected = []
    for repeat in range(2):
        loss = instances.opposing_data(repeat_generator(0, repeat), d=2, samples=60)
        expected.append(loss.value(torch.zeros(2, 2, dtype=torch.float64)))  # BA = 0
    assert losses[training_runs.MODIFIED] == pytest.approx(sum(expected) / 2)
    assert losses[training_runs.IDENTITY] > losses[training_runs.MODIFIED]  # it starts at the wrong sign


def test_depth_slows_standard_networks_only(figure_c: Experiment) -> None:
    found = cells(figure_c)
    for depth in (2, 6):
        ours, theirs = (found[f"{kind}, L = {depth}", training_runs.THEOREM] for kind in ("ResNet", "standard"))
        assert float(ours["iterations"] or math.inf) < float(theirs["iterations"] or math.inf)
    shallow, deep = (float(found[f"ResNet, L = {depth}", training_runs.THEOREM]["iterations"] or 0) for depth in (2, 6))
    assert max(shallow, deep) <= SIMILAR * min(shallow, deep)
    shallow, deep = (
        float(found[f"standard, L = {depth}", training_runs.THEOREM]["last relative gap"] or 0) for depth in (2, 6)
    )
    assert instances.TARGET < shallow < deep  # after the same number of iterations
    assert figure_c.findings[0].agrees is True
    assert figure_c.findings[1].agrees is True


def test_a_step_that_diverges_after_tuning_gives_way_to_the_next_smaller_one() -> None:
    """Tuned on one iteration, 16 looks best; it diverges later."""
    loss = small_loss()
    net = sf.nn.LinearResNet.gaussian(3, 3, 12, 2, seed=0)
    runs: training_runs.Runs = {}
    factors = [2.0**j for j in range(6)]
    training_runs._both_steps(runs, "net", net, loss, factors, 1, 40)
    found = runs["net", training_runs.GRID]
    assert found.gaps[0][-1] <= found.gaps[0][0]
    assert len(found.gaps[0]) > 2
    (factor,) = found.factors
    first = instances.best_of_grid(
        lambda c, most: instances.descent(net, loss, c * instances.unit_step(net, loss), most), factors, 1
    )
    assert factor <= first.factor


def test_escape_is_where_the_plateau_is_halved() -> None:
    flat = [1.0] * (training_runs.PLATEAU + 1)
    assert training_runs.escape([*flat, 0.6, 0.4, 0.1]) == training_runs.PLATEAU + 2
    assert training_runs.escape(flat) == math.inf
    assert training_runs.escape([1.0, 1e-7]) == math.inf


# -- the table ----------------------------------------


def test_certified_runs_keep_their_guarantee(table: Experiment) -> None:
    gaussian, local, paper = table.table("certified convergence").records()
    for record in (gaussian, local, paper):
        assert record["certified in"] == "2 of 2"
        assert record["audit violations"] == 0
        first, executed = float(record["first certified iteration"] or 0), float(record["executed"] or math.inf)
        assert first < executed <= float(record["guaranteed"] or 0)
    assert float(gaussian["first certified iteration"] or 0) > 0.0
    assert float(gaussian["relative gap there"] or 1) < 1.0
    assert gaussian["guaranteed by 3.1"] is None
    assert paper["first certified iteration"] == 0.0
    assert float(paper["guaranteed"] or 0) < float(paper["guaranteed by 3.1"] or 0)
    assert table.findings[2].agrees is True


def test_the_smallest_alpha_of_theorem_3_1_is_where_its_condition_turns() -> None:
    loss = small_loss()
    alpha = certified.smallest_alpha(loss)
    for factor, holds in ((1.0 + 1e-6, True), (1.0 - 1e-6, False)):
        net = sf.nn.LinearResNet.modified_identity(3, 3, 8, 2, alpha * factor)
        assert sf.certify(net, loss, "linear-resnet/gd").holds is holds


@pytest.mark.parametrize("threshold", [0, 1, 2, 3, 7, 20, 99, 100])
def test_the_first_certified_iteration_is_found(threshold: int) -> None:
    failing = sf.certify(sf.nn.LinearResNet.gaussian(3, 3, 8, 2, seed=0), small_loss(), certified.LOCAL)
    holding = sf.certify(
        sf.nn.LinearResNet.modified_identity(3, 3, 8, 2, "sufficient", loss=small_loss()), small_loss(), certified.LOCAL
    )
    assert holding.holds
    assert not failing.holds
    asked: list[int] = []

    def at(iteration: int) -> sf.Certificate:
        asked.append(iteration)
        return holding if iteration >= threshold else failing

    found = certified.first_certified(at, 99)
    assert found == ((threshold, holding) if threshold < 100 else None)
    assert len(asked) == len(set(asked))
    assert max(asked) <= 99


# -- the pieces ----------------------------------------


@pytest.mark.parametrize("network", [sf.nn.LinearResNet, sf.nn.LinearNet])
def test_descent_is_gradient_descent_on_all_rows(
    network: type[sf.nn.LinearResNet] | type[sf.nn.LinearNet],
) -> None:
    g = repeat_generator(0, 0)
    X, E = (torch.randn(50, 3, dtype=torch.float64, generator=g) for _ in range(2))
    Y = 0.1 * E - X
    loss = small_loss()
    net = network.gaussian(3, 3, 7, 4, seed=2)
    eta = instances.theorem_step(net, loss)
    gaps = instances.descent(net, loss, eta, 12)
    expected = []
    for _ in range(13):
        value = 0.5 * (net(X) - Y).square().sum()
        expected.append(float(value.detach()) - loss.optimal_value)
        (gradient,) = torch.autograd.grad(value, net.W)
        with torch.no_grad():
            net.W.sub_(eta * gradient)
    assert len(gaps) == 13
    assert gaps == pytest.approx(expected, rel=1e-9)
    assert gaps[-1] < 0.9 * gaps[0]


def test_descent_leaves_the_network_as_it_was_and_ends_on_divergence() -> None:
    loss = small_loss()
    net = sf.nn.LinearNet.gaussian(3, 3, 7, 4, seed=2)
    before = net.W.detach().clone()
    gaps = instances.descent(net, loss, 1e3 * instances.unit_step(net, loss), 50)
    assert torch.equal(net.W.detach(), before)
    assert len(gaps) < 50
    assert not gaps[-1] < instances.DIVERGED * gaps[0]


def test_the_theorems_step_is_that_of_the_certificate() -> None:
    loss = small_loss()
    net = sf.nn.LinearResNet.gaussian(3, 3, 8, 4, seed=2)
    step = sf.certify(net, loss, "linear-resnet/gd").quantities["initial_step"]
    assert instances.theorem_step(net, loss) == pytest.approx(step, rel=1e-6)


@pytest.mark.parametrize("modified", [True, False])
def test_the_unit_step_is_one_over_the_curvature_at_zero_weights(modified: bool) -> None:
    """The curvature without the residual's part is the squared norm of the Jacobian; ‖AX‖ = ‖A‖‖X‖ for A = [I; 0]."""
    loss = small_loss()
    build = sf.nn.LinearResNet
    net = build.modified_identity(3, 3, 6, 2, 1.7) if modified else build.gaussian(3, 3, 6, 2, seed=2)
    X = loss.image(torch.eye(3, dtype=torch.float64))

    def outputs(W: torch.Tensor) -> torch.Tensor:
        P = [torch.eye(6, dtype=torch.float64) + layer for layer in W]
        return X @ (net.B @ P[1] @ P[0] @ net.A).T

    J = torch.autograd.functional.jacobian(outputs, net.W.detach())
    curvature = float(torch.linalg.matrix_norm(J.reshape(X.numel(), -1), 2)) ** 2
    step = instances.unit_step(net, loss)
    assert step * curvature == pytest.approx(1.0, rel=1e-9) if modified else 0.5 < step * curvature <= 1.0


def test_the_best_of_a_grid_is_the_one_with_the_fewest_iterations() -> None:
    counts = {0.25: 40, 0.5: 30, 1.0: 20, 2.0: 9, 4.0: 12, 8.0: None}
    limits: list[int] = []

    def run(factor: float, limit: int) -> list[float]:
        limits.append(limit)
        count = counts[factor]
        if count is None:
            return [1.0, math.nan]
        return [1.0] * count + [1e-7] if count <= limit else [1.0] * (limit + 1)

    best = instances.best_of_grid(run, list(counts), 100)
    assert best.factor == 2.0
    assert len(best.gaps) == 10
    assert limits[0] == 100
    assert limits[-1] == 9  # no run goes on where it is behind


def test_without_a_run_that_arrives_the_smallest_gap_is_best() -> None:
    lasts = {0.5: 0.3, 1.0: 0.2, 2.0: 0.4, 4.0: math.inf}
    best = instances.best_of_grid(lambda c, limit: [1.0, lasts[c]], list(lasts), 1)
    assert best.factor == 1.0


def test_sgd_theorem_is_kept() -> None:
    found = surefoot_experiments.reproduce("linear-resnet/sgd")
    assert found.findings[0].agrees and found.findings[1].agrees is None
    assert found.table("Theorem 3.8 against runs").column("bound kept by") == [32]
    assert all(found.table("theorems").column("hypotheses hold"))


def test_guarantees_of_batches_are_near_what_runs_take() -> None:
    found = sgd_local.sgd_local((50.0, 400.0), (), repeats=2)
    assert [finding.agrees for finding in found.findings] == [True] * 4
    by_alpha, _, equal = found.tables
    assert by_alpha.column("theorem") == ["S", "S'"] and equal.column("theorem") == ["S"]
    assert [most for most, said in zip((75, 50), by_alpha.column("guaranteed"), strict=True) if said > most] == []
    assert by_alpha.column("bound kept") == ["2 of 2"] * 2 and by_alpha.column("Theorem 3.8 holds")[0] is False


def test_remark_3_2_is_the_condition_that_certificates_evaluate() -> None:
    assert holds_at(0.99 * radius(), d=3, depth=2) and not holds_at(1.01 * radius(), d=3, depth=2)


def test_widths_of_remark_3_5_by_hand(table: Experiment) -> None:
    row = widths_table([2.0], [5], 3).records()[0]
    assert list(row.values()) == [5, 2.0, 36.0, 18.0, 363.0, 363.0 / 36.0]
    assert len(table.tables[1].rows) == 1 and table.findings[-2].agrees and table.findings[-1].agrees
