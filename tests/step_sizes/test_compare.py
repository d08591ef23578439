"""Comparisons: the measures are what they say, and the figures that are known come out."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from surefoot._core import charts
from surefoot._lasso.learned_solver import LassoSolver
from surefoot._lasso.lista import LISTA
from surefoot._step_sizes.baselines import Trace, names, trace
from surefoot._step_sizes.compare import LOWEST, WIDTH, Comparison, compare, improvement, learned_trace, resolution
from surefoot._step_sizes.network import StepSizeNet
from surefoot._step_sizes.rates import proved_bound
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems

F64 = torch.float64


def small(seed: int = 0) -> LeastSquares:
    return LeastSquares.random(4, 5, 8, seed=seed)


def constant_step(low: float, high: float) -> StepSizeNet:
    """P = (low + high)/2."""
    return StepSizeNet.orthogonal((2, 2, 4), range=(low, high))


@functools.cache
def with_fresh() -> Comparison:
    return compare(small(), 12, constant_step(0.5, 1.5), fresh=lambda k: small(10 + k), sets=3)


def test_a_net_of_constant_steps_is_gradient_descent() -> None:
    """P = 1 divided by the common β is the reference, divided by β_p its sharper form."""
    problems, net = small(), constant_step(0.5, 1.5)
    common = compare(problems, 12, net, smoothness=problems.common_smoothness)["StepSizeNet"].training
    sharp = compare(problems, 12, net, smoothness=problems.smoothness)
    assert common.improvement == pytest.approx(0.0, abs=1e-12) and common.worse == 0.0
    found, expected = sharp["StepSizeNet"].training, sharp["GD 1/β_p"].training
    assert found.improvement == pytest.approx(expected.improvement, rel=1e-10)
    assert found.gap == pytest.approx(expected.gap, rel=1e-10)
    assert found.products == expected.products == 24.0


def test_measures_by_hand() -> None:
    comparison = with_fresh()
    batches = [small(), *(small(10 + k) for k in range(3))]
    for name in ("GD 1.5/β", "FISTA"):
        ratios, means, worse, gaps = [], [], [], []
        for problems in batches:
            gap = torch.stack([problems.gap(trace(name, problems, t).solution) for t in range(13)])
            reference = torch.stack([problems.gap(trace("GD 1/β", problems, t).solution) for t in range(13)])
            ratio = 1.0 - gap.sum(1) / reference.sum(1)
            ratios.append(float(ratio[-1]))
            means.append(float(ratio[1:].mean()))
            worse.append(float((gap[-1] > reference[-1]).double().mean()))
            gaps.append(float(gap[-1].mean()))
        row = comparison[name]
        assert row.fresh is not None
        for found, part in ((row.training, slice(0, 1)), (row.fresh, slice(1, None))):
            count = len(ratios[part])
            assert found.improvement == pytest.approx(sum(ratios[part]) / count, rel=1e-9)
            assert found.mean_improvement == pytest.approx(sum(means[part]) / count, rel=1e-9)
            assert found.worse == pytest.approx(sum(worse[part]) / count)
            assert found.gap == pytest.approx(sum(gaps[part]) / count, rel=1e-9)
            assert found.curves.shape == (count, 13)


def test_proved_bounds() -> None:
    comparison = with_fresh()
    problems = small()
    for row in comparison.rows:
        assert row.fresh is not None
        for part in (row.training, row.fresh):
            assert part.gap <= part.bound, row.method
    distance = problems.optimum().norm(dim=1)
    for name in ("GD 1/β", "silver", "Chebyshev"):
        bound = proved_bound(name, problems, 12, distance)
        assert bound is not None
        assert comparison[name].training.bound == pytest.approx(float((bound + resolution(problems)).mean()))
    # the range (.5, 1.5) has the rate of a step of .5/β_p
    kept = (1.0 - 0.5 * problems.strong_convexity / problems.smoothness) ** 24
    expected = float((problems.gap(problems.start()) * kept).mean())
    assert comparison["StepSizeNet"].training.bound == pytest.approx(expected, rel=1e-6)
    assert "proved" in comparison.table().splitlines()[1]


def test_what_is_not_proved_has_no_bound() -> None:
    problems = Lasso.random(2, 8, 12)
    rows = compare(problems, 5, {"ours": LassoSolver(), "range": constant_step(0.5, 1.5)}).rows
    without = [row.method for row in rows if math.isnan(row.training.bound)]
    assert without == [
        "restarted FISTA",
        "silver",
        "scikit-learn Lasso",
        *(["skglm"] * ("skglm" in names(problems))),
        "ours",
        "range",
    ]
    beyond = compare(small(), 5, constant_step(0.5, 2.5))["StepSizeNet"]
    assert math.isnan(beyond.training.bound)
    ours = [line for line in compare(problems, 5, LassoSolver()).table().splitlines() if "(learned)" in line]
    assert [" - " in line for line in ours] == [True]


def test_rows() -> None:
    comparison = with_fresh()
    assert [row.method for row in comparison.rows] == [*names(small()), "StepSizeNet"]
    assert comparison.reference == "GD 1/β" and [row.learned for row in comparison.rows].count(True) == 1
    assert comparison.rows[-1].learned
    assert comparison["GD 1/β"].training.improvement == 0.0 and comparison["GD 1/β"].training.worse == 0.0
    assert compare(small(), 3).rows[0].fresh is None
    with pytest.raises(KeyError, match="no method 'SGD'"):
        comparison["SGD"]


def test_share_worse_counts_problems_not_sums() -> None:
    """Two problems of one coordinate, β = 4 and 1: P/β = 1.9/4 is exact nowhere, worse than 1/4 for the first and better for the
    second, and better in the sum as the second starts from far away."""
    M = torch.tensor([[[2.0]], [[1.0]]], dtype=F64)
    problems = LeastSquares(M, torch.tensor([[1.0], [100.0]], dtype=F64))
    row = compare(problems, 4, constant_step(1.85, 1.95), smoothness="common")["StepSizeNet"].training
    assert row.worse == 0.5 and 0.0 < row.improvement < 1.0


def test_worse_by_rounding_is_not_worse() -> None:
    comparison = compare(small(), 1000, baselines=["CGLS", "LSQR", "strongly convex Nesterov"])
    finals = [row.training.curves[0, -1] for row in comparison.rows]
    assert len(set(finals)) > 1 and max(finals) < 1e-25
    # whichever is lower by chance
    assert [row.training.worse for row in comparison.rows] == [0.0] * 4


def test_improvement() -> None:
    gaps = torch.tensor([1.0, 0.5, 3.0, 0.0, 0.0], dtype=F64)
    found = improvement(gaps, torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0], dtype=F64))
    assert found.tolist() == [0.0, 0.5, -2.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("problems", "fresh", "net"),
    [
        (Lasso.random(3, 12, 20, seed=1), lambda k: Lasso.random(3, 12, 20, seed=50 + k), LassoSolver()),
        (Lasso.random(3, 12, 20, seed=1), lambda k: Lasso.random(3, 12, 20, seed=50 + k), constant_step(0.5, 1.5)),
        (Logistic.random(3, 20, 6), lambda k: Logistic.random(3, 20, 6, seed=50 + k), constant_step(0.5, 1.5)),
    ],
    ids=["learned-lasso", "steps-lasso", "steps-logistic"],
)
def test_proximal_problems(problems: Problems, fresh: object, net: object) -> None:
    comparison = compare(problems, 30, {"ours": net}, fresh=fresh, sets=2)  # pyright: ignore[reportArgumentType]
    assert comparison.reference == "ISTA 1/β"
    assert {row.method for row in comparison.rows} == {*names(problems), "ours"}
    for row in comparison.rows:
        assert row.fresh is not None
        # a larger certified step never loses
        assert row.method == "ISTA 1/β" or row.training.improvement > 0.0
    assert comparison["FISTA"].training.improvement > 0.5
    if isinstance(net, LassoSolver):
        ours = comparison["ours"].training
        assert 0.0 < ours.products < 60.0 and ours.improvement > comparison["FISTA"].training.improvement
        found = learned_trace(net, problems, 30)
        assert found.products[0] == 0.0 and len(found.products) == len(found.gaps) == 31


def test_lista_keeps_its_last_layer() -> None:
    M = Lasso.random(1, 8, 12).M[0]
    problems = Lasso.from_matrix(M, torch.randn(8, 5, dtype=F64, generator=torch.Generator().manual_seed(1)), lam=0.1)
    net = LISTA(M, 4, 0.1)
    found: Trace = learned_trace(net, problems, 7)
    torch.testing.assert_close(found.gaps[:5], trace("ISTA 1/β", problems, 4).gaps, rtol=1e-9, atol=1e-13)
    assert torch.equal(found.gaps[4], found.gaps[7]) and found.products.tolist() == [0, 2, 4, 6, 8, 8, 8, 8]
    assert compare(problems, 4, net, baselines=["FISTA"])["LISTA"].training.improvement == pytest.approx(0.0, abs=1e-9)


def test_left_out_is_said() -> None:
    M = torch.tensor([[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]], dtype=F64)
    comparison = compare(LeastSquares(M, torch.tensor([[1.0, 2.0]], dtype=F64)), 5)
    assert "strongly convex Nesterov" not in [row.method for row in comparison.rows]
    assert "deficient rank" in comparison.table().splitlines()[-1]
    assert max(map(len, comparison.table().splitlines())) <= WIDTH
    assert with_fresh().left_out == ()


def test_table() -> None:
    """Fresh problems first, then those of the training, then what the columns mean."""
    text, count = with_fresh().table(), len(with_fresh().rows)
    lines = text.splitlines()
    second = count + 3
    assert (lines[0], lines[second]) == ("3 fresh sets, T = 12", "training problems, T = 12")
    assert lines[1].split()[:2] == ["method", "products"] and lines[1].split() == lines[second + 1].split()
    assert lines[count + 2] == "" == lines[second + count + 2]
    row = with_fresh()["FISTA"]
    assert row.fresh is not None
    for measured, start in ((row.fresh, 0), (row.training, second)):
        assert lines[start + 2].startswith("GD 1/β ") and lines[start + 8].startswith("FISTA")
        assert f"{measured.gap:.2e}" in lines[start + 8]
        assert lines[start + count + 1].startswith("StepSizeNet (learned)")
    assert any(line.startswith("mean t<=T: the same, averaged") for line in lines[second + count + 3 :])
    assert max(map(len, lines)) <= WIDTH
    assert str(with_fresh()) == text


def test_a_table_says_how_many_times_worse() -> None:
    """At 1.98/β, which is far above 1/β here, and a factor beyond 1000."""
    drawn = compare(LeastSquares.random(32, 20, 32), 100, baselines=["GD 1.98/β"])
    ratio = 1.0 - drawn["GD 1.98/β"].training.improvement
    assert ratio > 2.0 and f"{ratio:.1f} x worse" in drawn.table()
    huge = dataclasses.replace(drawn["GD 1.98/β"].training, improvement=-1999.0, mean_improvement=-0.5)
    row = dataclasses.replace(drawn.rows[1], training=huge)
    line = dataclasses.replace(drawn, rows=(drawn.rows[0], row)).table().splitlines()[3]
    assert "2e+03 x worse" in line and "-50.0 %" in line


def test_gaps_of_a_table_are_means_and_one_set_is_one_set() -> None:
    comparison = compare(small(), 3, fresh=[small(1)], baselines=["FISTA"])
    lines = comparison.table().splitlines()
    assert lines[0] == "1 fresh set, T = 3"
    mean = float(small(1).gap(trace("FISTA", small(1), 3).solution).mean())
    assert f"{mean:.2e}" in lines[3]
    assert "fresh set" not in compare(small(), 3, baselines=["FISTA"]).table()


def test_plot(tmp_path: Path) -> None:
    path = tmp_path / "comparison.png"
    with_fresh().plot(path)
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000
    compare(small(), 3).plot(path)  # without fresh sets, over the old file
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plots_end_where_rounding_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A gap of 0 has no place on the axis, and one of 1e-30 of the first does."""
    drawn: list[Figure] = []
    monkeypatch.setattr(charts, "save", lambda figure, path: drawn.append(figure))
    compare(small(), 30, baselines=["CGLS"]).plot(tmp_path / "comparison.png")
    lowest = [float(np.min(line.get_ydata())) for line in drawn[0].axes[0].get_lines()]
    start = float(small().gap(small().start()).mean())
    assert 0.99 * LOWEST * start <= min(lowest) <= 1e-25 * start


def test_bad_arguments() -> None:
    net = constant_step(0.5, 1.5)
    with pytest.raises(ValueError, match="iterations"):
        compare(small(), 0)
    with pytest.raises(TypeError, match=r"net 'ours' is a float; pass a StepSizeNet"):
        compare(small(), 3, {"ours": 1.0})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="that of a baseline"):
        compare(small(), 3, {"FISTA": net})
    with pytest.raises(TypeError, match="fresh holds Lasso, problems are LeastSquares"):
        compare(small(), 3, fresh=[Lasso.random(2, 5, 8)])
    with pytest.raises(ValueError, match="baseline"):
        compare(small(), 3, baselines=["Adam"])
    with pytest.raises(TypeError, match="the solver is for"):
        compare(small(), 3, LassoSolver())
    with pytest.raises(TypeError, match=r"pass sf\.learned\.Lasso"):
        compare(small(), 3, LISTA(torch.eye(3, dtype=F64), 2))


KNOWN = {
    # rows, columns: improvements in percent over GD 1/β at T = 100, and how far the mean of four draws may be away
    (20, 32): {
        "GD 1.5/β": (74.0, 6.0),
        "GD 1.98/β": (92.0, 6.0),
        "GD 2/(β+β0)": (92.0, 8.0),
        "GD 1/β_p": (26.0, 16.0),
        "FISTA": (99.8, 0.3),
    },
    (50, 64): {
        "GD 1.5/β": (50.0, 4.0),
        "GD 1.98/β": (71.0, 4.0),
        "GD 2/(β+β0)": (68.0, 7.0),
        "GD 1/β_p": (18.0, 5.0),
        "FISTA": (99.3, 0.5),
    },
}


@pytest.mark.parametrize("size", list(KNOWN))
def test_known_improvements(size: tuple[int, int]) -> None:
    """32 Gaussian problems with Gaussian Y. One draw of 20x32 scatters by ten percent, as its sums consist of the few worst
    conditioned problems: the mean over four draws is compared."""
    rows, columns = size

    def problems(seed: int) -> LeastSquares:
        drawn = LeastSquares.random(32, rows, columns, kind="paper", seed=seed)
        Y = torch.randn(32, rows, dtype=F64, generator=torch.Generator().manual_seed(1000 + seed))
        return LeastSquares(drawn.M, Y)

    comparison = compare(problems(0), 100, fresh=problems, sets=4, baselines=[*KNOWN[size], "CGLS"])
    for name, (percent, tolerance) in KNOWN[size].items():
        fresh = comparison[name].fresh
        assert fresh is not None
        assert 100.0 * fresh.improvement == pytest.approx(percent, abs=tolerance), name
    assert comparison["CGLS"].training.gap < 1e-20


def test_long_steps_are_not_safe() -> None:
    """With Y = M x̂, largest where M is largest, 1.98/β and 2/(β+β0) can be far worse than 1/β; 1.5/β is not."""
    comparison = compare(
        LeastSquares.random(32, 20, 32), 100, baselines=["GD 1.5/β", "GD 1.98/β", "GD 2/(β+β0)", "GD 1/β_p"]
    )
    assert comparison["GD 1.98/β"].training.improvement < -1.0 and comparison["GD 1.98/β"].training.worse > 0.0
    assert comparison["GD 2/(β+β0)"].training.improvement < -1.0
    for name in ("GD 1.5/β", "GD 1/β_p"):
        assert comparison[name].training.improvement > 0.3 and comparison[name].training.worse == 0.0
    assert not math.isnan(comparison["GD 1.98/β"].training.mean_improvement)
