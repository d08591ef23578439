"""The logistic solver: its guarantees, whatever is proposed; hard problems; what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot._learning.solve_status import SolveStatus
from surefoot._logistic.solver import LogisticSolution, LogisticSolver
from surefoot._problems import Lasso, Logistic

SOLVED, ITERATIONS, STALLED = SolveStatus.SOLVED, SolveStatus.ITERATIONS, SolveStatus.STALLED
WIDE, TALL = (12, 20), (30, 5)


def drawn(shape: tuple[int, int], lam: float, l2: float, count: int = 3, seed: int = 0) -> Logistic:
    return Logistic.random(count, *shape, sparsity=0.3, lam=lam, l2=l2, seed=seed)


def assert_safe(p: Logistic, found: LogisticSolution) -> None:
    """What is guaranteed of any run, against reference minimisers."""
    gap = found.objectives - p.optimal_value
    rounding = 1e-12 * found.objectives[0]
    assert found.objectives.shape == found.products.shape == found.bounds.shape
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())
    assert bool((found.products.diff(dim=0) >= 0.0).all())
    assert bool((gap <= found.bounds + rounding).all())
    assert bool((gap[-1] <= found.gap + p.gap_bound(p.optimum()) + rounding).all())
    assert bool((p.gap(found.solution) <= gap[-1] + rounding).all())


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize(("lam", "l2"), [(0.5, 0.0), (0.05, 0.0), (0.5, 0.3), (0.0, 1.0)])
def test_it_solves(shape: tuple[int, int], lam: float, l2: float) -> None:
    p = drawn(shape, lam, l2)
    found = LogisticSolver().solve(p, tolerance=1e-10)
    assert found.statuses == (SOLVED,) * 3
    assert bool((found.gap <= 1e-10 * found.objectives[-1]).all())
    assert bool((p.gap_bound(found.solution) <= 1e-9 * found.objectives[-1]).all())
    assert_safe(p, found)
    assert float(found.products[-1].max()) < 200.0


def test_each_problem_stops_for_itself() -> None:
    """Solved together they are what they are alone, bit by bit."""
    one, two = drawn(WIDE, 0.0, 1.0), drawn(WIDE, 0.0, 1.0, seed=1)
    lam, l2 = torch.tensor([0.1, 0.0, 0.3, 0.0, 1e-4, 0.0]), torch.tensor([0.0, 0.1, 0.2, 1e-5, 0.0, 1.0])
    p = Logistic(torch.cat([one.M, 1e-3 * two.M]), torch.cat([one.Y, two.Y]), lam, l2)
    together = LogisticSolver().solve(p, tolerance=1e-8)
    for n in range(6):
        alone = LogisticSolver().solve(p.select(slice(n, n + 1)), tolerance=1e-8)
        taken = len(alone.objectives)
        assert torch.equal(alone.solution[0], together.solution[n])
        assert torch.equal(alone.objectives[:, 0], together.objectives[:taken, n])
        assert torch.equal(alone.products[:, 0], together.products[:taken, n])
        assert float(together.products[-1, n]) == float(alone.products[-1, 0])
        assert together.statuses[n] is SOLVED


class Wrong:
    """Directions that no model made."""

    def __init__(self, kind: str, instance: object) -> None:
        self._kind, self._instance = kind, instance
        self._generator = np.random.default_rng(3)

    def step(self, point: object, gradient: np.ndarray) -> np.ndarray:
        noise = self._generator.standard_normal(len(gradient))
        return {
            "random": noise,
            "uphill": gradient,
            "zero": 0.0 * noise,
            "huge": 1e200 * noise,
            "nan": np.nan * noise,
        }[self._kind]

    def image(self, step: np.ndarray) -> np.ndarray:
        return self._instance.image(step)  # pyright: ignore[reportAttributeAccessIssue]

    def rejected(self) -> None:
        pass


@pytest.mark.parametrize("kind", ["random", "uphill", "zero", "huge", "nan"])
@pytest.mark.parametrize(("lam", "l2"), [(0.3, 0.0), (0.0, 0.5)])
def test_any_proposal_is_safe(kind: str, lam: float, l2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    p = drawn(WIDE, lam, l2)
    p.optimum()
    monkeypatch.setattr("surefoot._logistic.run.proposals", lambda instance, memory: Wrong(kind, instance))
    found = LogisticSolver().solve(p, 60)
    assert_safe(p, found)
    assert bool((found.objectives[-1] < found.objectives[0]).all())
    if kind != "random":
        assert float(found.accepted.sum()) == 0.0
    # what proximal steps of length 1/β are guaranteed to reach
    first, beta = found.objectives[0], 0.25 * p.M.square().sum((1, 2))
    radius = 2.0 * first / lam if lam else (8.0 * first / l2).sqrt()
    promised = 2.0 * beta * radius.square() / torch.arange(4.0, 64.0)[:, None]
    assert bool((found.bounds[1:] <= 1.001 * promised).all())


@pytest.mark.parametrize(("lam", "l2"), [(1e-3, 0.0), (0.0, 1e-6), (1e-5, 1e-7)])
def test_separable_labels(lam: float, l2: float) -> None:
    """Minimisers are far away, the weights of Newton's method nearly 0."""
    p = drawn((8, 20), lam, l2)
    found = LogisticSolver().solve(p, tolerance=1e-6)
    assert found.statuses == (SOLVED,) * 3
    assert bool((p.gap_bound(found.solution) <= 1.1e-6 * found.objectives[-1]).all())
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())
    assert float(found.objectives[-1].max()) < 0.05


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"problem 1 has lam = 0 and l2 = 0; .* pass lam > 0 or l2 > 0"):
        LogisticSolver().solve(Logistic(torch.ones(2, 3, 1), torch.ones(2, 3), [0.0, 0.0], [1.0, 0.0]))
    with pytest.raises(TypeError, match=r"Lasso; pass sf\.learned\.Logistic"):
        LogisticSolver().solve(Lasso.random(1, 4, 6))  # pyright: ignore[reportArgumentType]
    for scale in (1e160, 1e-160):
        with pytest.raises(ValueError, match=r"M\[0\] has the squared norm .*; rescale M"):
            LogisticSolver().solve(
                Logistic(scale * torch.ones(1, 2, 1, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64), 1.0)
            )
    elsewhere = drawn((4, 3), 0.1, 0.0)
    elsewhere.M = elsewhere.M.to("meta")
    with pytest.raises(ValueError, match=r"on meta; .*to\(device='cpu'\)"):
        LogisticSolver().solve(elsewhere)
    with pytest.raises(ValueError, match="memory"):
        LogisticSolver(memory=0)
    for options in ({"iterations": -1}, {"tolerance": -1.0}, {"start": torch.zeros(1, 2)}):
        with pytest.raises(ValueError, match=next(iter(options))):
            LogisticSolver().solve(drawn((4, 3), 0.1, 0.0), **options)  # pyright: ignore[reportArgumentType]


def test_where_curvatures_underflow_nothing_breaks() -> None:
    """Labels fitted by a margin of 1e4: the curvatures are 0, and so is μ times the square of the slope."""
    M = torch.full((1, 2, 1), 1e-60, dtype=torch.float64)
    p = Logistic(M, torch.ones(1, 2, dtype=torch.float64), 0.0, 1e-125)
    found = LogisticSolver().solve(p, 50, torch.full((1, 1), 1e64, dtype=torch.float64), tolerance=1e-6)
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())
    assert bool(found.solution.isfinite().all())


def test_equal_labels_and_columns_of_zeros() -> None:
    p = drawn(WIDE, 0.2, 0.0)
    M = p.M.clone()
    M[:, :, ::3] = 0.0
    for lam, l2 in ((0.2, 0.0), (0.0, 0.2), (0.2, 0.2)):
        q = Logistic(M, torch.ones_like(p.Y), lam, l2)
        found = LogisticSolver().solve(q, tolerance=1e-9)
        assert found.statuses == (SOLVED,) * 3
        assert not bool(found.solution[:, ::3].any())
        assert_safe(q, found)


def test_zero_is_the_minimiser_of_a_large_penalty() -> None:
    found = LogisticSolver().solve(drawn(WIDE, 1e3, 0.0))
    assert not bool(found.solution.any())
    assert bool((found.gap <= 1e-12 * found.objectives[-1]).all())
    assert found.products.tolist() == [[0.0] * 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    """float32 problems are solved in float64, and their solutions rounded."""
    p = drawn(WIDE, 0.3, 0.0).to(dtype=dtype)
    found = LogisticSolver().solve(p, tolerance=1e-10)
    assert found.solution.dtype == dtype
    assert found.objectives.dtype == torch.float64
    assert found.statuses == (SOLVED,) * 3
    unit = float(torch.finfo(dtype).eps)
    assert bool((p.gap_bound(found.solution) <= (1e-9 + 10.0 * unit) * found.objectives[-1]).all())


@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, 1), (1, 7), (9, 2), (6, 6)]),
    st.floats(-60.0, 60.0),
    st.floats(0.0, 8.0),
    st.floats(-6.0, 2.0),
    st.sampled_from(["lasso", "ridge", "both"]),
)
@settings(max_examples=40, deadline=None)
def test_the_objective_never_increases(
    seed: int, shape: tuple[int, int], scale: float, spread: float, strength: float, penalty: str
) -> None:
    """M of any scale with columns of any scales, from any start."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    scales = 10.0 ** (scale + spread * torch.rand(shape[1], generator=generator, dtype=torch.float64))
    M = normal(2, *shape) * scales
    size = float(M.abs().max())
    lam, l2 = 10.0**strength * size, 10.0**strength * size * size
    p = Logistic(M, normal(2, shape[0]).sign(), lam * (penalty != "ridge"), l2 * (penalty != "lasso"))
    found = LogisticSolver().solve(p, 30, 3.0 * normal(2, shape[1]) / scales, tolerance=1e-6)
    assert bool(found.objectives.isfinite().all())
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())
    assert bool((p.objective(found.solution) <= found.objectives[0] * (1.0 + 1e-9)).all())
    assert bool((found.gap >= 0.0).all())
    solved = [status is SOLVED for status in found.statuses]
    assert (found.gap <= 1e-6 * found.objectives[-1]).tolist() == solved


def test_how_it_ends() -> None:
    found = LogisticSolver().solve(drawn(WIDE, 0.3, 0.0), tolerance=1e-16)
    assert found.statuses == (STALLED,) * 3
    assert bool((found.gap <= 1e-11 * found.objectives[-1]).all())
    assert "3 problems of 20 columns" in repr(found) and "stalled" in repr(found)
    short = LogisticSolver().solve(drawn(WIDE, 0.3, 0.0), 1)
    assert short.statuses == (ITERATIONS,) * 3
    assert len(short.objectives) == 2
    none = LogisticSolver().solve(drawn(WIDE, 0.3, 0.0), 0)
    assert none.bounds.shape == (1, 3)
    assert none.products.tolist() == [[0.0] * 3]
    assert none.objectives[0].tolist() == pytest.approx([12.0 * math.log(2.0)] * 3)


def test_trajectory() -> None:
    p = drawn(WIDE, 0.3, 0.0)
    found = LogisticSolver().solve(p, tolerance=1e-8, trajectory=True)
    assert found.trajectory is not None
    assert torch.equal(found.trajectory[-1], found.solution)
    for x, value in zip(found.trajectory, found.objectives, strict=True):
        assert torch.allclose(p.objective(x), value, rtol=1e-13)


def test_many_problems_of_one_matrix() -> None:
    M = drawn((12, 4), 0.1, 0.0, 1).M.expand(300, 12, 4)
    labels = torch.randn(300, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sign()
    found = LogisticSolver().solve(Logistic(M, labels, 0.0, 0.1), tolerance=1e-8)
    assert set(found.statuses) == {SOLVED}
