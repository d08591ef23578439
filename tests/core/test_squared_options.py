"""Ridge, tolerance of the rank, weights and intercept of the squared loss: against data that has them built in, against
scikit-learn, and in every way to give the rows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from draws import normal
from sklearn.linear_model import LinearRegression, Ridge
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.statistics import Block, Cut, merge, reduction, statistics_of, triangle
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

F64 = torch.float64
X, Y = normal(30, 4) + torch.tensor([0.0, 3.0, -2.0, 1.0], dtype=F64), normal(30, 2, seed=1) + 5.0
WEIGHTS = normal(30, seed=2).square()
WEIGHTS[[4, 5, 29]] = 0.0
DEPENDENT = torch.cat([X[:, :3], X[:, :1]], 1)
WIDE = normal(3, 4, seed=3)

OPTIONS = {
    "-".join(name for name, on in (("l2", l2), ("weights", weighted), ("intercept", intercept)) if on) or "plain": {
        "l2": 0.7 if l2 else 0.0,
        "sample_weight": WEIGHTS if weighted else None,
        "intercept": intercept,
    }
    for l2, weighted, intercept in itertools.product((False, True), repeat=3)
}
options = pytest.mark.parametrize("given", OPTIONS.values(), ids=list(OPTIONS))


def first(given: dict[str, Any], rows: int) -> dict[str, Any]:
    """The options for fewer rows."""
    weights = given["sample_weight"]
    return {**given, "sample_weight": None if weights is None else weights[:rows]}


def built_in(x: Tensor, y: Tensor, given: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Rows whose plain squared loss is the one with these options."""
    weights = torch.ones(len(x), dtype=F64) if given["sample_weight"] is None else given["sample_weight"]
    if given["intercept"]:
        x, y = (a - (weights[:, None] * a).sum(0) / weights.sum() for a in (x, y))
    x, y = (weights.sqrt()[:, None] * a for a in (x, y))
    n = x.shape[1]
    ridge = given["l2"] ** 0.5 * torch.eye(n, dtype=F64)
    return torch.cat([x, ridge]), torch.cat([y, torch.zeros(n, y.shape[1], dtype=F64)])


def objective(W: Tensor, x: Tensor, y: Tensor, given: dict[str, Any]) -> Tensor:
    """The loss as it is defined, at its best intercept."""
    weights = torch.ones(len(x), dtype=F64) if given["sample_weight"] is None else given["sample_weight"]
    residual = x @ W - y
    if given["intercept"]:
        residual = residual - (weights[:, None] * residual).sum(0) / weights.sum()
    return 0.5 * (weights[:, None] * residual**2).sum() + 0.5 * given["l2"] * (W**2).sum()


@options
@pytest.mark.parametrize("x", [X, DEPENDENT, WIDE], ids=["full rank", "dependent columns", "few rows"])
def test_the_loss_is_that_of_data_with_the_options_built_in(x: Tensor, given: dict[str, Any]) -> None:
    given = first(given, len(x))
    loss = sf.SquaredLoss(x, Y[: len(x)], **given)
    rows, targets = built_in(x, Y[: len(x)], given)
    singular = torch.linalg.svdvals(rows)
    positive = singular[singular > 1e-10 * singular[0]]
    assert loss.smoothness == pytest.approx(float(positive[0]) ** 2, rel=1e-12)
    assert loss.strong_convexity == pytest.approx(float(positive[-1]) ** 2, rel=1e-11)
    assert (loss.basis is None) == (len(positive) == 4)
    best = torch.linalg.pinv(rows, rcond=1e-10) @ targets
    torch.testing.assert_close(loss.optimum, best, rtol=1e-10, atol=1e-11)
    least = 0.5 * float(((rows @ best - targets) ** 2).sum())
    assert loss.optimal_value == pytest.approx(least, rel=1e-11, abs=1e-24)
    for seed, scale in ((10, 1.0), (11, 30.0)):
        W = (scale * normal(4, 2, seed=seed)).requires_grad_(True)
        value = objective(W, x, Y[: len(x)], given)
        (gradient,) = torch.autograd.grad(value, W)
        assert loss.value(W.detach()) == pytest.approx(value.item(), rel=1e-12)
        assert loss.gap(W.detach()) == pytest.approx(value.item() - least, rel=1e-11)
        torch.testing.assert_close(loss.gradient(W.detach()), gradient, rtol=1e-11, atol=1e-11 * scale)


@options
def test_minimiser_and_intercept_are_those_of_scikit_learn(given: dict[str, Any]) -> None:
    l2, intercept = given["l2"], given["intercept"]
    model = Ridge(alpha=l2, fit_intercept=intercept) if l2 else LinearRegression(fit_intercept=intercept)
    weights = None if given["sample_weight"] is None else given["sample_weight"].numpy()
    model.fit(X.numpy(), Y.numpy(), sample_weight=weights)
    loss = sf.SquaredLoss(X, Y, **given)
    assert np.allclose(loss.optimum.T, model.coef_, rtol=1e-11, atol=1e-12)
    assert np.allclose(loss.intercept(loss.optimum), model.intercept_, rtol=1e-11, atol=1e-12)
    predicted = normal(5, 4, seed=4) @ loss.optimum + loss.intercept(loss.optimum)
    assert np.allclose(predicted, model.predict(normal(5, 4, seed=4).numpy()), rtol=1e-11, atol=1e-12)


def test_the_intercept_of_any_map_is_its_best() -> None:
    loss = sf.SquaredLoss(X, Y, sample_weight=WEIGHTS, intercept=True)
    W = normal(4, 2, seed=5)
    residual = X @ W + loss.intercept(W) - Y
    assert float((WEIGHTS[:, None] * residual).sum(0).abs().max()) < 1e-11
    assert loss.value(W) == pytest.approx(0.5 * float((WEIGHTS[:, None] * residual**2).sum()), rel=1e-12)
    for other in (sf.SquaredLoss(X, Y), sf.SoftmaxRegression(X, torch.arange(30) % 2, 0.1)):
        assert not other.has_intercept
        assert torch.equal(other.intercept(W), torch.zeros(2, dtype=F64))


# -- ways to give the rows ---------------------------------------------------------------------------------------------


def blocks(size: int, given: dict[str, Any]) -> Iterator[Block]:
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        weights = given["sample_weight"]
        yield (X[part], Y[part]) if weights is None else (X[part], Y[part], weights[part])


def same(found: sf.SquaredLoss, expected: sf.SquaredLoss) -> None:
    torch.testing.assert_close(found.optimum, expected.optimum, rtol=1e-12, atol=1e-12)
    for name in ("smoothness", "strong_convexity", "optimal_value"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-11)
    W = normal(4, 2, seed=6)
    torch.testing.assert_close(found.intercept(W), expected.intercept(W), rtol=1e-12, atol=1e-12)
    assert (found.cut is None) == (expected.cut is None)
    if found.cut is not None and expected.cut is not None:
        assert found.cut.text == expected.cut.text
    assert found.statistics.rows == expected.statistics.rows


@options
def test_blocks_files_and_shares_give_the_same_loss(given: dict[str, Any], tmp_path: Path) -> None:
    expected = sf.SquaredLoss(X, Y, **given)
    how = {name: given[name] for name in ("l2", "intercept")}
    for size in (1, 4, 7, 30):
        same(sf.SquaredLoss.from_blocks(blocks(size, given), **how), expected)
        shares = [triangle([block], intercept=given["intercept"]) for block in blocks(size, given)]
        merged = statistics_of(merge(shares), reduction(given["l2"], None, given["intercept"]))
        same(sf.SquaredLoss.from_statistics(merged), expected)
    files = {"X": X, "Y": Y} | ({} if given["sample_weight"] is None else {"sample_weight": given["sample_weight"]})
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array.numpy())
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in files}
    same(sf.SquaredLoss(**mapped, **how), expected)


def test_options_that_change_nothing_give_the_very_same_numbers() -> None:
    plain, given = sf.SquaredLoss(X, Y), sf.SquaredLoss(X, Y, l2=0.0, rcond=1e-10, sample_weight=torch.ones(30))
    assert torch.equal(plain.statistics.design, given.statistics.design)
    assert torch.equal(plain.statistics.target, given.statistics.target)
    assert plain.optimal_value == given.optimal_value
    assert plain.cut is None and given.cut is None


def test_an_intercept_keeps_the_differences_of_large_numbers() -> None:
    """A column that is constant is dropped, however large; integers beside a large mean lose nothing."""
    spread = (4.0 * normal(30, 3, seed=7)).round()
    x = torch.cat([spread, torch.full((30, 1), 1e9, dtype=F64)], 1)
    large = x + torch.tensor([2.0**50, -(2.0**40), 7.0, 0.0], dtype=F64)
    small, loss = sf.SquaredLoss(x, Y, intercept=True), sf.SquaredLoss(large, Y, intercept=True)
    assert small.cut is not None and (small.cut.kept, small.cut.below) == (3, 0)
    assert torch.equal(loss.statistics.design, small.statistics.design)
    parts = [triangle([(large[rows], Y[rows])], intercept=True) for rows in (slice(0, 9), slice(9, 20), slice(20, 30))]
    merged = sf.SquaredLoss.from_statistics(statistics_of(merge(parts), reduction(0.0, None, True)))
    assert merged.cut is not None and merged.cut.kept == 3
    torch.testing.assert_close(merged.optimum, small.optimum, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("heavy", [0, 17])
def test_an_intercept_keeps_light_rows_beside_a_heavy_one(heavy: int) -> None:
    """The heavy row is the mean, up to a part of 1e-26: what it loses in rounding is not multiplied by its weight."""
    weights = torch.ones(30, dtype=F64)
    weights[heavy] = 1e28
    W = normal(4, 2, seed=9)
    expected = 0.5 * float((((X - X[heavy]) @ W - (Y - Y[heavy])) ** 2).sum())
    shares = [(X[rows], Y[rows], weights[rows]) for rows in (slice(0, 9), slice(9, 20), slice(20, 30))]
    merged = merge([triangle([share], intercept=True) for share in shares])
    for loss in (
        sf.SquaredLoss(X, Y, sample_weight=weights, intercept=True),
        sf.SquaredLoss.from_blocks(shares, intercept=True),
        sf.SquaredLoss.from_statistics(statistics_of(merged, reduction(0.0, None, True))),
    ):
        assert loss.value(W) == pytest.approx(expected, rel=1e-12)


# -- what was dropped --------------------------------------------------------------------------------------------------


def test_a_tolerance_drops_directions_and_says_what_that_does_to_the_gap() -> None:
    U, V = torch.linalg.qr(normal(30, 3, seed=8))[0], torch.linalg.qr(normal(3, 3, seed=9))[0]
    x = U @ torch.diag(torch.tensor([2.0, 1.0, 0.1], dtype=F64)) @ V.T
    loss, whole = sf.SquaredLoss(x, Y, rcond=0.1), sf.SquaredLoss(x, Y, rcond=0.01)
    cut = loss.cut
    assert whole.cut is None and cut is not None and loss.basis is not None
    assert (cut.kept, cut.below, cut.rcond) == (2, 1, 0.1)
    assert (cut.tolerance, cut.largest_dropped) == (pytest.approx(0.2), pytest.approx(0.1))
    assert loss.optimal_value - whole.optimal_value == pytest.approx(cut.optimal_loss, rel=1e-10)
    inside = loss.basis @ normal(2, 2, seed=10)
    assert whole.gap(inside) == pytest.approx(loss.gap(inside) + cut.optimal_loss, rel=1e-10)
    outside = V[:, 2:] @ normal(1, 2, seed=11)
    size = cut.largest_dropped * float(outside.norm()) + (2.0 * cut.optimal_loss) ** 0.5
    assert whole.gap(inside + outside) <= loss.gap(inside + outside) + 0.5 * size**2
    assert "rcond = 0.1" in cut.text and "1 of 3 directions of the data dropped" in cut.text


def test_what_was_dropped_or_added_is_named() -> None:
    loss = sf.SquaredLoss(DEPENDENT, Y, l2=0.7, sample_weight=WEIGHTS, intercept=True)
    cut = loss.cut
    assert cut is not None and loss.basis is None  # the ridge makes the rank full
    assert (cut.directions, cut.kept, cut.below) == (4, 4, 0)
    assert (cut.rows, cut.rows_dropped, cut.intercept, cut.l2) == (30, 3, True, 0.7)
    assert cut.text == (
        "3 of 30 rows dropped, whose weight is 0, which changes nothing; an intercept eliminated, by centring X and Y: the "
        "optimal value, and every gap, is with the best intercept; the penalty of l2 = 0.7 stored as rows: the optimal value "
        "contains it"
    )
    assert Cut.from_dict(cut.to_dict()) == cut


def test_a_cut_of_a_run_from_before_there_were_options_is_read() -> None:
    cut = Cut(5, 3, 1, 1e-15, 1e-16, 0.5, 0.25)
    older = {f.name: getattr(cut, f.name) for f in dataclasses.fields(cut)[:7]}
    assert Cut.from_dict(older) == cut
    del older["kept"]
    with pytest.raises(KeyError):
        Cut.from_dict(older)


# -- certificates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["two-layer", "linear-resnet"])
def test_runs_with_all_options_are_certified_and_accepted(system: str, tmp_path: Path) -> None:
    loss = sf.SquaredLoss(DEPENDENT, Y, l2=0.7, rcond=1e-12, sample_weight=WEIGHTS, intercept=True)
    if system == "two-layer":
        net: Any = sf.nn.TwoLayerLinear.gaussian(*loss.shape, 20, seed=0)
    else:
        net = sf.nn.LinearResNet.modified_identity(*loss.shape, 6, 3, "sufficient", loss=loss)
    certificate = sf.certify(net, loss)
    assert certificate.holds and certificate.cut == loss.cut
    assert "3 of 30 rows dropped" in str(certificate)
    run = sf.descend(net, loss, certificate=certificate, tolerance=1e-6, directory=tmp_path / "run", progress=False)
    assert run.status is sf.RunStatus.CONVERGED and run.audit().holds
    assert sf.Run.load(tmp_path / "run").certificate.cut == loss.cut
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    model = Ridge(alpha=0.7).fit(DEPENDENT.numpy(), Y.numpy(), sample_weight=WEIGHTS.numpy())
    W = net.end_to_end().detach()
    distance = (2.0 * run.gaps[-1] / loss.strong_convexity) ** 0.5
    assert float((W - torch.from_numpy(model.coef_.T)).norm()) <= distance * (1.0 + 1e-6)
    final = float(objective(W, DEPENDENT, Y, OPTIONS["l2-weights-intercept"]))
    assert final - loss.optimal_value == pytest.approx(run.gaps[-1], rel=1e-4)


def test_a_ridge_makes_the_count_of_nearly_collinear_data_usable() -> None:
    """Condition number 3e11, as on energy data of buildings."""
    x = normal(200, 4, seed=12)
    x[:, 3] = x[:, 0] + 4e-6 * x[:, 3]
    net = sf.nn.TwoLayerLinear.gaussian(4, 2, 100, std=0.1, seed=0)
    loss = sf.SquaredLoss(x, Y[0] + normal(200, 2, seed=13))
    plain = sf.certify(net, loss)
    assert loss.smoothness / loss.strong_convexity > 1e11
    assert plain.holds and plain.practical is False
    assert "columns 0, 3 of X are nearly collinear" in plain.advice and "add a ridge (l2=" in plain.advice
    ridge = sf.SquaredLoss(x, Y[0] + normal(200, 2, seed=13), l2=1.0)
    assert ridge.smoothness / ridge.strong_convexity == pytest.approx(loss.smoothness + 1.0, rel=1e-3)
    certificate = sf.certify(net, ridge)
    assert certificate.practical and certificate.iterations_to(1e-6) < 1e-9 * plain.iterations_to(1e-6)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"l2": -1.0}, ValueError, "l2 is -1.0; it must be a finite number of at least 0"),
        ({"l2": float("nan")}, ValueError, "l2 is nan"),
        ({"l2": float("inf")}, ValueError, "l2 is inf"),
        ({"l2": True}, TypeError, "l2 is True"),
        ({"l2": "1"}, TypeError, "l2 is '1'"),
        ({"rcond": 1.0}, ValueError, "rcond is 1.0; it must be a number between 0 and 1, or None"),
        ({"rcond": 0.0}, ValueError, "rcond is 0.0"),
        ({"rcond": -0.1}, ValueError, "rcond is -0.1"),
        ({"rcond": False}, TypeError, "rcond is False"),
        ({"rcond": 1e-17}, ValueError, r"rcond is 1e-17; it must be at least n eps = 8.88e-16"),
        ({"intercept": 1}, TypeError, r"intercept is 1 \(int\); pass True or False"),
        ({"intercept": None}, TypeError, "intercept is None"),
        ({"sample_weight": WEIGHTS[:-1]}, ValueError, r"sample_weight has shape \(29,\); it must be \(30,\)"),
        ({"sample_weight": torch.cat([WEIGHTS, WEIGHTS])}, ValueError, r"sample_weight has shape \(60,\)"),
        ({"sample_weight": WEIGHTS[:, None]}, ValueError, r"sample_weight has shape \(30, 1\)"),
        ({"sample_weight": 2.0}, ValueError, r"sample_weight has shape \(\)"),
        ({"sample_weight": -WEIGHTS}, ValueError, r"sample_weight is -\S+ at index 0; weights must be at least 0"),
        ({"sample_weight": WEIGHTS.log()}, ValueError, r"sample_weight has -inf at index \(4,\)"),
        ({"sample_weight": WEIGHTS / WEIGHTS}, ValueError, r"sample_weight has nan at index \(4,\) \(3 such entries\)"),
        ({"sample_weight": 0.0 * WEIGHTS}, ValueError, "sample_weight is 0 for all 30 rows"),
        ({"sample_weight": WEIGHTS > 0.0}, TypeError, "sample_weight has dtype bool"),
        ({"sample_weight": WEIGHTS.long()}, TypeError, "sample_weight has dtype int64"),
        ({"sample_weight": [True] * 30}, TypeError, "sample_weight is a list"),
    ],
)
def test_bad_options_are_named(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sf.SquaredLoss(X, Y, **given)


def test_a_negative_weight_in_a_late_block_is_named_by_its_row() -> None:
    weights = torch.ones(30, dtype=F64)
    weights[17] = -2.0
    with pytest.raises(ValueError, match="sample_weight is -2 at index 17"):
        sf.SquaredLoss.from_blocks(blocks(4, {"sample_weight": weights}))


@pytest.mark.parametrize("rows", [X[:1], X[:1].expand(5, 4)])
def test_an_intercept_leaves_nothing_of_constant_rows(rows: Tensor) -> None:
    with pytest.raises(ValueError, match="X is constant; an intercept fits all that is known of Y"):
        sf.SquaredLoss(rows, Y[: len(rows)], intercept=True)
    with pytest.raises(ValueError, match="X is zero"):
        sf.SquaredLoss(0.0 * rows, Y[: len(rows)], l2=1.0)


@pytest.mark.parametrize("given", [{"l2": 0.1}, {"intercept": True}, {"sample_weight": WEIGHTS}, {"rcond": 1e-9}])
def test_networks_that_are_no_linear_map_refuse_the_options(given: dict[str, Any]) -> None:
    loss = sf.SquaredLoss(X, Y[:, :1], **given)
    (name,) = given
    plain = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    implicit = sf.nn.ImplicitReLU.paper(4, 10, 0.5, generator=torch.Generator().manual_seed(0))
    for net in (plain, implicit):
        with pytest.raises(
            ValueError, match=rf"loss has {name}, which only networks take that are linear maps"
        ) as refusal:
            sf.certify(net, loss)
        assert ("sf.TorchLoss(" in str(refusal.value)) == (net is plain)
    linear = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 1, bias=False)).double()
    assert sf.certify(linear, loss).holds
