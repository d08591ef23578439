"""The adjoint, and the gradient with its error bounds (Proposition 8, Lemma 9 of docs/theorems/implicit.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot._implicit.adjoint import (
    Bound,
    Gradient,
    absolute_norm_upper,
    adjoint,
    equilibrium_errors,
    gradient,
    solve_linear,
    structural_columns,
)
from surefoot._implicit.equilibrium import EquilibriumStatus, solve
from surefoot._implicit.network import ImplicitReLU
from surefoot._implicit.norms import spectral_norm_upper
from surefoot._implicit.solvers import SolverMemory

F64 = torch.float64

with (Path(__file__).resolve().parents[1] / "cases" / "implicit_relu.json").open() as _file:
    CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.load(_file)["cases"]}
BACKWARD = [name for name, case in CASES.items() if case["kind"] == "forward_backward"]


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=F64)


def contraction(generator: torch.Generator, m: int, norm: float = 1.0) -> Tensor:
    """A random matrix of that norm."""
    A = normal(generator, m, m)
    return A * (norm / torch.linalg.matrix_norm(A, 2))


def equilibrium(A: Tensor, Phi: Tensor, gamma: float) -> Tensor:
    """By 400 plain iterations: 0.9^400 is below 1e-18."""
    Z = torch.zeros_like(Phi)
    for _ in range(400):
        Z = (gamma * Z @ A + Phi).relu()
    return Z


def dense_solution(B: Tensor, D: Tensor, C: Tensor, gamma: float) -> Tensor:
    """V = D ∘ (C + γVB) by one dense solve for each row, D in [0, 1]."""
    identity = torch.eye(len(B), dtype=F64)
    rows = [torch.linalg.solve(identity - gamma * d[:, None] * B.T, d * c) for d, c in zip(D, C, strict=True)]
    return torch.stack(rows)


@dataclass
class Instance:
    """A network and data, with the exact gradient for any convention at the kinks."""

    X: Tensor
    Y: Tensor
    W: Tensor
    A: Tensor
    b: Tensor
    gamma: float

    def reference(self, at_kinks: Tensor, at_input_kinks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients for W, A and b with these values of relu' (N, m) where |U|, |XW| < 1e-11, and 0 at structural zeros."""
        XW = self.X @ self.W
        at_kinks = at_kinks * ~((XW <= 0) & structural_columns(self.A))
        at_input_kinks = at_input_kinks * (self.W != 0).any(dim=0)
        Z = equilibrium(self.A, XW.relu(), self.gamma)
        U = self.gamma * Z @ self.A + XW.relu()
        D = torch.where(U.abs() < 1e-11, at_kinks, (U > 0).double())
        E = torch.where(XW.abs() < 1e-11, at_input_kinks, (XW > 0).double())
        r = Z @ self.b - self.Y
        V = dense_solution(self.A.T, D, r @ self.b.T, self.gamma)
        return self.X.T @ (E * V), self.gamma * Z.T @ V, Z.T @ r

    def computed(self, tolerance: float | None) -> Gradient:
        """By the library, with equilibrium and adjoint to that tolerance."""
        net = ImplicitReLU(self.W, self.A, self.b, self.gamma, tolerance=tolerance)
        return net.gradient(self.X, self.Y)


def random_instance(seed: int, N: int, d: int, m: int, p: int, q: float, zero_b: bool = False) -> Instance:
    generator = torch.Generator().manual_seed(seed)
    A = contraction(generator, m)
    b = torch.zeros(m, p, dtype=F64) if zero_b else normal(generator, m, p)
    return Instance(normal(generator, N, d), normal(generator, N, p), normal(generator, d, m), A, b, q)


def with_kinks(instance: Instance, seed: int) -> Instance:
    """The same with X = I and W changed so that some entries of U, and some of XW, are 0 (up to rounding)."""
    generator = torch.Generator().manual_seed(seed)
    N = len(instance.X)
    W = instance.X @ instance.W
    rest = instance.gamma * equilibrium(instance.A, W.relu(), instance.gamma) @ instance.A
    chosen = torch.rand(W.shape, generator=generator) < 0.5
    W = torch.where((W < 0) & (rest < 0) & chosen, -rest, W)
    W = torch.where((W < 0) & (torch.rand(W.shape, generator=generator) < 0.3), 0.0, W)
    return Instance(torch.eye(N, dtype=F64), instance.Y, W, instance.A, instance.b, instance.gamma)


def errors(computed: Gradient, reference: tuple[Tensor, Tensor, Tensor]) -> list[tuple[float, Bound]]:
    pairs = zip((computed.W, computed.A, computed.b), reference, strict=True)
    sizes = [float((ours.double() - exact).norm()) for ours, exact in pairs]
    return list(zip(sizes, (computed.W_error, computed.A_error, computed.b_error), strict=True))


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_of_the_reference_cases(name: str) -> None:
    case = CASES[name]
    X, y, W, A, b = (torch.tensor(case["inputs"][key], dtype=F64) for key in ("X", "y", "W", "A", "b"))
    result = ImplicitReLU(W, A, b, case["inputs"]["gamma"]).gradient(X, y)
    reference = [torch.tensor(case["expected"][f"grad_{key}"], dtype=F64) for key in ("W", "A", "b")]
    for ours, exact in zip((result.W, result.A, result.b.flatten()), reference, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-8, atol=1e-8)
    exact = (reference[0], reference[1], reference[2][:, None])
    assert all(size <= bound.total for size, bound in errors(result, exact))
    assert result.uncertain == 0 and result.A_error.kink == 0.0
    K = torch.tensor(case["expected"]["K"], dtype=F64)
    r = torch.tensor(case["expected"]["yhat"], dtype=F64) - y
    assert float((result.adjoint.V - r[:, None] * K).norm()) <= result.adjoint.error < 1e-7


@pytest.mark.parametrize("gamma", ["0.1", "0.5"])
def test_gradients_at_the_initialisation_of_the_paper(gamma: str) -> None:
    """A = I and b = 0: no gradient for W and A, and no uncertainty, although many entries of U are 0."""
    case = CASES[f"paper_init_gamma_{gamma}"]
    X, y, W = (torch.tensor(case["inputs"][key], dtype=F64) for key in ("X", "y", "W"))
    m = W.shape[1]
    net = ImplicitReLU(W, torch.eye(m, dtype=F64), torch.zeros(m, dtype=F64), case["inputs"]["gamma"])
    result = net.gradient(X, y)
    torch.testing.assert_close(
        result.b.flatten(), torch.tensor(case["expected"]["grad_b"], dtype=F64), rtol=1e-9, atol=0
    )
    assert not result.W.any() and not result.A.any()
    assert result.uncertain == 0 and result.structural == int((X @ W <= 0).sum()) > 0
    assert result.A_error.total < 1e-100 and result.W_error.total < 1e-100


@pytest.mark.parametrize("gamma", [0.3, 0.9])
@pytest.mark.parametrize("transposed", [False, True])
def test_linear_equation_against_dense_solves(gamma: float, transposed: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    A = contraction(generator, 7)
    B = A.T if transposed else A
    active, C = normal(generator, 5, 7) > 0, normal(generator, 5, 7)
    exact = dense_solution(B, active.double(), C, gamma)
    for tolerance in (1e-4, 1e-12):
        solution = solve_linear(B, active, C, gamma, norm_B=spectral_norm_upper(A), tolerance=tolerance)
        assert solution.status is EquilibriumStatus.CONVERGED
        assert float((solution.V - exact).norm()) <= tolerance * float((active * C).norm()) * 1.01


def test_diagonal_steps_that_diverge_give_way_to_plain_ones() -> None:
    """Rotation by 26°: the diagonal split multiplies the error by 4 at every step, the plain map by 0.99."""
    A = torch.tensor([[0.9, -(0.19**0.5)], [0.19**0.5, 0.9]], dtype=F64)
    active, C = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[1.0, 2.0]], dtype=F64)
    solution = solve_linear(A.T, active, C, 0.99, norm_B=1.0 + 1e-12, tolerance=1e-8)
    assert solution.status is EquilibriumStatus.CONVERGED
    torch.testing.assert_close(solution.V, dense_solution(A.T, active.double(), C, 0.99), rtol=1e-7, atol=0)


def test_diagonal_steps_and_a_near_start_save_evaluations() -> None:
    generator = torch.Generator().manual_seed(2)
    A = torch.eye(30, dtype=F64) + 0.01 * contraction(generator, 30)
    active, C = normal(generator, 20, 30) > 0, normal(generator, 20, 30)
    norm = spectral_norm_upper(A)
    q = 0.8 * norm
    V, plain, change = active * C, 0, float("inf")
    while q * change / (1.0 - q) > 1e-10 * float((active * C).norm()):
        V, last, plain = active * (C + 0.8 * V @ A.T), V, plain + 1
        change = float((V - last).norm())
    cold = solve_linear(A.T, active, C, 0.8, norm_B=norm, tolerance=1e-10)
    warm = solve_linear(A.T, active, C, 0.8, norm_B=norm, tolerance=1e-10, start=cold.V * (1.0 + 1e-6))
    assert float((cold.V - V).norm()) <= 2e-10 * float((active * C).norm())
    assert warm.iterations < cold.iterations < plain / 10


def test_float32_stops_at_rounding_level() -> None:
    """A tolerance that float32 cannot reach ends at rounding level instead of running on."""
    generator = torch.Generator().manual_seed(3)
    A = contraction(generator, 20).float()
    active, C = normal(generator, 10, 20) > 0, normal(generator, 10, 20).float()
    solution = solve_linear(A.T, active, C, 0.9, norm_B=spectral_norm_upper(A), tolerance=1e-30, max_iterations=1000)
    assert solution.status is EquilibriumStatus.CONVERGED
    exact = dense_solution(A.T.double(), active.double(), C.double(), 0.9)
    assert float((solution.V - exact).norm()) <= 1e-5 * float(exact.norm())


def test_statuses_of_the_linear_equation() -> None:
    A = 0.9 * torch.eye(3, dtype=F64).flip(0)
    active, C = torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=F64)
    short = solve_linear(A, active, C, 1.0, norm_B=0.9, max_iterations=3)
    assert (short.status, short.iterations) == (EquilibriumStatus.MAX_ITERATIONS, 3)
    assert solve_linear(A, active, C, 2.0, norm_B=0.9).status is EquilibriumStatus.NOT_CONTRACTING
    assert solve_linear(A, active, C / 0.0, 1.0, norm_B=0.9).status is EquilibriumStatus.NON_FINITE
    nothing = solve_linear(A, ~active, C, 1.0, norm_B=0.9)
    assert nothing.status is EquilibriumStatus.CONVERGED and not nothing.V.any()


def test_truncated_adjoint_keeps_its_bound() -> None:
    """After any number of evaluations the bound of each row encloses the exact adjoint."""
    generator = torch.Generator().manual_seed(4)
    A, b, r = contraction(generator, 6), normal(generator, 6, 2), normal(generator, 4, 2)
    active = normal(generator, 4, 6) > 0
    exact = dense_solution(A.T, active.double(), r @ b.T, 0.8)
    for evaluations in (1, 2, 5, 20, 200):
        result = adjoint(A, active, r, b, 0.8, norm_A=1.0 + 1e-12, max_iterations=evaluations, tolerance=1e-14)
        assert bool(((result.V - exact).norm(dim=1) <= result.row_errors).all())
    assert result.error < 1e-12 and not result.kink_errors.any()


def test_no_bound_where_the_map_does_not_contract() -> None:
    A = torch.eye(2, dtype=F64)
    r, b = torch.ones(1, 1, dtype=F64), torch.ones(2, 1, dtype=F64)
    result = adjoint(A, torch.ones(1, 2, dtype=torch.bool), r, b, 1.0, norm_A=1.0)
    assert result.status is EquilibriumStatus.NOT_CONTRACTING and result.error == float("inf")


sizes = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3))


@settings(max_examples=60)
@given(st.integers(0, 2**31), sizes, st.floats(0.05, 0.9), st.sampled_from([1e-2, 1e-5, 1e-9, None]), st.booleans())
def test_theorem_7_1_on_random_networks(
    seed: int, shape: tuple[int, int, int, int], q: float, tolerance: float | None, zero_b: bool
) -> None:
    """Loose solvers leave signs open; the true signs are one of the enclosed choices."""
    instance = random_instance(seed, *shape, q, zero_b)
    computed = instance.computed(tolerance)
    off = torch.zeros(len(instance.X), shape[2], dtype=F64)
    for size, bound in errors(computed, instance.reference(off, off)):
        assert size <= bound.total + 1e-12
    if computed.uncertain == 0:
        assert computed.A_error.kink == 0.0


@settings(max_examples=60)
@given(st.integers(0, 2**31), sizes, st.floats(0.05, 0.9), st.sampled_from([1e-2, 1e-6, None]))
def test_theorem_7_1_for_every_convention_at_kinks(
    seed: int, shape: tuple[int, int, int, int], q: float, tolerance: float | None
) -> None:
    """Entries of U and XW that are 0, with relu' there 0, 1 or anything between, different at every entry."""
    instance = with_kinks(random_instance(seed, *shape, q), seed)
    computed = instance.computed(tolerance)
    generator = torch.Generator().manual_seed(seed)
    for k in range(4):
        draws = torch.rand(2, *instance.W.shape, generator=generator, dtype=F64)
        at_kinks, at_input_kinks = draws.round() if k < 3 else draws
        for size, bound in errors(computed, instance.reference(at_kinks, at_input_kinks)):
            assert size <= bound.total + 1e-12


def test_the_random_kinks_are_found_and_matter() -> None:
    """The instances of the test above do have uncertain entries, and the conventions do disagree."""
    disagree = 0
    for seed in range(20):
        instance = with_kinks(random_instance(seed, 3, 3, 6, 1, 0.8), seed)
        off, on = (torch.full(instance.W.shape, value, dtype=F64) for value in (0.0, 1.0))
        difference = float((instance.reference(off, off)[1] - instance.reference(on, on)[1]).norm())
        computed = instance.computed(None)
        if difference > 1e-6:
            disagree += 1
            assert computed.uncertain > 0 and computed.A_error.kink >= 0.5 * difference
    assert disagree >= 10


@pytest.mark.parametrize("tolerance", [1e-4, 1e-10])
def test_kink_part_does_not_vanish_with_the_tolerance(tolerance: float) -> None:
    """γ = 1/2, A = [[0, -1], [0, 0]], Φ = (1, 1/2): U_2 = 0 exactly, and V_2 jumps by r b_2 between the conventions."""
    A = torch.tensor([[0.0, -1.0], [0.0, 0.0]], dtype=F64)
    X, W = torch.ones(1, 1, dtype=F64), torch.tensor([[1.0, 0.5]], dtype=F64)
    b = torch.tensor([1.0, 3.0], dtype=F64)
    result = ImplicitReLU(W, A, b, 0.5, tolerance=tolerance).gradient(X, torch.zeros(1, dtype=F64))
    jump = abs(float(result.residual * b[1]))
    assert result.uncertain == 1 and jump == pytest.approx(3.0)
    assert float(result.adjoint.kink_errors) >= jump
    assert float(result.adjoint.solver_errors) <= 40.0 * tolerance
    assert result.b_error.kink == 0.0


def test_solver_part_falls_with_the_tolerance() -> None:
    instance = random_instance(5, 4, 3, 6, 2, 0.8)
    loose, tight = instance.computed(1e-5), instance.computed(1e-12)
    assert tight.uncertain == 0
    for name in ("W_error", "A_error", "b_error"):
        assert getattr(tight, name).solver < 1e-4 * getattr(loose, name).solver
        assert getattr(tight, name).total < 1e-8


def test_structural_zeros_are_certain() -> None:
    """A = I: U is exactly 0 wherever XW ≤ 0, but no entry is uncertain, also with b ≠ 0."""
    generator = torch.Generator().manual_seed(6)
    X, W, b = normal(generator, 5, 3), normal(generator, 3, 8), normal(generator, 8)
    net = ImplicitReLU(W, torch.eye(8, dtype=F64), b, 0.5)
    result = net.gradient(X, normal(generator, 5))
    assert result.uncertain == 0 and result.structural == int((X @ W < 0).sum())
    assert result.A_error.kink == 0.0 and result.A_error.solver < 1e-6


def test_structural_columns() -> None:
    A = torch.tensor([[5.0, -1.0, 0.0], [-2.0, -1.0, 0.5], [0.0, 0.0, 1.0]], dtype=F64)
    assert structural_columns(A).tolist() == [True, True, False]


def test_a_positive_entry_in_a_column_ends_the_structure() -> None:
    A = torch.eye(2, dtype=F64)
    A[0, 1] = 1e-9
    X, W = torch.ones(1, 1, dtype=F64), torch.tensor([[1.0, -1.0]], dtype=F64)
    result = ImplicitReLU(W, A, torch.ones(2, dtype=F64), 0.5).gradient(X, torch.zeros(1, dtype=F64))
    assert (result.structural, result.uncertain) == (0, 0)
    assert float(result.adjoint.V[0, 1]) != 0.0


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_float32_bounds_hold_and_are_useful(q: float) -> None:
    """The reference takes the float32 numbers as exact."""
    for seed in range(5):
        exact = random_instance(seed, 6, 8, 24, 2, q)
        rounded = {key: getattr(exact, key).float() for key in ("X", "Y", "W", "A", "b")}
        computed = Instance(**rounded, gamma=exact.gamma / 1.001).computed(1e-6)
        assert computed.W.dtype == torch.float32
        off = torch.zeros(6, 24, dtype=F64)
        reference = Instance(**{key: value.double() for key, value in rounded.items()}, gamma=exact.gamma / 1.001)
        for size, bound in errors(computed, reference.reference(off, off)):
            assert size <= bound.total
        assert computed.b_error.solver <= 1e-3 * float(computed.b.norm())


@settings(max_examples=60)
@given(
    st.integers(0, 2**31), st.sampled_from([torch.float64, torch.float32]), st.floats(0.05, 0.95), st.integers(0, 30)
)
def test_equilibrium_errors_enclose_the_equilibrium(seed: int, dtype: torch.dtype, q: float, iterations: int) -> None:
    """At any Z, here that of a truncated iteration."""
    generator = torch.Generator().manual_seed(seed)
    X, W, A = normal(generator, 3, 4).to(dtype), normal(generator, 4, 5).to(dtype), contraction(generator, 5).to(dtype)
    gamma = q / 1.0001
    Phi = (X @ W).relu()
    Z = torch.zeros_like(Phi)
    for _ in range(iterations):
        Z = (gamma * Z @ A + Phi).relu()
    bounds = equilibrium_errors(X, W, A, Z, gamma, spectral_norm_upper(A))
    exact = equilibrium(A.double(), (X.double() @ W.double()).relu(), gamma)
    if q <= 0.9:  # otherwise 400 iterations are too few for the reference
        assert bool(((Z.double() - exact).norm(dim=1) <= bounds + 1e-14).all())
    assert bool(bounds.isfinite().all())


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_absolute_norm(seed: int, rows: int, columns: int, nonnegative: bool) -> None:
    M = normal(torch.Generator().manual_seed(seed), rows, columns)
    M = M.abs() if nonnegative else M
    bound = absolute_norm_upper(M)
    assert float(torch.linalg.matrix_norm(M.abs(), 2)) <= bound * (1.0 + 1e-14)
    assert bound <= float(M.norm()) * (1.0 + 1e-12)


def test_gradient_function_takes_an_equilibrium_of_its_caller() -> None:
    """With a start for the adjoint from nearby weights, as in training."""
    instance = random_instance(7, 5, 3, 8, 1, 0.7)
    net = ImplicitReLU(instance.W, instance.A, instance.b, 0.7)
    solved = net.equilibrium(instance.X)
    weights = (instance.X, instance.Y, instance.W, instance.A, instance.b, 0.7, solved)
    cold = gradient(*weights, norm_A=net.norm_A())
    warm = gradient(*weights, norm_A=net.norm_A(), start=cold.adjoint.V)
    assert warm.adjoint.iterations == 2 < cold.adjoint.iterations  # the first, at 0, is free
    assert float((warm.A - cold.A).norm()) <= warm.A_error.total + cold.A_error.total


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_low_rank_model_saves_evaluations_of_the_adjoint(dtype: torch.dtype, transposed: bool) -> None:
    """Of A as of its transpose; the solution is that without it."""
    g = torch.Generator().manual_seed(3)
    N, m, gamma = 12, 60, 0.7
    coupling = torch.zeros(m, m, dtype=torch.float64)  # rank 4, with the diagonal 0
    coupling[:30, 30:] = normal(g, 30, 2) @ normal(g, 2, 30)
    coupling += 0.5 * coupling.T
    A = torch.eye(m, dtype=torch.float64) * 0.7 + 0.5 * coupling / torch.linalg.matrix_norm(coupling, 2)
    A = (A + 1e-6 * torch.randn(m, m, generator=g, dtype=torch.float64)).to(dtype)
    norm = spectral_norm_upper(A)
    Phi = torch.randn(N, m, generator=g, dtype=torch.float64).relu().to(dtype)
    memory = SolverMemory()
    solve(A, Phi, gamma, norm_A=norm, solver="low_rank", memory=memory)
    model = memory.model
    assert model is not None
    C = torch.randn(N, m, generator=g, dtype=torch.float64).to(dtype)
    active = torch.rand(N, m, generator=g) < 0.6
    B, model = (A.T, model.transposed) if transposed else (A, model)
    modelled = solve_linear(B, active, C, gamma, norm_B=norm, model=model)
    plain = solve_linear(B, active, C, gamma, norm_B=norm)
    assert modelled.status == plain.status == EquilibriumStatus.CONVERGED
    assert modelled.iterations <= 4 < plain.iterations
    exact = torch.stack(
        [
            torch.linalg.solve(torch.eye(m, dtype=torch.float64) - gamma * D[:, None] * B.double().T, D * c)
            for D, c in zip(active.double(), C.double(), strict=True)
        ]
    )
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert float((modelled.V.double() - exact).norm()) <= tolerance * float((C * active).norm())
