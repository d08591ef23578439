"""The LASSO solver: safe for any weights and any proposal, and worth using."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from surefoot._lasso import compiled, learned_solver
from surefoot._lasso.learned_solver import WEIGHTS, LassoSolver
from surefoot._lasso.solution import LassoSolution
from surefoot._learning.solve_status import SolveStatus
from surefoot._problems import Lasso, LeastSquares

F64 = torch.float64


def drawn(count: int = 4, lam: float = 0.05, seed: int = 0, rows: int = 30, columns: int = 60) -> Lasso:
    return Lasso.random(count, rows, columns, sparsity=0.15, lam=lam, seed=seed)


def assert_safe(p: Lasso, solver: LassoSolver, iterations: int, **options: Any) -> LassoSolution:
    found = solver.solve(p, iterations, **options)
    gap = found.objectives - p.optimal_value
    assert found.objectives.shape == found.products.shape == found.bounds.shape
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())
    assert bool((gap <= found.bounds).all())
    assert bool((found.products.diff(dim=0) >= 0.0).all())
    assert bool((p.gap(found.solution) <= found.gap).all())
    torch.testing.assert_close(found.objectives[-1], p.double.objective(found.solution.double()), rtol=1e-13, atol=0.0)
    return found


@pytest.mark.parametrize("size", [1.0, 30.0, 1e100])
def test_any_weights_are_safe(size: float) -> None:
    generator = torch.Generator().manual_seed(1)
    p = drawn()
    for _ in range(4):
        weights = size * torch.randn(len(WEIGHTS), generator=generator, dtype=F64)
        found = assert_safe(p, LassoSolver(weights), 300, tolerance=1e-9)
        assert found.status is SolveStatus.SOLVED


@pytest.mark.parametrize("proposal", ["random", "uphill", "stay", "huge", "nan", "mixed"])
def test_any_proposal_is_safe(proposal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that no model made: proximal steps take over, and keep what their rate promises."""
    g = np.random.default_rng(7)
    calls = 0

    def propose(T: Any, squares: Any, lam: float, x: Any, r: Any, chosen: Any, *options: Any) -> int:
        nonlocal calls
        kind = proposal if proposal != "mixed" else ("random", "uphill", "nan", "huge")[calls % 4]
        calls += 1
        moves: dict[str, Callable[[], Any]] = {
            "random": lambda: g.standard_normal(x.size),
            "uphill": lambda: T @ r,
            "stay": lambda: np.zeros(x.size),
            "huge": lambda: 1e200 * g.standard_normal(x.size),
            "nan": lambda: np.full(x.size, np.nan),
        }
        x += moves[kind]()
        return 0

    monkeypatch.setattr(compiled, "propose", propose)
    monkeypatch.setattr(compiled, "solve", compiled.solve.py_func)
    p = drawn(2, seed=1)
    found = assert_safe(p, LassoSolver(), 60)
    assert bool((found.accepted == 0).all())
    norm = torch.linalg.matrix_norm(p.M, 2)
    steps = torch.arange(1, 61, dtype=F64)[:, None]
    radius = 2.0 * found.objectives[0] / p.lam
    assert bool((found.bounds[1:] <= 8.0 * norm.square() * radius.square() / (steps + 3.0)).all())
    # by far not the worst case
    assert bool((found.objectives[-1] - p.optimal_value <= 0.05 * found.objectives[0]).all())


def test_it_beats_fista_twice() -> None:
    """A small version of benchmarks/learned_lasso.py, on held-out problems."""
    for lam in (0.1, 0.02):
        p = drawn(4, lam, seed=11, rows=100, columns=200)
        best, step = p.optimal_value, (1.0 / p.smoothness)[:, None].expand(-1, p.columns)
        x = y = p.start()
        tau, hits = 1.0, torch.full((p.count,), math.inf, dtype=F64)
        for t in range(1, 1000):
            new = p.prox(y - step * p.gradient(y), step)
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * tau**2))
            x, y, tau = new, new + (tau - 1.0) / following * (new - x), following
            hits = torch.where((p.objective(x) - best <= 1e-4 * best) & hits.isinf(), 2.0 * t, hits)
            if bool(hits.isfinite().all()):
                break
        assert float(hits.mean()) >= 2.0 * float(LassoSolver().cost(p, 100).mean())


def test_products_are_counted_by_columns() -> None:
    """Of one iteration by hand: what a working set of the largest violation costs, and the gradient before it."""
    M = torch.eye(4, dtype=F64)[None]
    p = Lasso(M, torch.tensor([[4.0, 1.0, 0.1, 0.0]], dtype=F64), 0.5)
    found = LassoSolver([-1e9, 0.0, 0.0]).solve(p, 1)
    # columns of 4: gradient 4; a sweep over one 1 + 1, conjugate gradients that stop at once 2; the same without a change 1 + 2;
    # the move 1
    assert found.products[:, 0].tolist() == [0.0, 3.0]
    assert found.solution[0].tolist() == [3.5, 0.0, 0.0, 0.0]
    assert found.status is SolveStatus.ITERATIONS


def test_stops_at_the_duality_gap_and_each_problem_at_its_own() -> None:
    p = drawn(seed=4)
    p = Lasso(p.M, torch.cat([0.3 * p.Y[:1], p.Y[1:]]), p.lam)
    for tolerance in (1e-4, 1e-8, 1e-12):
        found = assert_safe(p, LassoSolver(), 1000, tolerance=tolerance)
        assert found.status is SolveStatus.SOLVED and set(found.statuses) == {SolveStatus.SOLVED}
        assert bool((found.gap <= tolerance * found.objectives[-1]).all())
        moving = (found.products.diff(dim=0) > 0.0).sum(0)
        assert int(moving.max()) == len(found.objectives) - 1 and len(set(moving.tolist())) > 1
        for n in range(p.count):
            alone = LassoSolver().solve(p.select(slice(n, n + 1)), 1000, tolerance=tolerance)
            assert torch.equal(alone.solution[0], found.solution[n])


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize(("rows", "columns"), [(3, 40), (40, 3), (1, 5), (5, 1)])
def test_sizes(count: int, rows: int, columns: int) -> None:
    p = Lasso.random(count, rows, columns, sparsity=0.3, lam=0.05, seed=count + rows)
    found = LassoSolver().solve(p, 1000, tolerance=1e-9)
    assert found.status is SolveStatus.SOLVED
    assert bool((p.gap_bound(found.solution) <= 2e-9 * found.objectives[-1] + 1e-14).all())


def test_how_a_run_ends() -> None:
    p = drawn(3, seed=4)
    large = Lasso(p.M, p.Y, 1.01 * p.adjoint(p.Y).abs().amax(1))
    at_once = LassoSolver().solve(large, 100, tolerance=0.0)
    assert at_once.status is SolveStatus.SOLVED and len(at_once.objectives) == 1
    assert not bool(at_once.solution.any()) and float(at_once.gap.max()) == 0.0
    short = LassoSolver().solve(p, 2, tolerance=1e-12)
    assert short.status is SolveStatus.ITERATIONS and len(short.objectives) == 3
    assert "2 iterations" in repr(short) and "pass more" in str(short)
    stalled = assert_safe(p, LassoSolver(), 2000, tolerance=0.0)
    assert stalled.status is SolveStatus.STALLED and len(stalled.objectives) < 100
    assert float((stalled.gap / stalled.objectives[-1]).max()) < 1e-10
    mixed = Lasso(p.M, torch.cat([0.0 * p.Y[:1], p.Y[1:]]), p.lam)
    found = LassoSolver().solve(mixed, 2, tolerance=1e-12)
    assert found.statuses == (SolveStatus.SOLVED, SolveStatus.ITERATIONS, SolveStatus.ITERATIONS)
    assert "1 solved, 2 iterations" in repr(found)


def test_float32_says_that_it_can_do_no_better() -> None:
    p = drawn(seed=7)
    M = p.M.clone()
    M[:, :, ::7] = 0.0
    M[:, :, 1] = M[:, :, 2]
    single = Lasso(M.float(), p.Y.float(), 0.05)
    for tolerance, status in ((1e-5, SolveStatus.SOLVED), (1e-12, SolveStatus.STALLED)):
        found = LassoSolver().solve(single, 2000, tolerance=tolerance)
        assert found.solution.dtype == torch.float32 and found.status is status
        assert len(found.objectives) < 100
        assert bool((single.gap(found.solution) <= found.gap).all())
        assert bool((found.gap <= 1e-5 * found.objectives[-1]).all())


@pytest.mark.parametrize("limit", [1, 8])
def test_the_bound_before_any_step_is_the_objective(limit: int) -> None:
    """From a short start with Y near 0, 2βR² is far below F(x_0) - F*: the rates are about one step and more."""
    p = drawn(seed=6)
    p = Lasso(p.M, 1e-12 * p.Y, p.lam)
    start = torch.full((p.count, p.columns), 1e-6, dtype=F64)
    found = LassoSolver().solve(p, limit, start=start)
    gap = found.objectives - p.optimal_value
    assert bool((found.bounds[0] > found.objectives[0]).all())
    torch.testing.assert_close(found.bounds[0], found.objectives[0], rtol=1e-12, atol=0.0)
    assert bool((gap <= found.bounds).all()) and bool((found.bounds[1] < 0.1 * found.bounds[0]).all())


def test_no_iterations_and_a_start() -> None:
    p = drawn(seed=5)
    found = LassoSolver().solve(p, 0)
    assert found.objectives.shape == (1, 4) and bool((found.solution == 0.0).all())
    warm = LassoSolver().solve(p, 10, start=p.optimum())
    assert warm.objectives.shape == (11, 4)
    torch.testing.assert_close(warm.objectives[-1], p.optimal_value, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("matrix", "target"), [(1e150, 1e150), (1e-150, 1e150), (1e150, 1e-150), (1e-150, 1e-2)])
def test_does_not_depend_on_units(matrix: float, target: float) -> None:
    p = drawn(seed=6)
    a, b = 2.0 ** round(math.log2(matrix)), 2.0 ** round(math.log2(target))
    found = LassoSolver().solve(p, 300, tolerance=1e-9)
    other = LassoSolver().solve(Lasso(a * p.M, b * p.Y, a * b * p.lam), 300, tolerance=1e-9)
    assert torch.equal(other.solution / b * a, found.solution)
    assert other.statuses == found.statuses and torch.equal(other.products, found.products)
    if 1e-290 < b * b < 1e290:
        assert torch.equal(other.objectives, b * b * found.objectives)


def test_what_underflows_is_not_rounded_down() -> None:
    p = drawn(2, seed=3)
    found = LassoSolver().solve(Lasso(p.M, 1e-170 * p.Y, 1e-170 * p.lam), 2)
    assert bool((found.gap > 0.0).all()) and bool((found.bounds > 0.0).all())


def test_what_was_large_at_the_start_is_forgotten() -> None:
    """The objective is that of x in exact arithmetic, relative to itself, and so are the gap and the status."""
    for seed, far in ((0, 1e6), (1, 1e11), (2, 1e15)):
        p = drawn(1, seed=seed, rows=3, columns=5)
        M, y, lam = p.M[0].tolist(), p.Y[0].tolist(), Fraction(float(p.lam[0]))
        start = far * torch.randn(1, 5, generator=torch.Generator().manual_seed(seed), dtype=F64)
        found = LassoSolver().solve(p, 300, start=start, tolerance=1e-2)
        x = [Fraction(v) for v in found.solution[0].tolist()]
        residual = [
            sum(Fraction(a) * v for a, v in zip(row, x, strict=True)) - Fraction(b) for row, b in zip(M, y, strict=True)
        ]
        value = float(sum(v * v for v in residual) / 2 + lam * sum(abs(v) for v in x))
        assert found.status is SolveStatus.SOLVED
        assert float(found.objectives[-1, 0]) == pytest.approx(value, rel=1e-10)
        assert value - float(p.optimal_value) <= float(found.gap)


def test_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not arguments[-1][0]:
            time.sleep(0.001)

    problem = drawn(1)
    solve: Any = compiled.solve
    calls: list[Any] = []
    monkeypatch.setattr(compiled, "solve", lambda *arguments: calls.append(arguments) or solve(*arguments))
    assert len(LassoSolver().solve(problem, 2).objectives) == 3
    monkeypatch.setattr(compiled, "solve", endless)
    with pytest.raises(KeyboardInterrupt):
        LassoSolver().solve(problem, 2)
    *arguments, stop = calls[0]
    stop[0] = True
    taken, how, *_ = solve(*arguments, stop)
    assert (taken, how) == (0, compiled.ITERATIONS)


def test_hard_matrices() -> None:
    """Condition 1e12, columns of scales from 1e-8 to 1e8, zero columns, equal columns."""
    g = torch.Generator().manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(3, n, 20, generator=g, dtype=F64))[0] for n in (20, 40))
    steep = U * torch.logspace(0, -12, 20, dtype=F64) @ V.transpose(1, 2)
    scaled = drawn(3, rows=20, columns=40).M * torch.logspace(-8, 8, 40, dtype=F64)
    scaled[:, :, ::9] = 0.0
    scaled[:, :, 11] = scaled[:, :, 10]
    for M in (steep, scaled):
        Y = torch.randn(3, 20, generator=g, dtype=F64)
        lam = 1e-3 * torch.bmm(Y[:, None], M).abs().amax((1, 2))
        p = Lasso(M, Y, lam)
        found = LassoSolver().solve(p, 3000, tolerance=1e-6)
        assert found.status is SolveStatus.SOLVED
        assert bool((p.gap_bound(found.solution) <= 1.1e-6 * found.objectives[-1]).all())
        assert bool((found.objectives.diff(dim=0) <= 0.0).all())


def test_one_matrix_for_all() -> None:
    M = drawn(1).M[0]
    shared = Lasso.from_matrix(M, count=3, lam=0.1, seed=2)
    apart = Lasso(shared.M.clone(), shared.Y, 0.1)
    found, other = (LassoSolver().solve(p, 100, tolerance=1e-8) for p in (shared, apart))
    assert torch.equal(found.solution, other.solution)


def test_the_cost_of_a_solved_problem() -> None:
    p = drawn()
    p = Lasso(p.M, torch.cat([0.0 * p.Y[:1], p.Y[1:]]), p.lam)  # F* = 0
    assert bool(LassoSolver().cost(p, 100).isfinite().all())
    assert float(LassoSolver().cost(p.select(slice(0, 1)), 100)) == 0.0


def test_training_lowers_the_cost_and_repeats() -> None:
    batches = [drawn(2, 0.05, seed=20, rows=10, columns=20), drawn(2, 0.1, seed=21, rows=10, columns=20)]
    runs = []
    for _ in range(2):
        solver = LassoSolver([3.0, -4.0, -4.0])
        runs.append((solver.train(batches, 12, scale=2.0, iterations=20, seed=3), solver.weights))
    assert runs[0][0] == runs[1][0] and torch.equal(runs[0][1], runs[1][1])
    assert runs[0][0][-1] < runs[0][0][0]
    assert len(runs[0][0]) == 13


def test_a_solution_is_shown_by_what_it_came_to() -> None:
    problems = Lasso.random(3, 20, 40, lam=0.1, seed=0)
    found = LassoSolver().solve(problems, 300, tolerance=1e-6)
    shown = repr(found)
    assert len(shown) < 250 and "tensor" not in shown and "\n" not in shown
    assert f"3 problems of 40 columns, solved after {len(found.objectives) - 1} iterations" in shown
    assert f"mean F {float(problems.objective(found.solution).mean()):.6g}" in shown
    assert f"{float(found.gap.max()):.3g}" in shown and f"{found.accepted_share:.1%}" in shown
    assert "1 problem of 40" in repr(LassoSolver().solve(Lasso.random(1, 20, 40), 0))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="weights has 2 entries"):
        LassoSolver([0.0, 1.0])
    with pytest.raises(ValueError, match="weights"):
        LassoSolver([math.nan] * len(WEIGHTS))
    with pytest.raises(TypeError, match="problems is a LeastSquares"):
        LassoSolver().solve(LeastSquares.random(2, 4, 6), 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"problems\.lam has a zero"):
        LassoSolver().solve(drawn(lam=0.0), 3)
    with pytest.raises(ValueError, match="batches is empty"):
        LassoSolver().train([])
    assert learned_solver.LassoSolver().weights.dtype == F64
