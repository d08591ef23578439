"""The experiments on the differentiable inverse and SVD in settings far smaller than the quick ones, and their pieces."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot_experiments
from surefoot._inverse import coefficients
from surefoot._inverse.spectra import Spectra
from surefoot._learning.run import TrainStatus
from surefoot._orthogonal.learned_svd import LearnedSVD
from surefoot_experiments import inverse_figures as figures
from surefoot_experiments import inverse_tables as tables
from surefoot_experiments import svd_table
from surefoot_experiments.result import Experiment, Table

NAMES = ["inverse/fig1a", "inverse/fig1b", "inverse/fig1c", "inverse/table1", "inverse/table2", "svd/table3"]
FEW: dict[str, Any] = {"epochs": 5, "train": 2, "test": 3}


def finding(experiment: Experiment, start: str) -> Any:
    (found,) = [f for f in experiment.findings if f.claim.startswith(start)]
    return found


def test_names() -> None:
    assert [name for name in surefoot_experiments.names() if name.split("/")[0] in ("inverse", "svd")] == NAMES


@pytest.mark.parametrize(
    ("name", "run", "quick", "file"),
    [
        (
            "inverse/fig1a",
            partial(figures.sweep, "inverse/fig1a"),
            {**FEW, "size": 10, "points": [(2, 4), (2, 5), (3, 4), (3, 5)]},
            "fig1a-loss.png",
        ),
        (
            "inverse/fig1b",
            partial(figures.sweep, "inverse/fig1b"),
            {**FEW, "size": 10, "points": [(2, 4), (16, 4)]},
            "fig1b-loss.png",
        ),
        (
            "inverse/fig1c",
            partial(figures.sweep, "inverse/fig1c"),
            {**FEW, "size": 10, "points": [(5, 4), (5, 6)]},
            "fig1c-loss.png",
        ),
        (
            "inverse/table1",
            tables.table1,
            {"settings": ((4, 2), (4, 12)), "sizes": ((4, 6), (10, 15)), "counts": (3, 2)},
            "table1-times.png",
        ),
        ("inverse/table2", tables.table2, {**FEW, "conditions": (1, 3, 1000)}, "table2-condition.png"),
        (
            "svd/table3",
            svd_table.table3,
            {"depths": (1, 3), "iterations": 2, "train": 3, "test": 2, "batch": 2, "size": (4, 6)},
            "table3-depth.png",
        ),
    ],
)
def test_an_experiment_runs_and_reads_what_it_kept(
    name: str, run: Any, quick: dict[str, Any], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = dataclasses.replace(surefoot_experiments.EXPERIMENTS[name], run=run, quick=quick)
    monkeypatch.setitem(surefoot_experiments.EXPERIMENTS, name, entry)
    first = surefoot_experiments.reproduce(name, directory=tmp_path)
    assert (tmp_path / file).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert [plot.file for plot in first.figures] == [file]
    record = json.loads(json.dumps(first.to_dict(), allow_nan=False))
    assert record["name"] == name
    assert all(f["why"] and f["claim"] and f["measured"] for f in record["findings"])
    if not entry.cache:
        return
    kept = {p: p.read_bytes() for p in (tmp_path / surefoot_experiments.RUNS).rglob("*") if p.is_file()}
    assert kept
    second = surefoot_experiments.reproduce(name, directory=tmp_path)
    assert second.tables[0] == first.tables[0]
    assert {p: p.read_bytes() for p in (tmp_path / surefoot_experiments.RUNS).rglob("*") if p.is_file()} == kept


# -- figure 1 --------------------------------------------


def test_the_test_loss_is_that_of_the_matrices() -> None:
    """The spectral form against the iteration itself."""
    A = figures.gaussian_matrices("variance", 3, 8, seed=1, part=0)
    C = coefficients.chebyshev(2, 4, 1e-2, 1.0)
    c0 = A.square().sum((-2, -1))
    X = A.mT / c0[:, None, None]
    for row in C:
        E = torch.eye(8, dtype=A.dtype) - A @ X
        X = X @ sum(c * torch.linalg.matrix_power(E, power) for power, c in enumerate(row))
    expected = float((A @ X @ A - A).square().sum((-2, -1)).mean())
    assert 10.0 ** figures.logarithm(Spectra.of(A, "frobenius"), C) == pytest.approx(expected, rel=1e-9)


def test_the_readings_differ_by_their_scale() -> None:
    one, other = (figures.gaussian_matrices(reading, 2, 16, seed=0, part=0) for reading in figures.READINGS)
    torch.testing.assert_close(other, 2.0 * one)
    assert float(one.std()) == pytest.approx(0.25, rel=0.1)


def test_variance_and_the_frobenius_norm_explain_the_numbers_of_the_paper() -> None:
    table = figures._by_reading(20, 100, seed=3)
    found = figures._explained(table)
    assert found.agrees is True
    others = dataclasses.replace(table, rows=table.rows[:3])
    assert figures._explained(others).agrees is False


def test_chebyshev_is_tuned_on_the_training_matrices() -> None:
    spectra = Spectra.of(figures.gaussian_matrices("variance", 4, 20, seed=0, part=0), figures.BOUND)
    best = figures.chebyshev(spectra, 3, 4)
    for lower in (1e-9, 1e-4, 1e-2, 0.3):
        assert spectra.test_loss(best) <= spectra.test_loss(coefficients.chebyshev(3, 4, lower, 1.0)) * 1.3


def test_among_intervals_that_leave_rounding_the_widest_is_taken() -> None:
    """Otherwise rounding chooses, and a smaller singular value than those of training is left where it was."""
    values = torch.logspace(-4.0, 0.0, 20, dtype=torch.float64)
    known, other = Spectra(values, values, 1), Spectra(values / 20.0, values / 20.0, 1)
    narrow = coefficients.chebyshev(7, 4, 1e-3, 1.0)
    assert known.test_loss(narrow) < 1e-28 and other.test_loss(narrow) > 1e-10
    assert other.test_loss(figures.chebyshev(known, 7, 4)) < 1e-20


def test_findings_of_figure_1_can_fail() -> None:
    def panel_a(row: tuple[float, float]) -> Any:
        return [
            (K, L, 0.0, value, 0.0, 0.0)
            for (K, L), value in zip([(2, 4), (2, 9), (7, 4), (7, 9)], (2.0, 0.3, *row), strict=True)
        ]

    printed, matters = figures._panel_a(panel_a((-1.1, -4.4)))
    assert (printed.agrees, matters.agrees) == (True, True)
    assert figures._panel_a(panel_a((-1.1, -5.4)))[0].agrees is False
    assert figures._panel_a(panel_a((5.0, -4.5)))[1].agrees is False
    worse = [(16, 4, -6.0, -5.0, -7.0, -6.0)]
    assert [f.agrees for f in figures._panel_b(worse)] == [False, False]
    assert figures._chebyshev(worse).agrees is True
    assert figures._chebyshev([(16, 4, -6.0, -9.0, -7.0, -6.0)]).agrees is False


# -- tables 1 and 2 --------------------------------------


@pytest.mark.parametrize(
    "method", [tables._iteration(14, 4), tables._cholesky, tables._qr], ids=["d-minv", "chol", "qr"]
)
def test_the_methods_of_table_1_invert(method: Any) -> None:
    A = torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(method(A), torch.linalg.pinv(A), rtol=1e-3, atol=1e-4)
    assert tables._residual(A, method(A)) < 1e-5
    assert tables._residual(A, 0.0 * method(A)) == 1.0


def test_the_printed_iteration() -> None:
    """Lemma 1: the residual is raised to the power L by every layer."""
    A = torch.diag(torch.tensor([1.0, 0.5])).double()[None]
    first = 1.0 - 0.25 / 1.25
    X = tables._iteration(2, 3)(A)
    assert float(1.0 - 0.5 * X[0, 1, 1]) == pytest.approx(first**9, rel=1e-12)


def test_findings_of_table_1_can_fail() -> None:
    names = [*(f"D-Minv, L = {L}, K = {K}" for L, K in tables.SETTINGS), tables.PEER, tables.OURS, "Cholesky of AAᵀ"]
    fast = {name: [0.01 if name.startswith("D-Minv") else 1.0] for name in names}
    slow = {name: [2.0 if name.startswith("D-Minv") else 1.0] for name in names}
    zero = {name: [0.0] for name in names}
    for seconds, expected in ((fast, [True, True, None, False, None]), (slow, [False, False, None, True, None])):
        work = tables._work((1000, 1500), seconds)
        assert [f.agrees for f in tables._speed(("1000x1500",), seconds, zero, work)] == expected


def test_operations_of_the_methods() -> None:
    """In multiples of m³ at n = 1.5 m: a layer takes 2·2·1.5 for the products with A and X and 2 for each further power."""
    size = (1000, 1500)
    assert tables.operations("D-Minv, L = 4, K = 8", *size) == 8 * (6 + 2 * 2) * 1e9
    assert tables.operations("D-Minv, L = 12, K = 5", *size) == 5 * (6 + 2 * 10) * 1e9
    assert tables.operations(tables.PEER, *size) == (9 + 20 + 3) * 1e9
    assert tables.operations(tables.OURS, *size) is None


def test_short_calls_are_timed_more_often() -> None:
    calls: list[int] = []

    def method(A: torch.Tensor) -> torch.Tensor:
        calls.append(len(A))
        return A

    seconds, _ = tables._timed(method, torch.ones(3, 1, 1))
    assert calls == [1, 3, 3, 3, 3, 3]
    assert 0.0 < seconds < 1.0


def test_matrices_of_a_condition_number() -> None:
    A = tables._conditioned(50, 20, seed=0, part=0)
    values = torch.linalg.svdvals(A)
    assert 1.0 / 50.0 <= float(values.min()) < 0.03
    assert 0.99 < float(values.max()) <= 1.0
    assert torch.equal(tables._conditioned(1, 2, 0, 0), torch.eye(100, dtype=torch.float64).expand(2, 100, 100))


def test_large_condition_numbers_are_explained_by_the_frobenius_norm() -> None:
    found = tables.table2((50, 1000), epochs=1, train=1, test=20)
    assert finding(found, "D-Minv at large").agrees is True
    assert finding(found, "D-Minv at small").agrees is None


# -- table 3 ---------------------------------------------


def test_the_means_of_table_3() -> None:
    M = svd_table._draw("variance", 2, (4, 6), seed=0, part=0)
    net = svd_table._net((4, 6), 2, seed=0)
    (measured,) = svd_table._measured(net, M, (2,))
    with torch.no_grad():
        found = net(M)
    core = found.U.mT @ M @ found.Vh.mT
    off = core - torch.diag_embed(core.diagonal(dim1=-2, dim2=-1))
    sigma = torch.linalg.svdvals(M)
    loss = 0.5 * off.square().sum((-2, -1)) - core.diagonal(dim1=-2, dim2=-1).sum(-1) + sigma.sum(-1)
    assert measured["loss"] == pytest.approx(float(loss.mean()), rel=1e-10)
    assert measured["mse"] == pytest.approx(float((found.S - sigma).square().mean()), rel=1e-10)


def test_gradients_at_ties() -> None:
    name, peer, layers, result = svd_table._ties("identity", torch.eye(3), seed=0)
    assert (name, peer) == ("identity", svd_table.NOT_FINITE)
    assert float(layers) > 0.1
    assert float(result) < 1e-9


def test_variance_explains_table_3() -> None:
    """K_svd = 10 and 20 on the paper's size, without training."""
    found = {
        reading: svd_table._collected(
            svd_table._measured(svd_table._net((50, 100), 10, 0), svd_table._draw(reading, 3, (50, 100), 0, 1), (10,))
        )
        for reading in svd_table.READINGS
    }
    printed = svd_table._printed("before", "mse", 10)
    assert printed is not None
    assert found["variance"]["mse"][0] == pytest.approx(printed, rel=0.2)
    assert found["standard deviation"]["mse"][0] < 0.2 * printed


def test_an_interrupted_training_is_not_kept_as_a_finished_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = LearnedSVD.fit

    def cut_off(net: LearnedSVD, matrices: torch.Tensor, **settings: Any) -> Any:
        return dataclasses.replace(fit(net, matrices, **settings), status=TrainStatus.INTERRUPTED)

    monkeypatch.setattr(LearnedSVD, "fit", cut_off)
    few: dict[str, Any] = {"depths": (1,), "iterations": 2, "train": 3, "test": 2, "batch": 2, "size": (4, 6)}
    with pytest.raises(KeyboardInterrupt):
        svd_table.table3(**few, cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_findings_of_table_3_can_fail() -> None:
    depths, before = svd_table.DEPTHS, {k: list(v) for k, v in svd_table.PRINTED["before"].items()}
    single = Table("", ("steps", "least loss", "least MSE"), (("one", 1.0, 0.1), ("each", 1.0, 0.1)))
    training = [dict.fromkeys(svd_table.COURSE, 1.0)] * len(depths)
    for factor, expected in ((1.0, [True, True, True, True]), (1.5, [True, False, False, True]), (60.0, [False] * 4)):
        after = {k: [factor * value for value in v] for k, v in svd_table.PRINTED["after"].items()}
        found = svd_table._after_training(depths, before, after, training, single, 200)
        assert [f.agrees for f in found] == expected
    found = svd_table._after_training(depths[:3], before, after, training[:3], single, 200)
    assert [f.agrees for f in found] == [False, False, False, None]
    found = svd_table._after_training(depths, before, after, training, single, 199)
    assert [f.agrees for f in found] == [None] * 4
    inner = Table("", svd_table.INEXACT_COLUMNS, (("exact", 1.0, 0.0), ("K = 6, L = 4", 1.05, 0.0)))
    assert svd_table._robust(inner).agrees is True
    assert svd_table._robust(dataclasses.replace(inner, rows=(*inner.rows, ("K = 1, L = 4", 2.0, 0.5)))).agrees is False


# -- the page and the program ----------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()


def on_the_page(name: str) -> list[list[str]]:
    """The cells of all tables between the command of an experiment and the next heading."""
    (text,) = re.findall(
        rf"^surefoot reproduce {name} (?:--full )?--out DIR$(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL
    )
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def number(cell: str) -> float | None:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def rows_below(cells: list[list[str]], columns: tuple[str, ...]) -> list[list[str]]:
    """Those of the table with these columns."""
    begin = cells.index(list(columns)) + 2
    rules = [k for k, row in enumerate(cells) if k >= begin and row[0] == "---"]
    return cells[begin : rules[0] - 1 if rules else len(cells)]


def test_the_page_decides_table_3_by_its_numbers() -> None:
    cells = on_the_page("svd/table3")
    by_depth = rows_below(
        cells, svd_table._by_depth((), {k: {"loss": [], "mse": []} for k in ("before", "after")}).columns
    )
    values = [[float(number(cell) or 0.0) for cell in row] for row in by_depth]
    depths = tuple(int(row[0]) for row in values)
    assert depths == svd_table.DEPTHS
    before, after = ({"loss": [row[k] for row in values], "mse": [row[k + 2] for row in values]} for k in (1, 5))
    courses = rows_below(cells, ("K_svd", *svd_table.COURSE))
    training = [dict(zip(svd_table.COURSE, map(float, row[1:]), strict=True)) for row in courses]
    least = rows_below(cells, ("steps", "least loss", "least MSE"))
    single = Table("", ("", "", ""), tuple((row[0], float(row[1]), float(row[2])) for row in least))
    told = {row[0]: row[2] for row in cells if len(row) == 4}
    for finding in svd_table._after_training(depths, before, after, training, single, svd_table.ITERATIONS):
        assert told[finding.claim] == {True: "agrees", False: "**differs**", None: "–"}[finding.agrees]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inverse/fig1a", "inverse/fig1b", "inverse/fig1c", "inverse/table2"])
def test_the_program_prints_the_numbers_of_the_page(name: str) -> None:
    """Decades, to a twentieth of one, or rounding in both."""
    found = surefoot_experiments.reproduce(name)
    cells = on_the_page(name)
    first = found.tables[0]
    for row, told in zip(first.rows, rows_below(cells, first.columns), strict=True):
        for value, cell in zip(row, told, strict=True):
            quoted = number(cell)
            assert quoted is not None and isinstance(value, int | float)
            assert abs(value - quoted) < 0.05 or min(abs(value), abs(quoted)) > 28.0
    told = {row[0]: row[2] for row in cells if len(row) == 4}
    for finding in found.findings:
        assert told[finding.claim] == {True: "agrees", False: "**differs**", None: "–"}[finding.agrees]
