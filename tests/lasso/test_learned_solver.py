"""The learned LASSO solver: safe for any weights and any proposal, and worth using with the trained ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from surefoot._lasso import learned_solver
from surefoot._lasso.learned_solver import LassoSolver
from surefoot._lasso.quasi_newton import Memory
from surefoot._problems import Lasso, LeastSquares


def drawn(count: int = 4, lam: float = 0.05, seed: int = 0, rows: int = 30, columns: int = 60) -> Lasso:
    return Lasso.random(count, rows, columns, sparsity=0.15, lam=lam, seed=seed)


def assert_safe(p: Lasso, solver: LassoSolver, iterations: int) -> learned_solver.LassoSolution:
    before = p.products
    found = solver.solve(p, iterations)
    gap = found.objectives - p.optimal_value
    assert found.objectives.shape == found.products.shape == found.bounds.shape == (iterations + 1, p.count)
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())
    assert bool((gap <= found.bounds).all())
    assert bool((found.products.diff(dim=0) >= 0.0).all())
    assert float(found.products[-1].max()) <= p.products - before
    assert bool((p.gap(found.solution) <= gap[-1] + 1e-12 * found.objectives[0]).all())
    return found


@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("patience", [1, 10])
def test_any_weights_are_safe(size: float, patience: int) -> None:
    generator = torch.Generator().manual_seed(patience)
    p = drawn()
    for _ in range(3):
        weights = size * torch.randn(len(learned_solver.WEIGHTS), generator=generator, dtype=torch.float64)
        assert_safe(p, LassoSolver(weights, patience=patience, memory=5), 40)


@pytest.mark.parametrize("proposal", ["random", "uphill", "zero", "huge", "nan", "mixed"])
def test_any_proposal_is_safe(proposal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions that no model made: accelerated steps take over, and reach what their rate promises."""
    generator = torch.Generator().manual_seed(7)

    def direction(run: learned_solver._Run, shrink: Tensor) -> Tensor:
        noise = torch.randn(run.point.x.shape, generator=generator, dtype=run.point.x.dtype)
        made = {
            "random": noise,
            "uphill": run.gradient,
            "zero": torch.zeros_like(noise),
            "huge": 1e200 * noise,
            "nan": torch.full_like(noise, math.nan),
        }
        if proposal != "mixed":
            return made[proposal]
        return torch.stack([made[name][n] for n, name in enumerate(("random", "uphill", "nan", "huge"))])

    monkeypatch.setattr(learned_solver._Run, "_direction", direction)
    p = drawn(seed=1)
    found = assert_safe(p, LassoSolver(patience=3), 120)
    assert bool((found.proposals >= 3).all())
    if proposal in ("uphill", "zero", "huge", "nan"):
        assert float(found.accepted.sum()) == 0.0
        assert bool((found.proposals == 3).all())
        assert bool((found.products[:, 0] == torch.tensor([0.0, 3.0, 6.0, 9.0, *range(12, 246, 2)])).all())
    # after leaving at K = 3 with x_K: 2β‖x_K - x*‖²/(t - K + 1)²
    short = LassoSolver(patience=3, limit=3).solve(p, 3)
    distance = (short.solution - p.optimum()).norm(dim=1)
    if proposal in ("uphill", "zero", "nan"):
        promised = 2.0 * p.smoothness * distance.square() / 118.0**2
        assert bool((found.objectives[-1] - p.optimal_value <= promised + 1e-13).all())


def test_every_accepted_step_decreases_by_the_model_decrease() -> None:
    p = drawn(seed=2)
    solver = LassoSolver()
    run = learned_solver._Run(solver, p, p.start())
    everywhere = torch.ones(p.count, dtype=torch.bool)
    seen = 0
    for _ in range(8):
        x = run.point.x
        gradient = p.gradient(x)
        beta = p.smoothness[:, None]
        safe = p.prox(x - gradient / beta, (1.0 / beta).expand_as(x))
        d = safe - x
        model = -(gradient * d + 0.5 * beta * d.square() + p.lam[:, None] * (safe.abs() - x.abs())).sum(1)
        before = p.objective(x)
        good = run._step(torch.ones(p.count, dtype=torch.float64), everywhere)
        after = p.objective(run.point.x)
        assert bool((after <= before - model + 1e-13 * before).all())
        torch.testing.assert_close(
            run.gradient, p.gradient(run.point.x), rtol=0.0, atol=1e-13 * float(gradient.norm() + 1)
        )
        assert bool(((run.gradient - p.gradient(run.point.x)).norm(dim=1) <= 2.0 * run.gradient_error).all())
        seen += int(good.sum())
    assert seen >= 16


def test_trained_weights_beat_fista_twice() -> None:
    """A small version of benchmarks/learned_lasso.py, on problems it was not trained on."""
    for lam in (0.1, 0.02):
        p = drawn(4, lam, seed=11, rows=100, columns=200)
        best, step = p.optimal_value, (1.0 / p.smoothness)[:, None].expand(-1, p.columns)
        x = y = p.start()
        tau, hits = 1.0, torch.full((p.count,), math.inf, dtype=torch.float64)
        for t in range(1, 1000):
            new = p.prox(y - step * p.gradient(y), step)
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * tau**2))
            x, y, tau = new, new + (tau - 1.0) / following * (new - x), following
            hits = torch.where((p.objective(x) - best <= 1e-4 * best) & hits.isinf(), 2.0 * t, hits)
            if bool(hits.isfinite().all()):
                break
        assert float(hits.mean()) >= 2.0 * float(LassoSolver().cost(p, 100).mean())


def test_bounds_and_cost_of_two_phases() -> None:
    p = drawn(seed=3)
    found = assert_safe(p, LassoSolver(limit=4), 30)
    assert bool((found.proposals == 4).all())
    first = found.objectives[0]
    radius = 2.0 * first / p.lam
    expected = (2.0 * p.smoothness * radius.square() / 7.0).minimum(first)
    torch.testing.assert_close(found.bounds[4], expected)
    assert bool((found.products[5:].diff(dim=0) == 2.0).all())


def test_stops_at_the_duality_gap() -> None:
    p = drawn(seed=4)
    for solver, tolerance in ((LassoSolver(), 1e-8), (LassoSolver(limit=3), 1e-4)):
        found = solver.solve(p, 1000, tolerance=tolerance)
        assert len(found.objectives) < 1000
        assert bool((found.gap <= 1.01 * tolerance * found.objectives[-1]).all())
        assert bool((p.gap(found.solution) <= found.gap).all())


def test_a_problem_that_leaves_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = learned_solver._Run._direction

    def direction(run: learned_solver._Run, shrink: Tensor) -> Tensor:
        d = learned(run, shrink)
        d[0] = math.nan
        return d

    p = drawn(seed=4)
    alone = LassoSolver().solve(p, 1000, tolerance=1e-4)
    monkeypatch.setattr(learned_solver._Run, "_direction", direction)
    found = LassoSolver(patience=2).solve(p, 1000, tolerance=1e-4)
    assert float(found.proposals[0]) == 2.0
    assert bool((found.gap <= 1.01e-4 * found.objectives[-1]).all())
    assert float(found.proposals[1:].max()) <= float(alone.proposals.max())
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())


@pytest.mark.parametrize("limit", [0, 3, 1000])
def test_the_bound_before_any_step_is_the_objective(limit: int) -> None:
    """From a short start with Y near 0, 2βR² is far below F(x_0) - F*: the rates are about one step and more."""
    p = drawn(seed=6)
    p = Lasso(p.M, 1e-12 * p.Y, p.lam)
    start = torch.full((p.count, p.columns), 1e-6, dtype=torch.float64)
    found = LassoSolver(limit=limit).solve(p, 8, start=start)
    gap = found.objectives - p.optimal_value
    assert bool((gap[0] > 2.0 * p.smoothness * (2.0 * found.objectives[0] / p.lam).square()).all())
    assert bool((gap <= found.bounds).all())


def test_a_problem_that_left_and_waits_keeps_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves at once, within the tolerance; the others go on, and no rate speaks of a point that stays."""
    learned = learned_solver._Run._direction

    def direction(run: learned_solver._Run, shrink: Tensor) -> Tensor:
        d = learned(run, shrink)
        d[0] = math.nan
        return d

    monkeypatch.setattr(learned_solver._Run, "_direction", direction)
    p = drawn(seed=4)
    p = Lasso(p.M, torch.cat([1e-8 * p.Y[:1], p.Y[1:]]), p.lam)  # minimised by 0 in one safe step
    start = p.start()
    start[0] = 1e-6
    found = LassoSolver(patience=1).solve(p, 1000, start=start, tolerance=1e-6)
    assert float(found.proposals[0]) == 1.0 and len(found.bounds) > 5
    assert float(found.bounds[1, 0]) < float(found.objectives[0, 0])
    assert bool((found.bounds[1:, 0] == found.bounds[1, 0]).all())


def test_no_iterations_and_a_start() -> None:
    p = drawn(seed=5)
    found = LassoSolver().solve(p, 0)
    assert found.objectives.shape == (1, 4) and bool((found.solution == 0.0).all())
    warm = LassoSolver().solve(p, 10, start=p.optimum())
    torch.testing.assert_close(warm.objectives[-1], p.optimal_value, rtol=1e-12, atol=0.0)


def test_the_cost_of_a_solved_problem() -> None:
    p = drawn()
    p = Lasso(p.M, torch.cat([0.0 * p.Y[:1], p.Y[1:]]), p.lam)  # F* = 0
    assert bool(LassoSolver().cost(p, 100).isfinite().all())
    assert float(LassoSolver().cost(p.select(slice(0, 1)), 100)) == 0.0


def test_does_not_depend_on_units() -> None:
    p = drawn(seed=6)
    scaled = Lasso(8.0 * p.M, 2.0 * p.Y, 16.0 * p.lam)
    found, other = LassoSolver().solve(p, 12), LassoSolver().solve(scaled, 12)
    torch.testing.assert_close(other.solution, 0.25 * found.solution, rtol=1e-9, atol=1e-12)


def test_float32_and_zero_columns() -> None:
    p = drawn(seed=7)
    M = p.M.clone()
    M[:, :, ::7] = 0.0
    M[:, :, 1] = M[:, :, 2]
    single = Lasso(M.float(), p.Y.float(), 0.05)
    found = LassoSolver().solve(single, 300)
    assert bool((found.objectives.diff(dim=0) <= 0.0).all())
    assert bool((single.gap(found.solution) <= 1e-5 * single.optimal_value).all())


def test_training_lowers_the_cost_and_repeats() -> None:
    batches = [drawn(2, 0.05, seed=20, rows=10, columns=20), drawn(2, 0.1, seed=21, rows=10, columns=20)]
    runs = []
    for _ in range(2):
        solver = LassoSolver([1.2, 0, 0, 1.0, 0, 0, 0, 0])
        runs.append((solver.train(batches, 4, iterations=20, seed=3), solver.weights))
    assert runs[0][0] == runs[1][0] and torch.equal(runs[0][1], runs[1][1])
    assert runs[0][0][-1] < runs[0][0][0]
    assert len(runs[0][0]) == 5


def test_model_agrees_with_the_matrix_on_what_it_has_seen(generator: torch.Generator) -> None:
    M = torch.randn(3, 8, 12, generator=generator, dtype=torch.float64)
    S = 0.5 + torch.rand(3, 12, generator=generator, dtype=torch.float64)
    memory = Memory(M, 7)
    gram = M.transpose(1, 2) @ M
    directions = torch.randn(7, 3, 12, generator=generator, dtype=torch.float64)
    directions[3] = directions[2]  # depends on the one before
    for d in directions:
        memory.add(d, (M @ d[:, :, None]).squeeze(2), (gram @ d[:, :, None]).squeeze(2))
    model = memory.model(S)
    assert memory.size == 7
    for d in directions:
        torch.testing.assert_close(model.times(d), (gram @ d[:, :, None]).squeeze(2), rtol=1e-10, atol=1e-10)
    dense = torch.stack([model.times(torch.eye(12, dtype=torch.float64)[i].expand(3, 12)) for i in range(12)], dim=2)
    assert float(torch.linalg.eigvalsh(dense).min()) >= -1e-10
    x, g = torch.randn(2, 3, 12, generator=generator, dtype=torch.float64)
    threshold = torch.rand(3, 12, generator=generator, dtype=torch.float64)
    smoothness = torch.linalg.matrix_norm(M, 2).square()
    d = model.minimise(x, g, threshold, smoothness, 3000)
    slope = g + model.times(d)
    moved = x + d
    on = torch.where(moved == 0.0, (slope.abs() - threshold).clamp(min=0.0), slope + threshold * moved.sign())
    assert float(on.abs().max()) <= 1e-9


def test_a_solution_is_shown_by_what_it_came_to() -> None:
    problems = Lasso.random(3, 20, 40, lam=0.1, seed=0)
    found = LassoSolver().solve(problems, 30)
    shown = repr(found)
    assert len(shown) < 250 and "tensor" not in shown and "\n" not in shown
    assert "3 problems of 40 columns after 30 iterations" in shown
    assert f"mean F {float(problems.objective(found.solution).mean()):.6g}" in shown
    assert f"{float(found.gap.max()):.3g}" in shown and f"{found.accepted_share:.1%}" in shown
    assert "1 problem of 40" in repr(LassoSolver().solve(Lasso.random(1, 20, 40), 0))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="weights has 2 entries"):
        LassoSolver([0.0, 1.0])
    with pytest.raises(ValueError, match="weights"):
        LassoSolver([math.nan] * 8)
    with pytest.raises(ValueError, match="patience"):
        LassoSolver(patience=0)
    with pytest.raises(TypeError, match="problems is a LeastSquares"):
        LassoSolver().solve(LeastSquares.random(2, 4, 6), 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"problems\.lam has a zero"):
        LassoSolver().solve(drawn(lam=0.0), 3)
    with pytest.raises(ValueError, match="batches is empty"):
        LassoSolver().train([])
