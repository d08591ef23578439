"""What is proved of points holds in arithmetic of 60 digits."""

from __future__ import annotations

import numpy as np
import pytest
from draws import normal
from mpmath import mp, mpf

import surefoot as sf
from surefoot._logistic import kernels
from surefoot._logistic.instance import UNIT, Array, Instance, Point
from surefoot._logistic.proposals import Smooth
from surefoot._logistic.run import minimise

mp.dps = 60
PENALTIES = [(0.2, 0.0), (0.0, 0.3), (0.2, 0.3)]


def drawn(seed: int, lam: float, l2: float, spread: float = 2.0) -> Instance:
    """6x4, columns scaled over ``spread`` orders of magnitude."""
    generator = np.random.default_rng(seed)
    M = generator.standard_normal((6, 4)) * 10.0 ** (spread * generator.random(4))
    return Instance(M, np.sign(generator.standard_normal(6)), lam, l2)


def walked(instance: Instance, seed: int, steps: int = 4) -> Point:
    """A point some moves away from 0, its image carried along."""
    generator = np.random.default_rng(seed)
    point = instance.start(np.zeros(4))
    for _ in range(steps):
        x = point.x + generator.standard_normal(4) / instance.column_norms
        point = instance.moved(point, x, instance.image(x - point.x))
    return point


def exact_image(instance: Instance, x: Array) -> list[mpf]:
    return [mp.fsum(mpf(a) * mpf(b) for a, b in zip(row, x, strict=True)) for row in instance.M]


def exact_value(instance: Instance, x: Array) -> mpf:
    margins = [-mpf(s) * z for s, z in zip(instance.labels, exact_image(instance, x), strict=True)]
    loss = mp.fsum(mp.log1p(mp.exp(m)) for m in margins)
    squares = mp.fsum(mpf(v) ** 2 for v in x)
    return loss + mpf(instance.lam) * mp.fsum(abs(mpf(v)) for v in x) + mpf(instance.l2) * squares / 2


def exact_gradient(instance: Instance, x: Array) -> list[mpf]:
    pairs = zip(instance.labels, exact_image(instance, x), strict=True)
    slopes = [-mpf(s) / (1 + mp.exp(mpf(s) * z)) for s, z in pairs]
    return [mp.fsum(mpf(a) * b for a, b in zip(column, slopes, strict=True)) for column in instance.M.T]


@pytest.mark.parametrize(("lam", "l2"), PENALTIES)
def test_error_bounds_of_a_point(lam: float, l2: float) -> None:
    for seed in range(5):
        instance = drawn(seed, lam, l2)
        point = walked(instance, seed)
        image = exact_image(instance, point.x)
        error = mp.sqrt(mp.fsum((mpf(a) - b) ** 2 for a, b in zip(point.image, image, strict=True)))
        assert error <= point.image_error
        assert abs(mpf(point.value) - exact_value(instance, point.x)) <= point.value_error
        assert point.value_error <= 1e3 * UNIT * max(point.value, 1.0) * 100.0  # a bound that leaves room for decisions
        gradient, wrong = instance.gradient(point)
        exact = exact_gradient(instance, point.x)
        for computed, true, norm in zip(gradient, exact, instance.column_norms, strict=True):
            assert abs(mpf(computed) - true) <= wrong * norm + instance.tiny


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 20.0, 600.0])
def test_losses_are_right_to_their_relative_error(rows: int, size: float) -> None:
    """Whatever their size, also where all are far below 1."""
    generator = np.random.default_rng(rows)
    z, labels = size * generator.random(rows), np.ones(rows)
    slopes, curvatures = np.empty(rows), np.empty(rows)
    for image in (z, -z):
        loss = kernels.losses(labels, image, slopes, curvatures)
        exact = mp.fsum(mp.log1p(mp.exp(-mpf(v))) for v in image)
        assert abs(mpf(loss) - exact) <= (rows + 16) * UNIT * exact
        for v, slope, curvature in zip(image, slopes, curvatures, strict=True):
            theta = 1 / (1 + mp.exp(mpf(v)))
            assert abs(mpf(slope) + theta) <= 8 * UNIT * theta
            assert abs(mpf(curvature) - theta * (1 - theta)) <= 16 * UNIT * theta


@pytest.mark.parametrize(("scale", "products"), [(1.0, 1.0), (1e-3, 2.0)])
def test_the_first_step_knows_its_image(scale: float, products: float) -> None:
    """By no product of its own where the step is no multiple of ∇F above 1."""
    for seed in range(5):
        unscaled = drawn(seed, 0.0, 0.0)
        instance = Instance(scale * unscaled.M, unscaled.labels, 0.0, 0.3 * scale * scale)
        old = instance.start(np.zeros(4))
        smooth = Smooth(instance, 3)
        step = smooth.step(old, instance.gradient(old)[0])
        assert step is not None
        new = instance.moved(old, old.x + step, smooth.image(step))
        assert instance.products == 1.0 + products
        exact = exact_image(instance, new.x)
        assert mp.sqrt(mp.fsum((mpf(a) - b) ** 2 for a, b in zip(new.image, exact, strict=True))) <= new.image_error


@pytest.mark.parametrize(("lam", "l2"), PENALTIES)
def test_a_proved_decrease_is_one(lam: float, l2: float) -> None:
    """Steps of all lengths downhill: what is proved is true, and most of it is proved where values prove nothing."""
    sharp = 0
    for seed in range(4):
        instance = drawn(seed, lam, l2)
        old = walked(instance, seed)
        direction = -np.array([float(g) for g in exact_gradient(instance, old.x)]) - l2 * old.x - lam * np.sign(old.x)
        for length in 10.0 ** -np.arange(4.0, 14.0):
            x = old.x + length * direction / instance.smoothness
            change = instance.image(x - old.x)
            new = instance.moved(old, x, change)
            known = instance.proved(old, new, change, np.inf)
            true = exact_value(instance, old.x) - exact_value(instance, x)
            assert known <= true
            sharp += 0.5 * true < known and true < old.value_error + new.value_error
    assert sharp > 3


@pytest.mark.parametrize(("lam", "l2"), PENALTIES)
def test_the_model_decrease_is_bounded(lam: float, l2: float) -> None:
    for seed in range(5):
        instance = drawn(seed, lam, l2)
        point = walked(instance, seed)
        gradient, error = instance.gradient(point)
        beta, tiny, safe = instance.smoothness, instance.tiny, np.empty(4)
        bound = kernels.model_decrease(point.x, gradient, error, instance.column_norms, beta, lam, l2, UNIT, tiny, safe)
        total = mpf(0)
        for value, g in zip(point.x, exact_gradient(instance, point.x), strict=True):
            v = mpf(value) - g / mpf(beta)
            y = mp.sign(v) * max(abs(v) - mpf(lam) / mpf(beta), mpf(0)) / (1 + mpf(l2) / mpf(beta))
            step = y - mpf(value)
            total -= g * step + mpf(beta) * step**2 / 2 + mpf(lam) * (abs(y) - abs(mpf(value)))
            total -= mpf(l2) * (y**2 - mpf(value) ** 2) / 2
        assert total <= bound <= total * (1 + mpf(10) ** -8)


@pytest.mark.parametrize(("lam", "l2"), PENALTIES)
def test_gaps_are_bounds(lam: float, l2: float) -> None:
    """At the iterates of a run, down to the rounding level; F at its end is close to F*."""
    for seed in range(3):
        instance = drawn(seed, lam, l2)
        run = minimise(instance, np.zeros(4), keep=True)
        least = min(exact_value(instance, x) for x in run.iterates)
        for x in run.iterates:
            point = instance.start(x)
            gap = instance.gap(point, instance.gradient(point)[0])
            assert exact_value(instance, x) - least <= gap
        assert run.gap <= 1e-10 * run.point.value


def test_nothing_is_proved_by_derivatives_at_an_image_that_is_far_off() -> None:
    """x = (30, 50) with a computed image of 20 for -20: the loss looks flat, and is as steep as it can be."""
    instance = Instance(np.array([[1.0, -1.0]]), np.array([1.0]), 0.1, 0.0)
    old = instance._point(np.array([30.0, 50.0]), np.array([20.0]), 50.0)
    x, change = np.array([29.5, 50.0]), np.array([-0.5])
    known = instance.proved(old, instance.moved(old, x, change), change, np.inf)
    assert known <= exact_value(instance, old.x) - exact_value(instance, x) < 0


@pytest.mark.parametrize(("lam", "l2"), PENALTIES[1:])
def test_what_was_large_at_the_start_is_forgotten(lam: float, l2: float) -> None:
    instance = drawn(1, lam, l2, spread=0.0)
    for far in (1e8, 1e13):
        run = minimise(instance, far * np.random.default_rng(0).standard_normal(4), tolerance=1e-9)
        assert run.status == "solved"
        value = exact_value(instance, run.point.x)
        assert abs(mpf(run.objectives[-1]) / value - 1) <= 1e-12
        assert value - exact_value(instance, minimise(instance, np.zeros(4)).point.x) <= run.gap


@pytest.mark.parametrize(("size", "l2"), [(1e30, 0.1), (1.0, 1e-100)])
def test_a_gap_is_never_above_the_objective(size: float, l2: float) -> None:
    problems = sf.learned.Logistic(size * normal(2, 5, 3, seed=1), normal(2, 5, seed=2).sign(), 0.1, l2)
    x = normal(2, 3, seed=3) / size
    assert bool((problems.gap_bound(x) <= problems.objective(x) * (1.0 + 1e-12)).all())
    assert problems.optimum(1e12).shape == x.shape  # is found: a bound of 1e33 once was none
