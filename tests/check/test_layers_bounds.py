"""The bounds of the checker of layers hold, and are tight: against exact fractions, every choice of steps, and many constants."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product as choices

import numpy as np
import pytest
from layered import BATCHES

from surefoot_check.rigor.bounds import FAST, Array, Level
from surefoot_check.rigor.exact import EXACT
from surefoot_check.step_sizes.enclosures import load_problem
from surefoot_check.step_sizes.layers.constants import after_steps, least_between
from surefoot_check.step_sizes.layers.entrywise import Enclosed, product
from surefoot_check.step_sizes.layers.one_layer import first_point, prove
from surefoot_check.step_sizes.layers.problems import Problems
from surefoot_check.step_sizes.layers.sectors import angle

GRID = np.array([0.0, 0.7, 2.0])
NONE = np.zeros((0, 1))
LEVELS = pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
exactly = np.frompyfunc(Fraction, 1, 1)


def problems_of(kind: str, level: Level = FAST) -> Problems:
    """A small batch with its constants."""
    batch = BATCHES[kind]()
    arrays = {name: array.numpy() for name, array in batch.arrays().items()}
    return Problems(load_problem(batch.kind, arrays, level), batch.smoothness.numpy() * (1.0 + 1e-8), level)


def holds(enclosed: Enclosed, truth: Array) -> bool:
    """Whether each fraction is within the radius of the value, which is not much more than rounding."""
    apart = abs(exactly(enclosed.value) - truth)
    size = np.abs(enclosed.value).max()
    return bool((apart <= exactly(enclosed.radius)).all()) and bool((enclosed.radius <= 1e-13 * (size + 1.0)).all())


@LEVELS
def test_steps_and_objectives_are_enclosed(level: Level) -> None:
    problems = problems_of("lasso", level)
    M, Y, lam, beta = (exactly(v) for v in (problems.batch.M, problems.batch.Y, problems.batch.lam, problems.beta))  # pyright: ignore[reportAttributeAccessIssue]
    x = np.random.default_rng(0).standard_normal((3, 6))
    residual = np.einsum("pij,pj->pi", M, exactly(x)) - Y
    gradient = np.einsum("pij,pi->pj", M, residual)
    at = first_point(problems, x, NONE)
    assert holds(at.gradient, gradient[:, :, None])
    steps = problems.steps(x[:, :, None], at.gradient, GRID)
    by = exactly(GRID) / beta[:, None]
    moved = exactly(x)[:, :, None] - by[:, None, :] * gradient[:, :, None]
    threshold = (by * lam[:, None])[:, None, :]
    truth = np.where(moved > threshold, moved - threshold, np.where(moved < -threshold, moved + threshold, Fraction(0)))
    assert holds(steps, truth)
    value = (residual * residual).sum() / 2 + (lam * abs(exactly(x)).sum(axis=1)).sum()
    low, high = at.objective
    assert Fraction(low) <= value <= Fraction(high)
    assert high - low <= 1e-12 * high


@LEVELS
def test_products_of_what_is_not_exact(level: Level) -> None:
    random = np.random.default_rng(1)
    A, X = random.standard_normal((2, 3, 5)), random.standard_normal((2, 5, 4))
    found = product(A, Enclosed(X, np.full_like(X, 1e-3)), level)
    worst = exactly(A) @ exactly(X) + abs(exactly(A)) @ exactly(np.full_like(X, 1e-3))
    assert (abs(worst - exactly(found.value)) <= exactly(found.radius)).all()
    assert (found.radius <= 1.0001e-3 * np.abs(A).sum(axis=2, keepdims=True)).all()


@pytest.mark.parametrize(("kind", "ahead"), [*((kind, False) for kind in BATCHES), ("least-squares", True)])
def test_no_choice_of_steps_goes_below_the_bound(kind: str, ahead: bool) -> None:
    """Of every grid point in each sector, from any iterate to any point."""
    problems, rest = problems_of(kind), np.array([[1.2], [0.4]]) if ahead else NONE
    random = np.random.default_rng(2)
    x = random.standard_normal((problems.batch.count, problems.batch.columns))
    at = first_point(problems, x, rest)
    sectors = np.searchsorted(np.array([0.7, 1.4]), angle(x, at.gradient.value[:, :, 0] / problems.beta[:, None]))
    steps = problems.steps(x[:, :, None], at.gradient, GRID).value
    weights = random.dirichlet(np.ones(3), 3)
    u = (weights[sectors] * steps).sum(axis=2)
    proved = prove(problems, problems, at, u, GRID, weights, sectors, rest)
    assert proved.as_computed and proved.distance < 1e-13
    reached = []
    for choice in choices(range(3), repeat=3):
        y = np.take_along_axis(steps, np.array(choice)[sectors][:, :, None], axis=2)[:, :, 0]
        reached.append(first_point(problems, y, rest).value)
    assert min(low for low, _ in reached) >= proved.after.value[0] - proved.gap - 1e-12
    assert proved.constant == pytest.approx(min(reached[k][1] for k in (0, 13, 26)), rel=1e-12)
    moved = prove(problems, problems, at, u + 1e-9, GRID, weights, sectors, rest)
    assert not moved.as_computed and moved.distance >= 1e-9


def test_the_rounding_of_an_iterate_is_that_of_what_is_compared() -> None:
    """Of F and of J each, which differ where steps follow; of float64 at level exact too."""
    problems, rough = problems_of("least-squares", EXACT), problems_of("least-squares")
    x, rest = np.full((3, 6), 0.1), np.full((40, 1), 1.5)
    sectors, weights = np.zeros((3, 6), dtype=np.intp), np.array([[0.2, 0.3, 0.5]])
    outcomes = []
    for ahead in (NONE, rest):
        at = first_point(problems, x, ahead)
        u = at.x - 1.21 * at.gradient.value[:, :, 0] / problems.beta[:, None]
        outcomes.append(prove(problems, rough, at, u, GRID, weights, sectors, ahead))
    now, later = outcomes
    assert now.rounding == now.value_rounding == later.rounding > 2.0 * later.value_rounding
    assert (later.rough.radius == first_point(rough, x, NONE).gradient.radius).all()


def smallest(function: Callable[[Array], Array]) -> float:
    """On a fine grid from 0 to 2."""
    return float(function(np.linspace(0.0, 2.0, 20001)).min())


def test_the_best_constant_step_is_bounded_from_below() -> None:
    problems, count = problems_of("least-squares"), 7
    batch = problems.batch
    start = np.zeros((3, 6))
    spectra = [np.linalg.eigh(M @ M.T / b) for M, b in zip(batch.M, problems.beta, strict=True)]
    rates = np.concatenate([values for values, _ in spectra])
    weights = np.concatenate([(V.T @ y) ** 2 for (_, V), y in zip(spectra, batch.Y, strict=True)])  # pyright: ignore[reportAttributeAccessIssue]
    best = smallest(lambda P: 0.5 * weights @ (1.0 - np.outer(rates, P)) ** (2 * count))
    points = np.linspace(0.0, 2.0, 65)
    bound = least_between(problems, start, count, points)
    assert bound <= best * (1.0 + 1e-9)
    assert bound >= 0.9 * best
    assert least_between(problems, start, count, points[::64]) <= bound
    reached = after_steps(problems, start, np.tile(points, (count, 1)))
    assert min(high for _, high in reached) >= best * (1.0 - 1e-9)


@pytest.mark.parametrize("kind", BATCHES)
def test_steps_of_a_schedule_are_followed(kind: str) -> None:
    problems, start = problems_of(kind), np.full((3, BATCHES[kind]().columns), 0.1)
    schedule = np.array([[1.9, 0.3], [0.2, 2.0], [1.1, 0.0]])
    found = after_steps(problems, start, schedule)
    for k in range(2):
        x = start
        for P in schedule[:, k, None]:
            x = problems.steps(x[:, :, None], first_point(problems, x, NONE).gradient, P).value[:, :, 0]
        low, high = first_point(problems, x, NONE).objective
        assert found[k][0] <= high and low <= found[k][1]
        assert found[k][1] - found[k][0] <= 1e-10 * high
