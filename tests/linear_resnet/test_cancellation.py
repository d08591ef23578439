"""Lemma 3 where a layer is nearly singular or the norms differ by orders: no sum or difference may lose the small part."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from surefoot_check.linear_resnet import enclosures as rigorous
from surefoot_check.linear_resnet import measuring
from surefoot_check.linear_resnet.constants import constants
from surefoot_check.rigor.bounds import FAST
from surefoot_check.rigor.exact import EXACT


@pytest.mark.parametrize("small", [1e-3, 1e-8, 1e-9, 1e-12])
def test_constants_hold_where_one_layer_is_almost_zero(small: float) -> None:
    """P_5 = small·I, the other nine I: p_5⁻² swamps the sum over the other layers, which is 9."""
    depth, m, radius = 10, 4, 0.1
    W = np.zeros((depth, m, m))
    W[4] = (small - 1.0) * np.eye(m)
    on_ball = constants(rigorous.measure({"A": np.eye(m), "B": np.eye(m), "W": W}, np.eye(m)), radius)
    stretch = radius / math.sqrt(depth - 1)
    # the gradient in layer 5 is the product of the others times the residual, here e_1 e_1ᵀ
    assert on_ball.gauss_newton >= (1.0 + stretch) ** (2 * (depth - 1))
    assert on_ball.pl_constant <= (1.0 - stretch) ** (2 * (depth - 1)) + depth * 2.0 * small**2
    # layers 5 and j together miss only the other eight: a star, layer 5 with each of the nine
    eight = (1.0 + radius / math.sqrt(8.0)) ** 8
    assert on_ball.bilinear >= math.sqrt(depth - 1) * eight * (1.0 - 1e-12)


def test_small_deviations_are_not_lost_beside_large_norms() -> None:
    """A X̃ = diag(1, 1e-10) and a radius of 1e-17: a deviation of half an ulp of 1 is 1e-7 of the smallest singular value."""
    A, radius = np.diag([1.0, 1e-10]), 1e-17
    at = rigorous.measure({"A": A, "B": np.eye(2), "W": np.zeros((2, 2, 2))}, np.eye(2))
    # p̲ = 0 switches the product form off
    additive = replace(at, p_low=np.zeros(2), a_low=np.array([1e-10, 1e-10]))
    exact = (1e-10 * (1.0 - 1e-17)) ** 2 + (1e-10 - 1e-17) ** 2
    assert constants(additive, radius).pl_constant <= exact * (1.0 + 1e-12)


def exact_product(layers: list[np.ndarray]) -> np.ndarray:
    """The product of I + W over ``layers``, first one innermost, in rationals."""
    m = len(layers[0])
    product = [[Fraction(int(i == j)) for j in range(m)] for i in range(m)]
    for W in layers:
        P = [[Fraction(float(W[i, j])) + int(i == j) for j in range(m)] for i in range(m)]
        product = [[sum((P[i][t] * product[t][j] for t in range(m)), Fraction(0)) for j in range(m)] for i in range(m)]
    return np.array([[float(entry) for entry in row] for row in product])


def plain_product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A B summed in one order, whatever BLAS does."""
    columns = B.T.tolist()
    return np.array(
        [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in A.tolist()]
    )


def test_the_norm_between_two_layers_covers_the_rounding_of_a_product_that_cancels() -> None:
    """Two layers of norm 1e8 whose product is rounding: the rounded product's own norm is too small as often as too large."""
    m, too_small = 4, 0
    for seed in range(12):
        g = np.random.default_rng(seed)
        u, kernel = g.standard_normal(m), g.standard_normal((m, m))
        kernel -= np.outer(plain_product(kernel, u[:, None]), u) / math.fsum(u * u)
        inner = [1e8 * np.outer(u, g.standard_normal(m)) - np.eye(m), 1e8 * kernel - np.eye(m)]
        W = np.stack([np.zeros((m, m)), *inner, np.zeros((m, m))])
        exact = float(np.linalg.norm(exact_product(inner), 2))
        rounded = float(np.linalg.norm(plain_product(W[2] + np.eye(m), W[1] + np.eye(m)), 2))
        too_small += rounded < 0.95 * exact
        at = rigorous.measure({"A": np.eye(m), "B": np.eye(m), "W": W}, np.eye(m))
        assert at.between[0, 3] >= exact
    assert too_small > 1


def test_constants_where_the_squares_of_the_norms_vanish() -> None:
    """A = 1e-170, B = 1e50: squares of δ are no floats; lost, they would leave μ > 0 on a ball with P_1 = P_2 = 0 in it."""
    A, B, W = np.array([[1e-170]]), np.array([[1e50]]), np.zeros((2, 1, 1))
    at = rigorous.measure({"A": A, "B": B, "W": W}, np.ones((1, 1)))
    assert constants(at, 10.0).pl_constant == 0.0
    near = constants(at, 0.5)
    # two gradients BA P of P ≥ 1 - x, x² + y² ≤ 1/4, and at most 1 + x
    assert 0.0 < near.pl_constant <= 1e-240 * 2.0 * (1.0 - 0.5 / math.sqrt(2.0)) ** 2
    assert near.gauss_newton >= 1e-240 * 2.0 * (1.0 + 0.5 / math.sqrt(2.0)) ** 2


def test_constants_below_the_range_of_floats_are_not_proved() -> None:
    at = rigorous.measure(
        {"A": np.full((1, 1), 1e-170), "B": np.ones((1, 1)), "W": np.zeros((1, 1, 1))}, np.ones((1, 1))
    )
    on_ball = constants(at, 0.0)
    assert on_ball.pl_constant == 0.0 and on_ball.gauss_newton > 0.0


def test_the_norm_of_small_layers_before_large_ones_does_not_vanish() -> None:
    """1e-200 · 1e-200 is no float, but ten layers of 1e40 later the product is 1."""
    P = np.eye(2) * np.array([1.0, 1e-200, 1e-200, *[1e40] * 10, 1.0])[:, None, None]
    P[1:3] = P[1:3, ::-1]  # I + W is exact off the diagonal only
    W = P - np.eye(2)
    with np.errstate(over="ignore", invalid="ignore"):  # products of the large ones alone are infinite
        found = measuring._between(P, np.zeros(14), np.abs(P).max(axis=(1, 2)), FAST)
    assert (W[1:3].diagonal(axis1=1, axis2=2) == -1.0).all() and found[0, 13] >= 1.0


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_lemma_in_balls_of_few_layers(depth: int) -> None:
    """Sums over no layers at all are balls, too."""
    weights = {"A": np.diag([1.0, 0.7]), "B": np.diag([2.0, 3.0]), "W": np.zeros((depth, 2, 2))}
    floats, balls = (
        rigorous.quantities_on_ball(rigorous.measure(weights, np.eye(2), level), 0.1, level) for level in (FAST, EXACT)
    )
    assert floats.keys() == balls.keys() == {"pl_constant", "gauss_newton", "bilinear"}
    for name, (low, high) in floats.items():
        assert balls[name] == pytest.approx((low, high), rel=1e-8)
