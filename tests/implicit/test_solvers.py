"""The solvers: exact where A is diagonal, safe where the split cycles, few evaluations where A is nearly diagonal."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from surefoot._implicit.equilibrium import Equilibrium, EquilibriumStatus, solve
from surefoot._implicit.norms import row_norms_upper, spectral_norm_upper
from surefoot._implicit.solvers import SOLVERS, SolverMemory, SolverProblem
from surefoot._implicit.solvers.low_rank import LowRank, low_rank_model
from surefoot._implicit.solvers.split import Split

NAMES = [*SOLVERS, "auto"]
TWO_CYCLE = torch.tensor([[0.9, -(0.19**0.5)], [0.19**0.5, 0.9]], dtype=torch.float64)
TWO_CYCLE_PHI = torch.tensor([[0.004469004589473358, 1.8351239816421063]], dtype=torch.float64)


def trained(
    m: int = 400, rows: int = 60, size: float = 0.15, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """A = I plus a fast decaying low-rank part and a little noise, as gradient descent leaves it."""
    generator = torch.Generator().manual_seed(1)
    left = torch.linalg.qr(torch.randn(m, 40, generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(m, 40, generator=generator, dtype=torch.float64)).Q
    A = torch.eye(m, dtype=torch.float64) + size * (left * torch.exp(-torch.arange(40.0) / 3)) @ right.T
    A += 1e-6 * torch.randn(m, m, generator=generator, dtype=torch.float64)
    Phi = torch.randn(rows, m, generator=generator, dtype=torch.float64).relu() / m**0.5
    return A.to(dtype), Phi.to(dtype)


def reference(A: Tensor, Phi: Tensor, gamma: float) -> Tensor:
    Z = torch.zeros_like(Phi.double())
    for _ in range(2000):
        Z = (gamma * Z @ A.double() + Phi.double()).relu()
    return Z


def error(result: Equilibrium, exact: Tensor) -> float:
    return float(torch.linalg.vector_norm(result.Z.double() - exact))


def test_the_pure_split_cycles_where_the_map_contracts() -> None:
    memory = SolverMemory()
    problem = SolverProblem(TWO_CYCLE, TWO_CYCLE_PHI, 0.99, 0.99, torch.zeros(1, dtype=torch.float64), memory)
    split = Split(problem, memory)
    Z = torch.tensor([[4.5, 1.0]], dtype=torch.float64)
    points = []
    for _ in range(400):
        P = problem.product(Z, torch.empty_like(Z))
        T = P.relu()
        Z = split.propose(Z, P, T, T - Z).clone()
        points.append(Z)
    for before, after in zip(points[-50:], points[-49:], strict=False):
        assert float((after - before).abs().max()) > 0.1
        assert float((after - torch.tensor([[4.0, 1.0]])).abs().max()) > 0.1


@pytest.mark.parametrize("start", [None, torch.tensor([[4.5, 1.0]], dtype=torch.float64)])
@pytest.mark.parametrize("name", NAMES)
def test_the_safeguard_leaves_the_cycle(name: str, start: Tensor | None) -> None:
    norm = spectral_norm_upper(TWO_CYCLE)
    result = solve(TWO_CYCLE, TWO_CYCLE_PHI, 0.99, norm_A=norm, solver=name, start=start, max_iterations=5000)
    assert result.status is EquilibriumStatus.CONVERGED
    assert error(result, torch.tensor([[4.0, 1.0]], dtype=torch.float64)) <= 1e-9
    if name in ("newton", "auto"):
        assert result.iterations <= 40


@pytest.mark.parametrize("name", ["split", "low_rank", "auto"])
@pytest.mark.parametrize("m", [5, 300])
def test_a_diagonal_matrix_is_solved_without_a_product(name: str, m: int) -> None:
    A = torch.diag(torch.linspace(-1.0, 1.0, m, dtype=torch.float64))
    Phi = torch.rand(7, m, dtype=torch.float64)
    result = solve(A, Phi, 0.8, norm_A=1.0, solver=name)
    assert (result.status, result.iterations) == (EquilibriumStatus.CONVERGED, 1)
    torch.testing.assert_close(result.Z, Phi / (1 - 0.8 * A.diagonal()), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.8])
def test_every_solver_agrees_within_its_bound(gamma: float, name: str, dtype: torch.dtype) -> None:
    A, Phi = trained(m=150, rows=10, dtype=dtype)
    exact = reference(A, Phi, gamma)
    result = solve(A, Phi, gamma, norm_A=spectral_norm_upper(A), solver=name)
    assert result.status is EquilibriumStatus.CONVERGED
    assert error(result, exact) <= result.error
    assert (torch.linalg.vector_norm(result.Z.double() - exact, dim=1) <= result.row_errors).all()
    assert result.error <= 1e-3 * float(torch.linalg.vector_norm(exact))


@pytest.mark.parametrize("gamma", [0.5, 0.8])
def test_the_low_rank_model_saves_evaluations(gamma: float) -> None:
    A, Phi = trained()
    norm = spectral_norm_upper(A)
    counts = {
        name: solve(A, Phi, gamma, norm_A=norm, solver=name).iterations for name in ("plain", "split", "low_rank")
    }
    assert counts["low_rank"] + 2 <= counts["split"]
    assert 3 * counts["split"] <= counts["plain"] + 2


def test_a_warm_start_and_old_factors_save_evaluations() -> None:
    A, Phi = trained()
    norm = spectral_norm_upper(A)
    memory = SolverMemory()
    solve(A, Phi, 0.8, norm_A=norm, solver="low_rank", memory=memory)
    assert memory.basis is not None and memory.Z is not None
    start = memory.Z
    moved = A + 1e-5 * torch.outer(Phi[1], Phi[0]) / float(Phi[0] @ Phi[1])
    warm = solve(moved, Phi, 0.8, norm_A=1.1 * norm, solver="low_rank", memory=memory)
    assert error(warm, reference(moved, Phi, 0.8)) <= warm.error
    plain_cold = solve(moved, Phi, 0.8, norm_A=1.1 * norm, solver="plain")
    plain_warm = solve(moved, Phi, 0.8, norm_A=1.1 * norm, solver="plain", start=start)
    assert 1.3 * plain_warm.iterations <= plain_cold.iterations
    assert 3 * warm.iterations <= plain_warm.iterations


@pytest.mark.parametrize("solver", [Split, LowRank])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_defect_of_a_proposed_point_is_bounded_without_an_evaluation(
    solver: type[Split] | type[LowRank], dtype: torch.dtype
) -> None:
    A, Phi = trained(m=120, rows=20, dtype=dtype)
    gamma, memory = 0.8, SolverMemory()
    q = gamma * spectral_norm_upper(A) * (1 + 1e-12)
    problem = SolverProblem(A, Phi, gamma, q, torch.zeros(20, dtype=torch.float64), memory)
    rule = solver(problem, memory)
    Z = 0.9 * Phi
    for _ in range(30):
        P = problem.product(Z, torch.empty_like(Z))
        T = P.relu()
        Y = rule.propose(Z, P, T, T - Z)
        bound = rule.defects()
        assert bound is not None
        precise = Y.double()
        defect = torch.linalg.vector_norm((gamma * precise @ A.double() + Phi.double()).relu() - precise, dim=1)
        assert (defect <= bound + rule.defect_rounding()).all()
        assert (bound <= 2.0 * row_norms_upper(Y - Z) + 1e-30).all()
        Z = Y.clone()
    # In the end the iteration stands still: the bound without rounding would be wrong.
    assert (defect > bound).any()


def test_the_exact_rest_of_the_low_rank_model_is_bounded() -> None:
    A, Phi = trained(m=120, rows=2, dtype=torch.float32)
    memory = SolverMemory()
    model = low_rank_model(SolverProblem(A, Phi, 0.5, 0.6, torch.zeros(2, dtype=torch.float64), memory), memory)
    rest = A.double() - torch.diag(A.diagonal().double()) - model.Q.double() @ model.B.double()
    norm = float(torch.linalg.matrix_norm(rest))
    assert norm <= model.rest <= 2 * norm + 1e-4


def test_newton_ends_in_a_few_steps_next_to_the_limit() -> None:
    generator = torch.Generator().manual_seed(2)
    A = torch.linalg.qr(torch.randn(12, 12, generator=generator, dtype=torch.float64)).Q
    Phi = torch.randn(30, 12, generator=generator, dtype=torch.float64).relu()
    norm = spectral_norm_upper(A)
    gamma = 0.9999 / norm
    result = solve(A, Phi, gamma, norm_A=norm, solver="newton", tolerance=1e-8)
    assert result.status is EquilibriumStatus.CONVERGED
    assert result.iterations <= 12
    assert solve(A, Phi, gamma, norm_A=norm, solver="plain", tolerance=1e-8).iterations > result.iterations


def test_finished_rows_leave_the_iteration() -> None:
    # Forty rows are at their equilibrium after one step, one row contracts by 0.95 only.
    A = torch.zeros(4, 4, dtype=torch.float64)
    A[:2, :2] = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    Phi = torch.zeros(41, 4, dtype=torch.float64)
    Phi[:40, 2:] = torch.rand(40, 2, dtype=torch.float64) + 0.5
    Phi[40, :2] = torch.tensor([1.0, 0.25])
    exact = reference(A, Phi, 0.95)
    for name in NAMES:
        for tolerance in (None, 1e-9):
            result = solve(A, Phi, 0.95, norm_A=1.0, solver=name, tolerance=tolerance)
            assert result.status is EquilibriumStatus.CONVERGED
            assert (torch.linalg.vector_norm(result.Z - exact, dim=1) <= result.row_errors).all()
            assert error(result, exact) <= result.error
            assert result.error <= 1.1e-9 * float(torch.linalg.vector_norm(exact))


def test_a_memory_of_another_problem_does_no_harm() -> None:
    memory = SolverMemory()
    for m, rows, dtype in ((150, 9, torch.float64), (150, 7, torch.float32), (140, 7, torch.float64)):
        A, Phi = trained(m=m, rows=rows, dtype=dtype)
        result = solve(A, Phi, 0.5, norm_A=spectral_norm_upper(A), solver="low_rank", memory=memory)
        assert result.status is EquilibriumStatus.CONVERGED
        assert result.Z.dtype == dtype
        assert error(result, reference(A, Phi, 0.5)) <= result.error


def test_no_gradient_is_recorded() -> None:
    A, Phi = trained(m=40, rows=3)
    for name in NAMES:
        result = solve(A.requires_grad_(), Phi.requires_grad_(), 0.5, norm_A=spectral_norm_upper(A), solver=name)
        assert not result.Z.requires_grad
        assert math.isfinite(result.error)
