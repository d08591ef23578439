"""The error bound of ``solve`` encloses the true error, and every way to end has its status."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot._implicit.equilibrium import DEFAULT_TOLERANCE, Equilibrium, EquilibriumStatus, dead_units, solve
from surefoot._implicit.norms import spectral_norm_upper
from surefoot._implicit.solvers import SOLVERS, SolverMemory

NAMES = [*SOLVERS, "auto"]
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "cases" / "implicit_relu.json").read_text())["cases"]
    if case["kind"] in ("forward_backward", "forward")
}


def problem_of(case: dict[str, Any]) -> tuple[Tensor, Tensor, float]:
    inputs = case["inputs"]
    if "Phi" in inputs:
        Phi = torch.tensor(inputs["Phi"], dtype=torch.float64)
    else:
        Phi = (torch.tensor(inputs["X"], dtype=torch.float64) @ torch.tensor(inputs["W"], dtype=torch.float64)).relu()
    m = Phi.shape[1]
    A = (
        torch.eye(m, dtype=torch.float64)
        if inputs["A"] == "identity"
        else torch.tensor(inputs["A"], dtype=torch.float64)
    )
    return A, Phi, inputs["gamma"]


def exact(A: Tensor, Phi: Tensor, gamma: float) -> list[list[mpmath.mpf]]:
    """Equilibrium of the stored numbers to about 60 digits: active sets from a float64 iteration, then exact linear solves.

    The result is verified to be a fixed point in that precision, which makes it the equilibrium.
    """
    m = A.shape[0]
    double = A.double()
    Z = torch.zeros_like(Phi.double())
    for _ in range(500):
        new = (gamma * Z @ double + Phi.double()).relu()
        if torch.equal(new, Z):
            break
        Z = new
    rows = []
    with mpmath.workdps(60):
        exact_A = mpmath.matrix(double.tolist()) * mpmath.mpf(gamma)
        for z, phi in zip(Z.tolist(), Phi.double().tolist(), strict=True):
            point = mpmath.matrix([z])
            source = mpmath.matrix([phi])
            for _ in range(20):
                image = point * exact_A + source
                active = [j for j in range(m) if image[0, j] > 0]
                solution = mpmath.zeros(1, m)
                if active:
                    system = mpmath.matrix(len(active), len(active))
                    for a, i in enumerate(active):
                        for b, j in enumerate(active):
                            system[b, a] = (1 if i == j else 0) - exact_A[i, j]
                    values = mpmath.lu_solve(system, mpmath.matrix([source[0, j] for j in active]))
                    for a, j in enumerate(active):
                        solution[0, j] = values[a]
                image = solution * exact_A + source
                defect = max(abs(max(image[0, j], 0) - solution[0, j]) for j in range(m))
                point = solution
                if defect <= mpmath.mpf(10) ** -50 * (1 + max(abs(x) for x in solution)):
                    break
            else:
                raise AssertionError("the reference did not settle")
            rows.append(list(point))
    return rows


def true_errors(result: Equilibrium, reference: list[list[mpmath.mpf]]) -> list[mpmath.mpf]:
    with mpmath.workdps(60):
        return [
            mpmath.sqrt(mpmath.fsum((mpmath.mpf(x) - y) ** 2 for x, y in zip(row, other, strict=True)))
            for row, other in zip(result.Z.double().tolist(), reference, strict=True)
        ]


def assert_enclosed(result: Equilibrium, reference: list[list[mpmath.mpf]]) -> None:
    errors = true_errors(result, reference)
    for error, bound in zip(errors, result.row_errors.tolist(), strict=True):
        assert error <= bound
    with mpmath.workdps(60):
        assert mpmath.sqrt(mpmath.fsum(e**2 for e in errors)) <= result.error


def random_problem(
    seed: int, rows: int, m: int, kind: str, q: float, exponent: int, matrix_exponent: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, float]:
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(m, m, generator=generator, dtype=torch.float64)
    if kind == "near identity":
        A = torch.eye(m, dtype=torch.float64) + 0.1 * A
    elif kind == "diagonal":
        A = torch.diag(A.diagonal())
    elif kind == "rotation":
        A = torch.linalg.qr(A).Q
    elif kind == "rank one":
        A = A[:, :1] @ A[:1]
    Phi = torch.randn(rows, m, generator=generator, dtype=torch.float64).relu()
    if kind == "zero rows":
        Phi[::2] = 0.0
        A[: m // 2] = 0.0
    A, Phi = (A * 2.0**matrix_exponent).to(dtype), (Phi * 2.0**exponent).to(dtype)
    norm = float(torch.linalg.matrix_norm(A.double(), 2))
    return A, Phi, q / norm if norm else 0.5


KINDS = ["random", "near identity", "diagonal", "rotation", "rank one", "zero rows"]
problems = st.builds(
    random_problem,
    st.integers(0, 2**31),
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from(KINDS),
    st.sampled_from([0.01, 0.5, 0.9, 0.999]),
    st.sampled_from([0, 0, 0, 60, -60, 110, -110]),
    st.sampled_from([0, 0, 50, -50]),
    st.sampled_from([torch.float64, torch.float32]),
)


@settings(max_examples=80)
@example(random_problem(1, 1, 1, "random", 0.01, -110, 0, torch.float32), "plain", 1e-6, 400)  # underflows in the end
@given(problems, st.sampled_from(NAMES), st.sampled_from([None, 1e-3, 1e-6, 0.0]), st.sampled_from([1, 3, 400]))
def test_the_bound_encloses_the_true_error(
    problem: tuple[Tensor, Tensor, float], name: str, tolerance: float | None, limit: int
) -> None:
    A, Phi, gamma = problem
    norm = spectral_norm_upper(A)
    result = solve(A, Phi, gamma, norm_A=norm, solver=name, tolerance=tolerance, max_iterations=limit)
    assert result.status in ("converged", "max_iterations", "limited_by_rounding")
    reference = exact(A, Phi, gamma)
    assert_enclosed(result, reference)
    if result.status is EquilibriumStatus.CONVERGED and tolerance is not None:
        assert result.error <= tolerance * float(torch.linalg.vector_norm(result.Z.double())) * (1 + 1e-6)


@settings(max_examples=30)
@given(problems, st.sampled_from(NAMES), st.integers(0, 2**31))
def test_a_start_anywhere_and_a_second_call_are_enclosed_too(
    problem: tuple[Tensor, Tensor, float], name: str, seed: int
) -> None:
    A, Phi, gamma = problem
    norm = spectral_norm_upper(A)
    start = torch.randn(Phi.shape, generator=torch.Generator().manual_seed(seed), dtype=Phi.dtype) * (Phi.max() + 1)
    kept = start.clone()
    memory = SolverMemory()
    reference = exact(A, Phi, gamma)
    first = solve(A, Phi, gamma, norm_A=norm, solver=name, start=start, memory=memory)
    assert_enclosed(first, reference)
    assert torch.equal(start, kept)
    result = first.Z.clone()
    second = solve(A, Phi, gamma, norm_A=norm, solver=name, memory=memory)
    assert_enclosed(second, reference)
    assert torch.equal(first.Z, result), "a later call must not write into an earlier result"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", NAMES)
def test_a_stagnated_iteration_has_an_error_that_is_not_zero(name: str, dtype: torch.dtype) -> None:
    A = torch.tensor([[0.7]], dtype=dtype)
    Phi = torch.tensor([[1 / 3]], dtype=dtype)
    result = solve(A, Phi, 0.9, norm_A=spectral_norm_upper(A), solver=name, tolerance=0.0)
    assert result.status is EquilibriumStatus.LIMITED_BY_ROUNDING
    assert 0 < true_errors(result, exact(A, Phi, 0.9))[0] <= result.error <= 60 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_reference_cases(case: str, name: str) -> None:
    A, Phi, gamma = problem_of(CASES[case])
    result = solve(A, Phi, gamma, norm_A=spectral_norm_upper(A), solver=name, max_iterations=5000)
    expected = torch.tensor(CASES[case]["expected"]["Z"], dtype=torch.float64)
    assert result.status is EquilibriumStatus.CONVERGED
    torch.testing.assert_close(result.Z, expected, atol=CASES[case]["atol"], rtol=CASES[case]["rtol"])
    assert float(torch.linalg.vector_norm(result.Z - expected)) <= result.error + 1e-9


@pytest.mark.parametrize("case", [c for c in CASES if "naive_iterations_tol1e_2_frobenius" in CASES[c]["expected"]])
def test_the_rule_of_the_paper(case: str) -> None:
    A, Phi, gamma = problem_of(CASES[case])
    result = solve(A, Phi, gamma, norm_A=spectral_norm_upper(A), solver="plain", increment=1e-2, max_iterations=100)
    assert result.iterations == CASES[case]["expected"]["naive_iterations_tol1e_2_frobenius"]
    expected = torch.tensor(CASES[case]["expected"]["Z"], dtype=torch.float64)
    assert 1e-6 < float(torch.linalg.vector_norm(result.Z - expected)) <= result.error


def test_the_paper_rule_can_run_out_of_iterations() -> None:
    A, Phi, gamma = problem_of(CASES["rotation_fixed_point"])
    result = solve(A, Phi, gamma, norm_A=spectral_norm_upper(A), solver="plain", increment=1e-2, max_iterations=100)
    assert (result.status, result.iterations) == (EquilibriumStatus.MAX_ITERATIONS, 100)
    assert_enclosed(result, exact(A, Phi, gamma))


@pytest.mark.parametrize("name", NAMES)
def test_gamma_norm_of_one_or_more_never_passes_for_a_result(name: str) -> None:
    # 2.5 z + 1 = z has no positive solution: there is no equilibrium at all.
    A = 2.5 * torch.eye(3, dtype=torch.float64)
    result = solve(A, torch.ones(2, 3, dtype=torch.float64), 1.0, norm_A=spectral_norm_upper(A), solver=name)
    assert result.status is EquilibriumStatus.NOT_CONTRACTING
    assert result.error == math.inf and bool((result.row_errors == math.inf).all())
    assert "no guarantee" in result.status.text
    assert bool(result.Z.isnan().all())


@pytest.mark.parametrize("name", NAMES)
def test_an_iteration_that_settles_without_contraction_is_labelled(name: str) -> None:
    A = -3.0 * torch.eye(3, dtype=torch.float64) + torch.triu(torch.ones(3, 3, dtype=torch.float64), 1) * 0.1
    A[0, 0] = 0.1
    A[1, 1] = A[2, 2] = 0.2
    A[0, 2] = 5.0  # nilpotent part: norm above 1, spectral radius below
    Phi = torch.ones(2, 3, dtype=torch.float64)
    result = solve(A, Phi, 1.0, norm_A=spectral_norm_upper(A), solver=name)
    assert result.status is EquilibriumStatus.NOT_CONTRACTING
    assert result.error == math.inf
    assert float(torch.linalg.vector_norm((result.Z @ A + Phi).relu() - result.Z)) < 1e-8


@pytest.mark.parametrize("where", ["A", "Phi"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_input(where: str, value: float) -> None:
    arrays = {"A": 0.5 * torch.eye(3, dtype=torch.float64), "Phi": torch.ones(2, 3, dtype=torch.float64)}
    arrays[where][1, 1] = value
    result = solve(arrays["A"], arrays["Phi"], 0.5, norm_A=spectral_norm_upper(arrays["A"]))
    assert result.status is EquilibriumStatus.NON_FINITE
    assert bool(result.Z.isnan().all()) and result.error == math.inf


def test_an_equilibrium_beyond_the_range_is_not_returned() -> None:
    A = torch.eye(2, dtype=torch.float64)
    result = solve(A, torch.full((1, 2), 1e308, dtype=torch.float64), 0.99, norm_A=1.0 + 1e-9)
    assert result.status is EquilibriumStatus.NON_FINITE
    assert bool(result.Z.isnan().all())


@pytest.mark.parametrize("name", NAMES)
def test_a_start_that_is_not_finite_is_given_up(name: str) -> None:
    A, Phi, gamma = problem_of(CASES["mixed_signs"])
    start = torch.full_like(Phi, math.nan)
    result = solve(A, Phi, gamma, norm_A=spectral_norm_upper(A), solver=name, start=start)
    assert result.status is EquilibriumStatus.CONVERGED
    assert_enclosed(result, exact(A, Phi, gamma))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("m", [1, 3])
def test_no_rows_one_column_and_zero_features(name: str, rows: int, m: int) -> None:
    A = 0.5 * torch.ones(m, m, dtype=torch.float64)
    for Phi in (torch.zeros(rows, m, dtype=torch.float64), torch.ones(rows, m, dtype=torch.float64)):
        result = solve(A, Phi, 0.5, norm_A=spectral_norm_upper(A), solver=name)
        assert result.status is EquilibriumStatus.CONVERGED
        assert result.Z.shape == Phi.shape and result.row_errors.shape == (rows,)
        assert_enclosed(result, exact(A, Phi, 0.5))


def test_the_error_of_phi_is_part_of_the_bound() -> None:
    A = torch.tensor([[0.5]], dtype=torch.float64)
    result = solve(
        A, torch.tensor([[1.0], [1.0]], dtype=torch.float64), 1.0, norm_A=0.5, phi_error=torch.tensor([1e-3, 0.0])
    )
    wrong, right = result.row_errors.tolist()
    assert 2e-3 <= wrong < 2.0001e-3  # the equilibrium of φ + 1e-3 is 2 φ + 2e-3
    assert right < 1e-9


def test_default_tolerance_is_reached_in_float32_at_any_width() -> None:
    generator = torch.Generator().manual_seed(5)
    A = torch.eye(300) + 0.005 * torch.randn(300, 300, generator=generator)
    Phi = torch.rand(50, 300, generator=generator)
    norm = spectral_norm_upper(A)
    gamma = 0.9 / norm
    precise = solve(A.double(), Phi.double(), gamma, norm_A=norm)
    for name in NAMES:
        result = solve(A, Phi, gamma, norm_A=norm, solver=name)
        assert result.status is EquilibriumStatus.CONVERGED
        error = float(torch.linalg.vector_norm(result.Z.double() - precise.Z))
        size = float(torch.linalg.vector_norm(precise.Z))
        assert error <= result.error + precise.error
        assert error <= 2 * DEFAULT_TOLERANCE[torch.float32] * size


def test_max_iterations_keeps_a_valid_bound() -> None:
    A, Phi, gamma = problem_of(CASES["mixed_signs"])
    result = solve(A, Phi, gamma, norm_A=spectral_norm_upper(A), solver="plain", max_iterations=3)
    assert (result.status, result.iterations) == (EquilibriumStatus.MAX_ITERATIONS, 3)
    assert 1e-3 < result.error < math.inf
    assert_enclosed(result, exact(A, Phi, gamma))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"gamma": 0.0}, ValueError, "gamma is 0.0"),
        ({"norm_A": 0.1}, ValueError, "norm_A is 0.1, below an entry of A"),
        ({"norm_A": math.nan}, ValueError, "norm_A is nan"),
        ({"solver": "low-rank"}, ValueError, "did you mean 'low_rank'"),
        ({"tolerance": -1.0}, ValueError, "tolerance is -1.0"),
        ({"max_iterations": 0}, ValueError, "max_iterations is 0"),
        ({"Phi": torch.ones(2, 4, dtype=torch.float64)}, ValueError, r"Phi has shape \(2, 4\)"),
        ({"Phi": torch.ones(2, 3)}, TypeError, "Phi is torch.float32"),
        ({"A": torch.ones(3, 2, dtype=torch.float64)}, ValueError, "must be square"),
        ({"A": torch.ones(3, 3, dtype=torch.float16)}, TypeError, "A has dtype float16"),
        ({"start": torch.ones(1, 3, dtype=torch.float64)}, ValueError, r"start has shape \(1, 3\)"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {
        "A": torch.eye(3, dtype=torch.float64),
        "Phi": torch.ones(2, 3, dtype=torch.float64),
        "gamma": 0.5,
        "norm_A": 1.0,
    }
    with pytest.raises(error, match=message):
        solve(**(good | arguments))


def test_dead_units() -> None:
    Z = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    assert dead_units(Z).tolist() == [0, 2]
