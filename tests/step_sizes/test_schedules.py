"""Step schedules without training: their steps, and their rates on functions that attain them and on others."""

from __future__ import annotations

import math
from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot._problems.least_squares import LeastSquares as Base
from surefoot._step_sizes.baselines import names, trace
from surefoot._step_sizes.schedules import SCHEDULES
from surefoot._step_sizes.schedules.ogm import momenta
from surefoot._step_sizes.schedules.schedule import a_priori_radius
from surefoot._step_sizes.schedules.silver import silver_steps
from surefoot._step_sizes.schedules.subgame_perfect import SubgamePerfect, _Memory, _weights
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems, schedule

F64 = torch.float64
SILVER_RATIO = 1.0 + math.sqrt(2.0)


class Huber(Base):
    """One-dimensional: x²/2 up to |x| = ``knee``, then straight; the start is 0 and the minimiser 1."""

    def __init__(self, knee: float) -> None:
        super().__init__(torch.ones(1, 1, 1, dtype=F64), torch.ones(1, 1, dtype=F64))
        self.knee = knee

    def outer_gradient(self, product: Tensor) -> Tensor:
        return (product - self.Y).clamp(-self.knee, self.knee)

    def smooth_value(self, product: Tensor) -> Tensor:
        away = (product - self.Y).abs()
        return torch.where(away <= self.knee, 0.5 * away.square(), self.knee * (away - 0.5 * self.knee)).sum(1)


def draw(kind: int, seed: int) -> Problems:
    rows, columns = [(4, 7), (7, 4), (5, 5)][seed % 3]
    if kind == 0:
        return LeastSquares.random(2, rows, columns, kind="paper", seed=seed)
    if kind == 1:
        return Lasso.random(2, rows, columns, sparsity=0.5, lam=0.2, seed=seed)
    return Logistic.random(2, rows, columns, lam=0.1, l2=0.05 * (seed % 2), seed=seed)


# -- steps -----------------------------------------------


@pytest.mark.parametrize("k", range(9))
def test_silver_steps_are_the_fractal(k: int) -> None:
    expected = [1.0 + SILVER_RATIO ** ((t & -t).bit_length() - 2) for t in range(1, 2**k)]
    assert silver_steps(2**k - 1) == pytest.approx(expected, rel=1e-12)
    assert 1.0 + sum(silver_steps(2**k - 1)) == pytest.approx(SILVER_RATIO**k, rel=1e-12)


def test_silver_steps_between_have_sums_between() -> None:
    sums = [sum(silver_steps(n)) for n in range(130)]
    assert all(b - a > 1.0 for a, b in pairwise(sums))
    joined = 0.5 * (1.0 + SILVER_RATIO + math.sqrt(1.0 + 6.0 * SILVER_RATIO + SILVER_RATIO**2))
    assert 1.0 + sums[2] == pytest.approx(joined, rel=1e-12)


def test_momenta_of_ogm() -> None:
    theta = momenta(3)
    assert theta[0] == 1.0 and theta[1] == pytest.approx(0.5 * (1.0 + 5.0**0.5))
    assert theta[1] ** 2 - theta[1] == pytest.approx(theta[0] ** 2)
    assert theta[3] ** 2 - theta[3] == pytest.approx(2.0 * theta[2] ** 2)  # the last step's


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_chebyshev_is_the_polynomial_of_least_deviation(count: int) -> None:
    """On a diagonal problem every coordinate of x - x* has shrunk by T_T((β+β0-2λ)/(β-β0))/T_T((β+β0)/(β-β0))."""
    spectrum = torch.linspace(1.0, 9.0, 6, dtype=F64)
    problems = LeastSquares(torch.diag(spectrum.sqrt())[None], spectrum.sqrt()[None])
    left = 1.0 - schedule("Chebyshev", count).solve(problems).solution[0]
    top = torch.cos(count * torch.arccos((10.0 - 2.0 * spectrum) / 8.0))
    torch.testing.assert_close(left, top / math.cosh(count * math.acosh(10.0 / 8.0)), rtol=1e-5, atol=1e-7)


# -- rates -----------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 15, 40])
def test_silver_and_ogm_attain_their_rates(count: int) -> None:
    """A Huber function that the silver steps just do not leave, and x²/2 for OGM, on which it is as slow as on any function."""
    knee = 1.0 / (1.0 + 2.0 * sum(silver_steps(count)))
    huber = Huber(knee)
    one = torch.ones(1, dtype=F64)
    silver = schedule("silver", count)
    attained = huber.objective(silver.solve(huber).solution)
    assert float(attained / silver.bound(huber, one)) == pytest.approx(1.0, rel=1e-7)
    plain = LeastSquares(huber.M, huber.Y)
    ogm = schedule("OGM", count)
    attained = plain.objective(ogm.solve(plain).solution)
    assert float(attained / ogm.bound(plain, one)) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_chebyshev_attains_its_rate_at_the_ends_of_the_spectrum(count: int) -> None:
    problems = LeastSquares(
        torch.diag(torch.tensor([1.0, 3.0], dtype=F64))[None], torch.tensor([[1.0, 3.0]], dtype=F64)
    )
    chebyshev = schedule("Chebyshev", count)
    attained = problems.gap(chebyshev.solve(problems).solution) / problems.gap(problems.start())
    factor = 1.0 / math.cosh(count * math.acosh(10.0 / 8.0)) ** 2
    assert float(attained) == pytest.approx(factor, rel=1e-6)
    assert factor <= float(chebyshev.bound(problems) / problems.gap(problems.start())) < factor * (1.0 + 1e-6)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(SCHEDULES)), st.integers(0, 2), st.integers(0, 10_000), st.integers(0, 30))
def test_random_problems_stay_below(name: str, kind: int, seed: int, count: int) -> None:
    problems = draw(kind, seed)
    if name not in names(problems):
        with pytest.raises(ValueError, match=name):
            schedule(name, count).bound(problems)
        return
    found = schedule(name, count)
    distance = problems.optimum().norm(dim=1)
    assert bool(found.bound(problems, distance).isfinite().all()) == (name != "silver" or kind == 0) or count == 0
    gaps = problems.gap(found.solve(problems).solution)
    slack = problems.gap_bound(problems.optimum()) + 1e-12 * problems.gap(problems.start())
    assert bool((gaps <= found.bound(problems, distance) + slack).all())
    assert bool((distance <= a_priori_radius(problems) * (1.0 + 1e-6)).all())
    assert bool((found.bound(problems, distance) <= found.bound(problems) * (1.0 + 1e-6)).all())


# -- the subgame-perfect method --------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 6))
def test_weights_are_the_largest_that_are_admissible(seed: int, dimension: int, count: int) -> None:
    """The conditions of Karush, Kuhn and Tucker of max w·y, ½‖Cy‖² ≤ b·y, y ≥ 0."""
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randn(1, count, dimension + count, dtype=F64, generator=generator)
    w, b = (torch.rand(1, count, dtype=F64, generator=generator) + shift for shift in (0.1, -0.3))
    b[0, 0] = 1.0
    y = _weights(columns, w, b)[0]
    K = columns[0] @ columns[0].T
    assert float(b[0] @ y) == pytest.approx(0.5 * float(y @ K @ y), rel=1e-9)
    positive = y > 0.0
    slope = K @ y - b[0]
    mu = float((slope[positive] / w[0, positive]).mean())
    assert mu > 0.0
    torch.testing.assert_close(slope[positive], mu * w[0, positive], rtol=1e-7, atol=1e-9)
    assert bool((slope[~positive] >= mu * w[0, ~positive] - 1e-9).all())


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 25))
def test_every_inequality_of_the_proof_holds(seed: int, count: int) -> None:
    problems = draw(0, seed)
    best = problems.optimum()
    value = problems.optimal_value / problems.smoothness
    memory = _Memory(problems)
    tau = psi = torch.full((2,), 2.0, dtype=F64)
    x = z = torch.zeros_like(best)
    for t in range(count):
        memory.add(x, tau, psi, z)
        held = memory.tau[:, 0] * (memory.values[:, 0] - value) + memory.squares[:, 0]
        allowed = 1e-9 * (memory.squares[:, 0] + best.square().sum(1))
        assert bool((held <= (memory.z[:, 0] * best).sum(1) + allowed).all())
        free, z, base = memory.best()
        assert bool((free >= tau).all())
        psi = 1.0 + (1.0 + 2.0 * free).sqrt()
        tau = free + psi
        assert bool((tau >= 2.0 * momenta(t + 2)[-2] ** 2 * (1.0 - 1e-12)).all())
        x = (free[:, None] * base + psi[:, None] * z) / tau[:, None]


def test_what_the_subgame_perfect_run_proves() -> None:
    problems = LeastSquares.random(8, 20, 32, seed=4)
    distance = problems.optimum().norm(dim=1)
    assert torch.equal(schedule("OGM", 9).bound_after(problems), schedule("OGM", 9).bound(problems))
    for found in (SubgamePerfect(1), SubgamePerfect(40)):
        after = found.bound_after(problems, distance)
        assert bool((problems.gap(found.solve(problems).solution) <= after).all())
        assert bool((after <= found.bound(problems, distance)).all())
        assert bool((found.bound_after(problems) <= found.bound(problems)).all())
    assert bool((after < 0.3 * found.bound(problems, distance)).all())


def test_on_the_worst_function_of_ogm_the_subgame_perfect_method_is_done_at_once() -> None:
    problems = LeastSquares(torch.ones(1, 1, 1, dtype=F64), torch.ones(1, 1, dtype=F64))
    gaps = {name: float(trace(name, problems, 4).gaps[-1]) for name in ("OGM", "subgame-perfect")}
    assert gaps["subgame-perfect"] < 1e-6 * gaps["OGM"]


# -- as baselines and by themselves ----------------------


@pytest.mark.parametrize("kind", range(3))
def test_solve_is_the_baseline(kind: int) -> None:
    problems = draw(kind, 3)
    for name in set(SCHEDULES) & set(names(problems)):
        solution, found = schedule(name, 9).solve(problems), trace(name, problems, 9)
        assert torch.equal(solution.solution, found.solution)
        assert solution.products == 18 == int(found.products[-1])
        assert solution.trajectory is not None and solution.trajectory.shape == (10, *found.solution.shape)
        assert solution.objectives.shape == (10, problems.count)
        torch.testing.assert_close(solution.objectives[-1], problems.objective(found.solution))


def test_another_horizon_is_another_schedule() -> None:
    problems = draw(0, 1)
    short, long = (schedule("silver", count).iterates(problems) for count in (6, 12))
    assert not torch.equal(list(short)[-1], list(islice(long, 7))[-1])


def test_no_steps_and_single_precision() -> None:
    for kind in range(3):
        problems = draw(kind, 0).to(dtype=torch.float32)
        for name in set(SCHEDULES) & set(names(problems)):
            none = schedule(name, 0)
            assert not bool(none.solve(problems).solution.any())
            assert bool((problems.gap(problems.start()) <= none.bound(problems, problems.optimum().norm(dim=1))).all())
            assert schedule(name, 5).solve(problems).solution.dtype == torch.float32


def test_a_bound_that_underflows_is_not_zero() -> None:
    problems = LeastSquares(torch.diag(torch.tensor([1.0, 1.1], dtype=F64))[None], torch.ones(1, 2, dtype=F64))
    assert 0.0 < float(schedule("Chebyshev", 1000).bound(problems)) < 1e-300


def test_refusals() -> None:
    deficient = LeastSquares(torch.tensor([[[1.0, 2.0], [2.0, 4.0]]], dtype=F64), torch.ones(1, 2, dtype=F64))
    with pytest.raises(ValueError, match="needs β0 > 0"):
        schedule("Chebyshev", 3).solve(deficient)
    assert bool(schedule("silver", 3).bound(deficient).isinf().all())
    assert bool(schedule("silver", 3).bound(deficient, torch.ones(1)).isfinite().all())
    with pytest.raises(ValueError, match="smooth problems only"):
        schedule("OGM", 3).bound(draw(1, 0))
    with pytest.raises(ValueError, match="use OGM"):
        schedule("OptISTA", 3).solve(deficient)
    with pytest.raises(ValueError, match="schedule"):
        schedule("gold", 3)
    with pytest.raises(ValueError, match="horizon"):
        schedule("silver", -1)
    with pytest.raises(ValueError, match=r"radius has shape \(2,\); pass one number for each of 1"):
        schedule("silver", 3).bound(deficient, torch.ones(2))
    with pytest.raises(ValueError, match="negative"):
        schedule("silver", 3).bound(deficient, -torch.ones(1))
