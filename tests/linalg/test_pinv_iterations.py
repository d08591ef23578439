"""The iterations of ``pinv``: all-ones and Chebyshev coefficients."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import pytest
import torch
from pinv_matrices import of_rank_three, relative, relative_each, with_singular_values
from pinv_reference import true_pinv

from surefoot._linalg import chebyshev
from surefoot._linalg.info import Status
from surefoot._linalg.pinv import pinv, pinv_ex


def test_chebyshev_takes_fewer_layers_than_all_ones() -> None:
    A = torch.stack([with_singular_values([1.0, 0.5, 0.05, 0.01], 4, 7, seed=s) for s in range(5)])
    X, info = pinv_ex(A, method="chebyshev", interval=(0.01, 1.0), order=4)
    ones = pinv_ex(A, method="iteration", order=4)[1]
    assert relative_each(X, true_pinv(A)) <= 1e-12 and info.ok and info.method == "chebyshev"
    assert int(info.iterations.max()) < int(ones.iterations.min())
    # an interval that leaves out a singular value costs layers, not the result; scaling belongs to the interval
    assert relative_each(pinv(A, method="chebyshev", interval=(0.1, 1.0), order=4), true_pinv(A)) <= 1e-12
    tiny = pinv(1e-60 * A, method="chebyshev", interval=(1e-62, 1e-60))
    assert relative_each(tiny, 1e60 * true_pinv(A)) <= 1e-12


def test_chebyshev_beyond_its_interval_does_not_pass_for_converged() -> None:
    A = with_singular_values([5.0, 1.0], 2, 3)
    X, info = pinv_ex(A, method="chebyshev", interval=(0.5, 1.0), order=4)
    assert info.status == Status.NOT_CONVERGED or relative(X, true_pinv(A)) <= 1e-12


def test_float32_iteration_stops_before_rounding_grows_in_the_null_spaces() -> None:
    """Twelve more layers of order 4 multiply what little is left by 10⁷."""
    A, true = of_rank_three(torch.float32)
    X = pinv(A, method="iteration", order=4)
    assert relative(X, true) <= 1e-4
    E = torch.eye(15) - A @ X
    for _ in range(12):
        X = X @ (torch.eye(15) + E + E @ E + E @ E @ E)
        E = torch.eye(15) - A @ X
    assert not relative(X, true) <= 1e-1


@pytest.mark.parametrize("ratio", [1e-7, 1e-12])
def test_an_interval_too_long_for_the_precision_ends(ratio: float) -> None:
    """At 1e-12 the layers cannot tell the residual of the smallest value from 1, so that more of them gain nothing."""
    A = torch.diag(torch.tensor([1.0, 0.3, ratio], dtype=torch.float64))
    X, info = pinv_ex(A, method="chebyshev", interval=(ratio, 1.0))
    assert info.ok == (ratio > 1e-8)
    if info.ok:
        assert relative(X, true_pinv(A)) <= 1e-8


@pytest.mark.parametrize(("ratio", "order"), [(0.3, 2), (1e-2, 8), (1e-3, 3)])
def test_chebyshev_coefficients_have_the_least_worst_residual(ratio: float, order: int) -> None:
    """1/T_N(t_0), and it is attained."""
    t = (1 + Fraction(ratio**2)) / (1 - Fraction(ratio**2))
    least = Fraction(1)
    for k, (row, claimed) in enumerate(islice(chebyshev.layers(order, ratio**2, 1.0), 4), start=1):
        least = 1 / _chebyshev_value(order**k, t)
        # τ is rounded, and τ − 1 is 2 ratio² at first
        assert claimed == pytest.approx(float(least), rel=1e-14 / ratio**2)
        assert len(row) == order
    grid = torch.linspace(0.0, 1.0 - ratio**2, 10_001, dtype=torch.float64)
    for row, _ in islice(chebyshev.layers(order, ratio**2, 1.0), 4):
        grid = 1.0 - (1.0 - grid) * sum(c * grid**j for j, c in enumerate(row))
    assert float(grid.abs().max()) == pytest.approx(float(least), rel=1e-6)


def _chebyshev_value(degree: int, x: Fraction) -> Fraction:
    """T_degree(x), x ≥ 1, by the three-term recurrence with 400 fractional bits."""
    before, now = Fraction(1), x
    for _ in range(degree - 1):
        before, now = now, Fraction(round((2 * x * now - before) * 2**400), 2**400)
    return now
