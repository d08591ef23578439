"""The Cayley transform, and its steps on the Stiefel manifold by four inverses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from surefoot._linalg.cayley import cayley, cayley_ex
from surefoot._linalg.info import Status
from surefoot._orthogonal.cayley_steps import STEPS, components, defect, polar_correction, reach, slope, tangent

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128
# torch loads its forward-mode rules at their first use, with a deprecated call of its own
FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
SHAPES = [(6, 2), (4, 3), (5, 5), (5, 1), (1, 1), (3, 7, 2), (2, 3, 4, 4)]


def orthonormal(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.linalg.qr(torch.randn(*shape, dtype=dtype))[0]


def skew(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    matrix = torch.randn(*shape, dtype=dtype)
    return matrix - matrix.mH


def case() -> dict[str, Any]:
    with (Path(__file__).resolve().parents[1] / "cases" / "matrix_inverse.json").open() as file:
        return next(found for found in json.load(file)["cases"] if found["kind"] == "cayley")


def test_reference_case() -> None:
    inputs, expected = case()["inputs"], case()["expected"]
    U, G = (torch.tensor(inputs[key], dtype=F64) for key in ("U", "G"))
    P = G @ U.mT - U @ G.mT
    want = torch.tensor(expected["U_new"], dtype=F64)
    torch.testing.assert_close(P, torch.tensor(expected["P"], dtype=F64), rtol=1e-10, atol=1e-12)
    assert float(torch.linalg.matrix_norm(P, 2)) == pytest.approx(expected["norm_P"], rel=1e-10)
    torch.testing.assert_close(cayley(P, U, inputs["t"]), want, rtol=1e-10, atol=1e-12)
    for step in STEPS.values():
        torch.testing.assert_close(step(U, *components(U, G), inputs["t"]), want, rtol=1e-10, atol=1e-12)


def test_erratum_of_the_inverse_alone() -> None:
    """Equation (6) ends in C(t) = LD-Minv(I + tP/2): an inverse, which is no rotation. With (I − tP/2) applied first, an inexact
    inverse gives the inexact step of the reference case, orthonormal to its accuracy only."""
    inputs, expected = case()["inputs"], case()["expected"]
    U, G, t = torch.tensor(inputs["U"], dtype=F64), torch.tensor(inputs["G"], dtype=F64), inputs["t"]
    P = G @ U.mT - U @ G.mT
    identity = torch.eye(3, dtype=F64)
    shifted = identity + t * P / 2
    printed = torch.linalg.inv(shifted) @ U
    singular = torch.linalg.svdvals(printed)
    assert float(singular.max()) < 1.0 - 1e-3  # shrinks every direction that P turns
    assert defect(printed) > 0.1
    X = shifted.mT / inputs["inexact"]["c0"]
    E = identity - shifted @ X
    powers = torch.stack([torch.linalg.matrix_power(E, k) for k in range(4)])
    inexact = (
        X @ torch.einsum("k,kij->ij", torch.tensor(inputs["inexact"]["C"][0], dtype=F64), powers) @ (U - t * P @ U / 2)
    )
    torch.testing.assert_close(inexact, torch.tensor(expected["U_new_inexact"], dtype=F64), rtol=1e-10, atol=1e-12)
    worst = float((inexact.mT @ inexact - torch.eye(2, dtype=F64)).abs().max())
    assert worst == pytest.approx(expected["inexact_orth_error_max"], rel=1e-10)


@pytest.mark.parametrize("dtype", [F32, F64, C64, C128])
@pytest.mark.parametrize("shape", SHAPES)
def test_stays_orthonormal(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    U, P = orthonormal(*shape, dtype=dtype), skew(*shape[:-1], shape[-2], dtype=dtype)
    for t in (0.0, 0.3, -2.0, 30.0):
        moved, info = cayley_ex(P, U, t)
        assert defect(moved) <= 20 * shape[-2] * torch.finfo(dtype).eps
        assert info.ok
        torch.testing.assert_close(cayley(P, moved, -t), U, rtol=0.0, atol=3e3 * torch.finfo(dtype).eps)
    assert torch.equal(cayley(P, U, 0.0), U)


def test_error_bound_holds_and_is_near() -> None:
    """Against the same transform in double precision."""
    for scale in (0.1, 3.0, 100.0):
        P, U = scale * skew(50, 6, 6, dtype=F32), orthonormal(50, 6, 3, dtype=F32)
        value, info = cayley_ex(P, U)
        error = torch.linalg.matrix_norm(value.double() - cayley(P.double(), U.double()), 2)
        assert bool((error <= info.error_bound).all())
        assert float((info.error_bound / error.clamp(min=1e-8)).median()) < 20.0 * (1.0 + scale)
        assert info.method == "lu"


def test_error_bound_of_matrices_that_are_not_skew() -> None:
    P, U = 0.2 * torch.randn(50, 4, 4, dtype=F32), torch.randn(50, 4, 2, dtype=F32)
    value, info = cayley_ex(P, U)
    error = torch.linalg.matrix_norm(value.double() - cayley(P.double(), U.double()), 2)
    assert bool((error <= info.error_bound).all()) and bool(info.error_bound.isfinite().any())
    shifted = torch.eye(4) + P / 2
    assert bool((torch.linalg.cond(shifted) <= info.condition * 1.001).all())
    assert bool(cayley_ex(10.0 * P, U)[1].error_bound.isinf().any())


def test_one_bad_matrix_leaves_the_others() -> None:
    P, U = skew(5, 3, 3), orthonormal(3, 2)
    P[1] = -2.0 * torch.eye(3)  # I + P/2 = 0
    P[2, 0, 0] = math.nan
    P[3] = 1e30 * torch.tensor([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])  # the identity is lost
    value, info = cayley_ex(P, U)
    expected = [Status.OK, Status.SINGULAR, Status.NON_FINITE, Status.INACCURATE, Status.OK]
    assert info.status.tolist() == expected
    torch.testing.assert_close(value[[0, 4]], cayley(P[[0, 4]], U))
    assert info.error_bound[[1, 2, 3]].isinf().all() or bool((info.error_bound[[1, 2, 3]] > 1.0).all())
    with pytest.raises(torch.linalg.LinAlgError):
        cayley(P[1], U)


@FORWARD_MODE
@pytest.mark.parametrize("dtype", [F64, C128])
def test_derivatives(dtype: torch.dtype) -> None:
    P = skew(2, 4, 4, dtype=dtype).requires_grad_()
    U = orthonormal(4, 2, dtype=dtype).requires_grad_()
    t = torch.tensor([0.7, -1.3], dtype=F64, requires_grad=True)
    assert gradcheck(cayley, (P, U, t), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(cayley, (P, U, t))


@FORWARD_MODE
def test_derivative_at_zero_is_minus_PU() -> None:
    P, U = skew(5, 5), orthonormal(5, 2)
    _, velocity = torch.func.jvp(
        lambda t: cayley(P, U, t), (torch.tensor(0.0, dtype=F64),), (torch.tensor(1.0, dtype=F64),)
    )
    torch.testing.assert_close(velocity, -P @ U)


def test_a_batch_as_long_as_the_matrix_is_wide() -> None:
    """torch.linalg.solve would read this U as a batch of vectors."""
    U = torch.eye(2, dtype=F64)
    for batch in (2, 3):
        P = skew(batch, 2, 2)
        torch.testing.assert_close(cayley(P, U), torch.stack([cayley(matrix, U) for matrix in P]))


def test_layouts_half_and_empty() -> None:
    P, U = skew(4, 4), orthonormal(4, 2)
    torch.testing.assert_close(cayley(P.mT.contiguous().mT, U.mT.contiguous().mT, 0.4), cayley(P, U, 0.4))
    for dtype in (torch.float16, torch.bfloat16):
        value, info = cayley_ex(P.to(dtype), U.to(dtype), 0.4)
        assert value.dtype == dtype
        exact = cayley(P.to(dtype).double(), U.to(dtype).double(), 0.4)
        assert float(torch.linalg.matrix_norm(value.double() - exact, 2)) <= float(info.error_bound)
    assert cayley(torch.zeros(0, 0), torch.zeros(0, 0)).shape == (0, 0)
    assert cayley(torch.zeros(3, 3), torch.zeros(3, 0)).shape == (3, 0)
    assert cayley(torch.zeros(0, 3, 3), torch.zeros(3, 2)).shape == (0, 3, 2)


@pytest.mark.parametrize(
    ("P", "U", "t", "error", "message"),
    [
        (torch.zeros(3, 3, dtype=torch.int64), torch.zeros(3, 2), 1.0, TypeError, "P has dtype torch.int64"),
        (
            torch.zeros(3, 3),
            torch.zeros(3, 2, dtype=F64),
            1.0,
            TypeError,
            "P has dtype torch.float32 but U has torch.float64",
        ),
        ([[0.0]], torch.zeros(1, 1), 1.0, TypeError, "P must be a torch.Tensor, not list"),
        (torch.zeros(3, 2), torch.zeros(3, 2), 1.0, ValueError, "same m"),
        (torch.zeros(3, 3), torch.zeros(2, 2), 1.0, ValueError, "same m"),
        (torch.zeros(3, 3), torch.zeros(3), 1.0, ValueError, "U has shape"),
        (torch.zeros(3, 3), torch.zeros(3, 2), 1j, TypeError, "t is complex"),
        (torch.zeros(2, 3, 3), torch.zeros(3, 2), torch.zeros(5), ValueError, "do not broadcast"),
        (torch.zeros(3, 3, device="meta"), torch.zeros(3, 2), 1.0, ValueError, "P is on meta"),
    ],
)
def test_bad_input(P: Any, U: Any, t: Any, error: type[Exception], message: str) -> None:
    for function in (cayley, cayley_ex):
        with pytest.raises(error, match=message):
            function(P, U, t)


@pytest.mark.parametrize("name", [name for name in STEPS if name != "exact"])
@pytest.mark.parametrize("dtype", [F32, F64, C64, C128])
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_agree(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    U, D = orthonormal(*shape, dtype=dtype), torch.randn(*shape, dtype=dtype)
    direction = components(U, D)
    for t in (0.0, 0.01, 0.7, -3.0):
        want = STEPS["exact"](U, *direction, t)
        got = STEPS[name](U, *direction, t)
        # the Chebyshev step solves normal equations: its condition is the square
        growth = 1.0 + (t * t * 2.0 * slope(*direction) if name == "chebyshev" else abs(t) * slope(*direction) ** 0.5)
        torch.testing.assert_close(got, want, rtol=0.0, atol=30 * growth * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_reduced_step_up_to_its_reach(dtype: torch.dtype) -> None:
    for shape in ((6, 2), (5, 4), (4, 4)):
        U, D = orthonormal(*shape, dtype=dtype), torch.randn(*shape, dtype=dtype)
        A, N = components(U, D)
        t = reach(dtype) / math.sqrt(2.0 * slope(A, N))
        assert defect(polar_correction(STEPS["reduced"](U, A, N, t))) < 0.02


def test_components_are_those_of_P() -> None:
    U, D = orthonormal(6, 3, dtype=C128), torch.randn(6, 3, dtype=C128)
    A, N = components(U, D)
    P = D @ U.mH - U @ D.mH
    torch.testing.assert_close(U @ A @ U.mH + N @ U.mH - U @ N.mH, P)
    assert slope(A, N) == pytest.approx(0.5 * float(torch.linalg.matrix_norm(P)) ** 2)
    V = tangent(U, A, N)
    torch.testing.assert_close(U.mH @ V + V.mH @ U, torch.zeros(3, 3, dtype=C128))
    torch.testing.assert_close(V @ U.mH - U @ V.mH, P)


def test_polar_correction_is_quadratic() -> None:
    U = orthonormal(6, 3)
    disturbed = U + 1e-5 * torch.randn(6, 3, dtype=F64)
    assert defect(polar_correction(disturbed)) < defect(disturbed) ** 2
    assert defect(polar_correction(polar_correction(disturbed))) < 1e-15


def test_bound_where_norms_overflow_is_infinite() -> None:
    P = torch.tensor([[0.0, 1e236], [-1e236, 0.0]], dtype=F64)
    for t in (0.0, 1.0):
        _, info = cayley_ex(P, torch.eye(2, dtype=F64), t)
        assert info.error_bound == math.inf and not bool(info.residual.isnan() | info.condition.isnan())


@pytest.mark.parametrize("t", [None, "1", [1.0]])
def test_step_of_another_kind(t: Any) -> None:
    with pytest.raises(TypeError, match=r"t is .*: it must be a real number"):
        cayley(torch.zeros(2, 2), torch.eye(2), t)
