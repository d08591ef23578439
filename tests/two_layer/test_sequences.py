"""Chebyshev steps and their orders."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surefoot._two_layer.sequences import calm_orders, chebyshev, chebyshev_count, growth, orders


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20, 64, 75])
def test_every_order_is_a_permutation(count: int) -> None:
    found = orders(count)
    assert found and len({tuple(order) for order in found}) == len(found)
    for order in found:
        assert sorted(order) == list(range(count))


def test_the_order_of_eight_is_that_of_lebedev_reversed() -> None:
    assert [1, 8, 4, 5, 2, 7, 3, 6] in [(order[::-1] + 1).tolist() for order in orders(8)]


@pytest.mark.parametrize("count", [1, 5, 16])
def test_the_product_is_the_chebyshev_polynomial(count: int) -> None:
    low, high = 0.3, 20.0
    x = np.linspace(low, high, 37)
    product = np.prod(1.0 - chebyshev(count, low, high)[:, None] * x, axis=0)
    least = 1.0 / math.cosh(count * math.acosh((high + low) / (high - low)))
    exact = least * np.cos(count * np.arccos(np.clip((high + low - 2.0 * x) / (high - low), -1.0, 1.0)))
    assert np.allclose(product, exact, rtol=0.0, atol=1e-12)
    assert growth(chebyshev(count, low, high), low, high)[-1] == pytest.approx(least, rel=1e-9)


def test_calm_orders_do_not_grow_where_the_others_do() -> None:
    calm = calm_orders(64, 1.0, 150.0)
    assert growth(calm[0], 1.0, 150.0).max() <= 1.0 + 1e-9
    assert growth(np.sort(calm[0])[::-1], 1.0, 150.0).max() > 1e6
    sums = [growth(tau, 1.0, 150.0).sum() for tau in calm]
    assert sums == sorted(sums)


def test_the_count_of_chebyshev() -> None:
    assert chebyshev_count(1.0, 151.15, 1e-10) == 75
    assert chebyshev_count(2.0, 2.0, 1e-10) == 1
    tau = chebyshev(75, 1.0, 151.15)
    assert growth(tau, 1.0, 151.15)[-1] <= 1e-5 < growth(chebyshev(74, 1.0, 151.15), 1.0, 151.15)[-1]
