"""Minimisation over matrices with orthonormal columns, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import surefoot.optim
from surefoot._orthogonal.nonmonotone import TRIALS, NonmonotoneSearch
from surefoot.optim import StiefelStatus, minimize_stiefel

F32, F64, C128 = torch.float32, torch.float64, torch.complex128


def start(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    rows, columns = shape[-2:]
    batch = shape[:-2]
    tall = torch.linalg.qr(torch.randn(*batch, max(rows, columns), min(rows, columns), dtype=dtype))[0]
    return tall if rows >= columns else tall.mH.contiguous()


def hermitian(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    matrix = torch.randn(*shape, dtype=dtype)
    return (matrix + matrix.mH) / 2


def trace_of(A: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda U: -(U.conj() * (A @ U)).real.sum()


def is_orthonormal(U: Tensor) -> bool:
    tall = U if U.shape[-2] >= U.shape[-1] else U.mH
    product = tall.mH @ tall
    eye = torch.eye(tall.shape[-1], dtype=U.dtype)
    return float((product - eye).abs().max()) <= 8 * torch.finfo(U.dtype).eps


@pytest.mark.parametrize("dtype", [F64, C128])
@pytest.mark.parametrize("shape", [(12, 3), (12, 1), (6, 5)])
def test_trace_maximum_is_the_sum_of_the_largest_eigenvalues(shape: tuple[int, int], dtype: torch.dtype) -> None:
    m, r = shape
    A = hermitian(m, m, dtype=dtype)
    values, vectors = torch.linalg.eigh(A)
    found = minimize_stiefel(trace_of(A), start(m, r, dtype=dtype))
    assert found.status is StiefelStatus.GRADIENT and found.converged
    assert found.value == pytest.approx(-float(values[-r:].sum()), rel=1e-12)
    top = vectors[:, -r:]
    torch.testing.assert_close(found.U @ found.U.mH, top @ top.mH, rtol=0.0, atol=1e-6)
    assert is_orthonormal(found.U)


def test_first_order_optimality() -> None:
    A = hermitian(20, 20)
    tolerance = 1e-7
    found = minimize_stiefel(trace_of(A), start(20, 4), gradient_tolerance=tolerance)
    G = -2.0 * A @ found.U
    gradient = (G @ found.U.mT - found.U @ G.mT) @ found.U
    assert found.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-6)
    assert found.gradient_norm <= tolerance * 2.0 * float(A.norm()) * 2.0
    assert found.trace.gradient_norms[-1] == found.gradient_norm


def test_brockett_weights_give_the_eigenvectors() -> None:
    A = hermitian(10, 10)
    values, vectors = torch.linalg.eigh(A)
    weights = torch.tensor([3.0, 2.0, 1.0], dtype=F64)
    found = minimize_stiefel(lambda U: -(weights * (U * (A @ U)).sum(0)).sum(), start(10, 3))
    assert found.converged
    assert found.value == pytest.approx(-float(weights @ values[-3:].flip(0)), rel=1e-12)
    torch.testing.assert_close((found.U * vectors[:, [-1, -2, -3]]).sum(0).abs(), torch.ones(3, dtype=F64))


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (2, 6, 3)])
def test_balanced_procrustes_is_the_polar_factor(shape: tuple[int, ...]) -> None:
    """min ‖U − B‖² over orthonormal U: the orthogonal polar factor of B, whatever the side."""
    B = torch.randn(*shape, dtype=F64)
    left, _, right = torch.linalg.svd(B, full_matrices=False)
    found = minimize_stiefel(lambda U: (U - B).square().sum(), start(*shape))
    assert found.converged and found.U.shape == B.shape and is_orthonormal(found.U)
    torch.testing.assert_close(found.U, left @ right, rtol=0.0, atol=1e-7)


def test_square_procrustes_keeps_the_sign_of_the_determinant() -> None:
    """From both components of O(4): only one contains the minimum; the other is 2σ_min·2 above it in ‖U − B‖²."""
    B = torch.randn(4, 4, dtype=F64)
    left, sigma, right = torch.linalg.svd(B)
    best = float((left @ right - B).square().sum())
    first = start(4, 4)
    second = first.clone()
    second[:, 0] *= -1.0
    for U0 in (first, second):
        found = minimize_stiefel(lambda U: (U - B).square().sum(), U0)
        sign = float(torch.linalg.det(U0).sign())
        assert float(torch.linalg.det(found.U)) == pytest.approx(sign)
        same = sign == float(torch.linalg.det(left @ right).sign())
        assert found.converged
        assert found.value == pytest.approx(best + (0.0 if same else 4.0 * float(sigma[-1])), abs=1e-10)


def test_unbalanced_procrustes_with_an_exact_fit() -> None:
    """The gradient vanishes altogether at the minimum, so the tolerance cannot be relative to the one there."""
    A, truth = torch.randn(12, 6, dtype=F64), start(6, 2)
    near = truth + 0.1 * torch.randn(6, 2, dtype=F64)
    U0 = torch.linalg.qr(near)[0]
    U0 = U0 * (U0 * truth).sum(0).sign()
    found = minimize_stiefel(lambda U: (A @ (U - truth)).square().sum(), U0)
    assert found.status is StiefelStatus.GRADIENT
    torch.testing.assert_close(found.U, truth, rtol=0.0, atol=1e-6)


def test_descent_and_trace() -> None:
    A = hermitian(15, 15)
    found = minimize_stiefel(trace_of(A), start(15, 3))
    values, lengths = found.trace.values, found.trace.step_lengths
    assert len(values) == found.iterations + 1 == len(lengths) + 1 == len(found.trace.gradient_norms)
    assert found.evaluations > found.iterations
    assert found.value == float(values.min()) and bool((lengths > 0).all())
    # the search's reference is a weighted mean of the values so far: no value exceeds their running maximum
    assert bool((values[1:] <= values.cummax(0).values[:-1] + 1e-13).all())
    assert float(values[1]) < float(values[0])


@pytest.mark.parametrize("dtype", [F32, F64, C128])
def test_orthonormal_at_every_evaluation(dtype: torch.dtype) -> None:
    """Large steps and a gradient with a large part normal to the manifold, which must not leak into U."""
    A = hermitian(10, 10, dtype=dtype)
    A = A @ A.mH
    seen: list[bool] = []

    def f(U: Tensor) -> Tensor:
        seen.append(is_orthonormal(U.detach()))
        return trace_of(A)(U) + 1e3 * (U.abs().square()).sum()

    found = minimize_stiefel(f, start(10, 4, dtype=dtype), max_iterations=200)
    assert all(seen) and len(seen) == found.evaluations


@pytest.mark.parametrize("dtype", [F32, F64, C128])
def test_dtype_layout_and_start_are_kept(dtype: torch.dtype) -> None:
    A = hermitian(8, 8, dtype=dtype)
    U0 = start(8, 2, dtype=dtype).mT.contiguous().mT
    copy = U0.clone()
    U0.requires_grad_()
    found = minimize_stiefel(trace_of(A), U0)
    assert torch.equal(U0, copy) and U0.grad is None
    assert found.U.dtype == dtype and not found.U.requires_grad and found.U.is_contiguous()
    values = torch.linalg.eigvalsh(A)
    assert found.converged and found.value == pytest.approx(-float(values[-2:].sum()), rel=1e-5)


def test_complex_wide() -> None:
    A = hermitian(6, 6, dtype=C128)
    found = minimize_stiefel(lambda U: -(U.conj() * (U @ A)).real.sum(), start(2, 6, dtype=C128))
    assert found.converged and is_orthonormal(found.U) and found.U.shape == (2, 6)
    assert found.value == pytest.approx(-float(torch.linalg.eigvalsh(A)[-2:].sum()), rel=1e-12)


def test_batch_is_one_joint_problem() -> None:
    A = hermitian(3, 8, 8)
    found = minimize_stiefel(trace_of(A), start(3, 8, 2))
    assert found.converged
    assert found.value == pytest.approx(-float(torch.linalg.eigvalsh(A)[:, -2:].sum()), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1e12, 1e100])
def test_scale_of_the_objective_does_not_matter(scale: float) -> None:
    A, U0 = hermitian(9, 9), start(9, 3)
    base, scaled = (minimize_stiefel(lambda U, c=c: c * trace_of(A)(U), U0) for c in (1.0, scale))
    assert scaled.iterations == pytest.approx(base.iterations, abs=3) and scaled.status is StiefelStatus.GRADIENT
    assert scaled.value == pytest.approx(scale * base.value, rel=1e-12)


def test_a_kink_stalls_or_runs_out() -> None:
    """Where the gradient jumps no smooth criterion can fire, and none is claimed."""
    A = torch.randn(8, 8, dtype=F64)
    found = minimize_stiefel(lambda U: (A @ U).abs().sum(), start(8, 2))
    assert not found.converged and found.value < float((A @ start(8, 2)).abs().sum())


def test_repeats_bit_for_bit() -> None:
    A, U0 = hermitian(9, 9), start(9, 3)
    first, second = (minimize_stiefel(trace_of(A), U0) for _ in range(2))
    assert torch.equal(first.U, second.U) and torch.equal(first.trace.values, second.trace.values)


def test_each_criterion_names_itself() -> None:
    A, U0 = hermitian(9, 9), start(9, 3)
    best = -float(torch.linalg.eigvalsh(A)[-3:].sum())
    found = minimize_stiefel(trace_of(A), U0, target=best + 1e-3)
    assert found.status is StiefelStatus.TARGET and found.value <= best + 1e-3
    assert minimize_stiefel(trace_of(A), found.U, target=best + 1e-3).iterations == 0
    found = minimize_stiefel(trace_of(A), U0, max_iterations=3)
    assert found.status is StiefelStatus.MAX_ITERATIONS and found.iterations == 3 and not found.converged
    assert minimize_stiefel(trace_of(A), U0, max_iterations=0).iterations == 0
    assert len({status.text for status in StiefelStatus}) == len(StiefelStatus)


def test_start_at_the_minimum() -> None:
    A = hermitian(9, 9)
    top = torch.linalg.eigh(A).eigenvectors[:, -3:]
    found = minimize_stiefel(trace_of(A), top)
    assert found.status is StiefelStatus.GRADIENT and found.iterations == 0
    constant = minimize_stiefel(lambda U: 0.0 * U.sum(), top)
    assert constant.status is StiefelStatus.GRADIENT and constant.gradient_norm == 0.0


class _WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, U: Tensor) -> Tensor:
        return U[0, 0].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        wrong = torch.zeros(4, 2, dtype=F64)
        wrong[0, 0] = -1.0
        return wrong


def test_stalled_when_the_gradient_is_wrong() -> None:
    U0 = start(4, 2)
    found = minimize_stiefel(_WrongGradient.apply, U0)
    assert found.status is StiefelStatus.STALLED and not found.converged
    assert found.value <= float(U0[0, 0]) + 1e-15 and is_orthonormal(found.U)


@pytest.mark.parametrize("what", ["value", "gradient"])
def test_non_finite_keeps_the_last_good_point(what: str) -> None:
    """Finite at the start only; then a wall that every step hits."""
    A, U0 = hermitian(5, 5), start(5, 2)
    calls = 0

    def f(U: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        value = trace_of(A)(U)
        if calls <= 3:
            return value
        return value * math.nan if what == "value" else value + (0.0 * U).abs().sqrt().sum()

    found = minimize_stiefel(f, U0)
    assert found.status is StiefelStatus.NON_FINITE
    assert found.iterations == 2 and found.evaluations == 3 + TRIALS
    assert math.isfinite(found.value) and found.value == float(found.trace.values.min()) and is_orthonormal(found.U)


def test_a_wall_of_nan_is_stepped_around() -> None:
    """log of a quantity that long steps make negative."""
    A = hermitian(6, 6)
    U0 = torch.linalg.qr(torch.linalg.eigh(A).eigenvectors[:, -2:] + 0.2 * torch.randn(6, 2, dtype=F64))[0]
    low = float(-trace_of(A)(U0)) - 1e-3
    found = minimize_stiefel(lambda U: -torch.log(-trace_of(A)(U) - low), U0, gradient_tolerance=1e-10)
    assert found.converged
    assert found.value == pytest.approx(-math.log(float(torch.linalg.eigvalsh(A)[-2:].sum()) - low), rel=1e-9)


def test_exceptions_of_the_objective_pass_through() -> None:
    def f(U: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        minimize_stiefel(f, start(4, 2))


U3 = torch.eye(3, 2, dtype=F64)


@pytest.mark.parametrize(
    ("f", "U0", "options", "error", "message"),
    [
        (torch.sum, [[1.0]], {}, TypeError, "U0 is a list"),
        (torch.sum, torch.eye(3, 2, dtype=torch.int64), {}, TypeError, "U0 has dtype int64"),
        (torch.sum, U3.half(), {}, TypeError, "U0 has dtype float16"),
        (torch.sum, torch.ones(3, dtype=F64), {}, ValueError, r"U0 has shape \(3,\)"),
        (torch.sum, 2.0 * U3, {}, ValueError, r"columns: ‖UᴴU − I‖_F is 4.24.*polar"),
        (torch.sum, 2.0 * U3.mT, {}, ValueError, "rows"),
        (torch.sum, math.nan * U3, {}, ValueError, "non-finite"),
        (lambda U: U, U3, {}, ValueError, r"f\(U\) has shape \(3, 2\)"),
        (lambda U: U.sum() + 1j, U3, {}, ValueError, "complex"),
        (lambda U: 1.0, U3, {}, TypeError, r"f\(U\) is a float"),
        (lambda U: U.detach().sum(), U3, {}, ValueError, "does not depend on U"),
        (lambda U: math.nan * U.sum(), U3, {}, ValueError, r"f\(U0\) is nan"),
        (lambda U: 1e-200 * U.sum(), U3, {}, ValueError, "entries up to 1e-200.*scale f"),
        (lambda U: 1e160 * U.sum(), U3, {}, ValueError, r"entries up to 1e\+160.*scale f"),
        (lambda U: 1e25 * U.sum(), U3.float(), {}, ValueError, r"entries up to 1e\+25.*scale f"),
        (lambda U: (0.0 * U).abs().sqrt().sum(), U3, {}, ValueError, "gradient of f at U0"),
        (torch.sum, U3, {"gradient_tolerance": -1.0}, ValueError, "gradient_tolerance is -1.0"),
        (torch.sum, U3, {"gradient_tolerance": math.nan}, ValueError, "gradient_tolerance is nan"),
        (torch.sum, U3, {"max_iterations": -1}, ValueError, "max_iterations is -1"),
        (torch.sum, U3, {"max_iterations": 2.5}, ValueError, "max_iterations is 2.5"),
        (torch.sum, U3, {"target": math.nan}, ValueError, "target is NaN"),
    ],
)
def test_bad_input(f: Any, U0: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        minimize_stiefel(f, U0, **options)


def test_empty() -> None:
    for shape in ((3, 0), (0, 0), (0, 4, 2)):
        found = minimize_stiefel(lambda U: U.sum(), torch.zeros(*shape, dtype=F64))
        assert found.status is StiefelStatus.GRADIENT and found.U.shape == shape


def test_search_accepts_noise_but_no_rise() -> None:
    search = NonmonotoneSearch(reference=1.0, unit=2e-16)
    assert search.accepts(1.0 + 4e-16, 1e-20, 1.0)
    assert not search.accepts(1.0 + 1e-14, 1e-20, 1.0)
    assert not search.accepts(1.0, 1.0, 1.0)
    assert not any(search.accepts(value, 1.0, 1.0) for value in (math.nan, math.inf, -math.inf))
    search.accept(0.0)
    assert 0.0 < search.reference < 1.0


def test_public_names() -> None:
    assert set(surefoot.optim.__all__) == {
        "CayleyAdam",
        "CayleySGD",
        "StiefelResult",
        "StiefelStatus",
        "StiefelTrace",
        "minimize_stiefel",
    }
