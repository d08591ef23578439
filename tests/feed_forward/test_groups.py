"""Equal rows of X are merged: exact means and scatter, gaps measured from it, and descent to it."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from draws import normal
from good_runs import sequential, with_equal_rows
from torch import nn

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot_check import check
from surefoot_check.feed_forward.enclosures import Measured
from surefoot_check.feed_forward.groups import Groups
from surefoot_check.feed_forward.lipschitz import symmetric_bend
from surefoot_check.rigor.approximation import Approximation
from surefoot_check.verdict import Outcome

X = np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [5.0, 1.0]])
Y = np.array([[0.1, 1.0], [1e20, 2.0], [0.2, 1.0], [-1e20, 3.0], [0.3, 4.0], [7.0, 8.0]])


def test_groups_in_the_order_in_which_they_begin() -> None:
    groups = Groups(X, Y)
    assert groups.first.tolist() == [0, 1, 5] and groups.counts.tolist() == [3, 2, 1]


def test_means_and_scatter_are_enclosed() -> None:
    """Also where a sum in floats would cancel."""
    groups = Groups(X, Y)
    exact = [[sum(Fraction(y) for y in Y[rows, j].tolist()) / len(rows) for j in range(2)] for rows in OWN]
    means = groups.means
    square = sum((Fraction(x) - y) ** 2 for x, y in zip(means.value.ravel().tolist(), chain(*exact), strict=True))
    assert 0 < square <= Fraction(means.error) ** 2
    assert means.error <= 1e-15 * np.abs(means.value[:2]).max()
    scatter = (
        sum((Fraction(Y[i, j]) - exact[g][j]) ** 2 for g, rows in enumerate(OWN) for i in rows for j in range(2)) / 2
    )
    low, high = groups.scatter_bounds
    assert low <= groups.scatter <= high and Fraction(low) <= scatter <= Fraction(high)
    assert np.nextafter(np.nextafter(low, np.inf), np.inf) >= high


OWN = [[0, 2, 4], [1, 3], [5]]


def test_where_all_rows_differ_nothing_is_rounded() -> None:
    groups = Groups(X[[0, 1, 5]], Y[[0, 1, 5]])
    assert groups.all_differ and groups.scatter_bounds == (0.0, 0.0)
    f = Approximation(np.ones((3, 2)))
    assert groups.residual(f).error == (f - Approximation(Y[[0, 1, 5]])).error
    assert groups.roots.error == groups.means.error == 0.0


@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_descent_reaches_the_scatter(apart: float, tmp_path: Path) -> None:
    net, loss = with_equal_rows(1, apart)
    certificate = sf.certify(net, loss)
    assert certificate.holds and certificate.problem["N"] == 4
    run = sf.descend(net, loss, max_iterations=400, certificate=certificate, directory=tmp_path, progress=False)
    assert loss.samples is not None
    x, y = (torch.as_tensor(part) for part in loss.samples)
    value = 0.5 * float((net(x) - y).square().sum().detach())
    least = 1.0 * apart**2 * 2 * 2
    assert certificate.optimal_value == pytest.approx(least, abs=1e-15)
    assert value == pytest.approx(least + run.gaps[-1], rel=1e-12, abs=1e-15)
    assert run.gaps[-1] < 1e-12 * run.gaps[0] and run.audit().holds
    for level in ("fast", "exact"):
        assert check(tmp_path, level).outcome is Outcome.ACCEPT


def test_merged_rows_change_neither_gradient_nor_norm_nor_its_change() -> None:
    """Of JᵀJ and Jᵀr nothing changes: the largest singular value and Λ are those of all rows."""
    net, loss = with_equal_rows(2)
    system = system_of(net)
    problem = system.problem(net, loss)
    at = Measured(*system._stored(net, problem))  # pyright: ignore[reportAttributeAccessIssue]
    weights = system.reduced(net, problem)
    parts = torch.func.jacrev(lambda w: (net_of(w, problem) - problem.Y).reshape(-1))(weights)
    J = torch.cat([part.reshape(len(part), -1) for part in parts.values()], dim=1)
    values = torch.linalg.svdvals(J)
    assert at.gram.value.shape == (8, 8)
    low, high = at.singular_values[0][0], at.singular_values[1][1]
    assert low == pytest.approx(float(values[7])) and high == pytest.approx(float(values[0]))
    assert float(values[8]) < 1e-12
    leaves = {name: weight.requires_grad_() for name, weight in weights.items()}
    gradient = torch.autograd.grad(problem.value(leaves), list(leaves.values()))
    residual = (net_of(leaves, problem) - problem.Y).reshape(-1).detach()
    ours = torch.cat([part.reshape(-1) for part in gradient])
    assert torch.allclose(ours, J.T.detach() @ residual, rtol=1e-11, atol=1e-13)
    assert len(symmetric_bend(at.bounds, 0.0)) == 2 and at.bounds[0].inputs > torch.linalg.matrix_norm(problem.X, 2)


def net_of(weights: dict[str, torch.Tensor], problem: object) -> torch.Tensor:
    """f of all rows."""
    from surefoot._feed_forward.modules import forward

    return forward(problem.X, problem.layers, problem.settings, weights)  # pyright: ignore[reportAttributeAccessIssue]


def test_more_rows_than_parameters_may_be_few_different_ones() -> None:
    net = sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1), seed=6)
    x = normal(2, 2, seed=6).repeat(20, 1)
    y = net(x).detach() + 1e-4 * normal(40, 1, seed=7)
    certificate = sf.certify(net, sf.SquaredLoss(x, y))
    assert certificate.holds and certificate.problem["N"] == 2 and certificate.optimal_value > 0.0
