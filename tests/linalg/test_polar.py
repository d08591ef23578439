"""``surefoot.linalg.polar``: factors, derivatives of every order at ties, transforms, singular and awkward inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import mpmath
import pytest
import torch
from torch import Tensor

from surefoot.linalg import Status, polar, polar_ex

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
DOUBLE = (torch.float64, torch.complex128)
Side = Literal["right", "left"]
SIDES: tuple[Side, ...] = ("right", "left")

# Forward-mode differentiation and torch.compile use parts of torch that warn about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


def product(U: Tensor, H: Tensor, side: Side) -> Tensor:
    return U @ H if side == "right" else H @ U


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (3, 2, 6, 4), (5, 3, 7), (4, 1), (1, 3)])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("method", ["auto", "svd"])
def test_factors(shape: tuple[int, ...], dtype: torch.dtype, side: Side, method: Literal["auto", "svd"]) -> None:
    A = torch.randn(shape, dtype=dtype)
    U, H = polar(A, side, method)
    tolerance = 8 * max(shape[-2:]) * torch.finfo(dtype).eps
    norm = torch.linalg.matrix_norm(A).amax()
    assert torch.linalg.matrix_norm(product(U, H, side) - A).amax() <= tolerance * norm
    small = U.mH @ U if shape[-2] >= shape[-1] else U @ U.mH
    assert (small - torch.eye(small.shape[-1], dtype=dtype)).abs().max() <= tolerance
    assert torch.equal(H, H.mH)
    assert torch.linalg.eigvalsh(H).amin() >= -tolerance * norm


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("side", SIDES)
def test_error_bound_holds(shape: tuple[int, int], side: Side) -> None:
    """Against A(AᵀA)^(-½) in 60 digits."""
    A = torch.randn(shape, dtype=torch.float64)
    (U, _), info = polar_ex(A, side)
    tall = A if shape[0] >= shape[1] else A.mT
    with mpmath.workdps(60):
        M = mpmath.matrix(tall.tolist())
        values, vectors = mpmath.eigsy(M.T * M)
        inverse_root = vectors * mpmath.diag([1 / mpmath.sqrt(v) for v in values]) * vectors.T
        exact = M * inverse_root
        error = mpmath.mnorm(exact - mpmath.matrix((U if tall is A else U.mT).tolist()), "f")
    assert error <= info.error_bound.item() <= 1e-12
    assert info.status == Status.OK
    assert info.rank == min(shape)
    S = torch.linalg.svdvals(A)
    torch.testing.assert_close(info.condition, S[0] / S[-1])


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("shape", [(2, 2), (2, 3, 2), (2, 3)])
@pytest.mark.parametrize("side", SIDES)
def test_derivatives_of_first_and_second_order(shape: tuple[int, ...], dtype: torch.dtype, side: Side) -> None:
    A = torch.randn(shape, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(lambda A: polar(A, side), A, check_forward_ad=True)
    if A.ndim == 2:
        assert torch.autograd.gradgradcheck(lambda A: polar(A, side), A)


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("A", [torch.eye(3), 2 * torch.eye(3)[:, :2], torch.diag(torch.tensor([2.0, 2.0, 1.0]))])
def test_derivatives_at_ties(A: Tensor, dtype: torch.dtype) -> None:
    A = A.to(dtype, copy=True).requires_grad_()
    assert torch.autograd.gradcheck(polar, A, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(polar, A)


def test_third_derivative_at_the_identity() -> None:
    """Along A = I + tX with skew X: U = (I − t²X²)^(-½)(I + tX), whose third derivative is 3X³ (d³/dt³ of t·½t²X²·X)."""
    B = torch.randn(3, 3, dtype=torch.float64)
    X = B - B.mT

    def along(t: Tensor) -> Tensor:
        return polar(torch.eye(3, dtype=torch.float64) + t * X).U

    function: Callable[[Tensor], Tensor] = along
    for _ in range(3):
        function = torch.func.jacrev(function)
    torch.testing.assert_close(function(torch.tensor(0.0, dtype=torch.float64)), 3 * X @ X @ X)


@pytest.mark.parametrize("gap", [1e-15, 1e-12, 1e-8, 1e-4])
def test_near_ties_lose_nothing(gap: float) -> None:
    """dU at diag(s) has entries 2 skew(dA)_ij/(s_i + s_j): no digit depends on the gap."""
    A = torch.diag(torch.tensor([1 + gap, 1.0, 0.5], dtype=torch.float64)).requires_grad_()
    C = torch.randn(3, 3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((C * polar(A).U).sum(), A)
    s = A.detach().diagonal()
    torch.testing.assert_close(gradient, (C - C.mT) / (s[:, None] + s[None, :]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(5, 5), (5, 3), (3, 5)])
def test_singular_matrix_has_a_valid_factor_and_a_finite_gradient(shape: tuple[int, int]) -> None:
    A = torch.randn(shape[0], 2, dtype=torch.float64) @ torch.randn(2, shape[1], dtype=torch.float64)
    A.requires_grad_()
    (U, H), info = polar_ex(A)
    assert info.status == Status.RANK_DEFICIENT
    assert info.rank == 2
    assert info.error_bound == torch.inf
    torch.testing.assert_close(U @ H, A)
    assert torch.linalg.svdvals(U.detach()).sub(1).abs().max() < 1e-13
    U.sin().sum().backward(retain_graph=True)
    assert A.grad is not None
    assert A.grad.isfinite().all()
    # ‖H‖²_F = ‖A‖²_F is differentiable there, and tr H has the subgradient U
    (gradient,) = torch.autograd.grad(H.square().sum(), A, retain_graph=True)
    torch.testing.assert_close(gradient, 2 * A.detach())
    (gradient,) = torch.autograd.grad(H.trace(), A)
    torch.testing.assert_close(A.detach().mT @ gradient, H.detach(), rtol=0, atol=1e-12)


AWKWARD = {
    "ones": torch.ones(5, 5),
    "rank 3": torch.randn(15, 3, generator=torch.Generator().manual_seed(1)) @ torch.ones(3, 15).cumsum(0).cos(),
    "ones in a batch": torch.stack((torch.ones(3, 3), torch.eye(3), torch.arange(9.0).reshape(3, 3))),
    "above the cliff": torch.diag(torch.tensor([1.0, 1.0, 4e-7])),
    "below the cliff": torch.diag(torch.tensor([1.0, 1.0, 3e-7])),
    "outer product": torch.arange(1.0, 5.0)[:, None] * torch.arange(1.0, 4.0),
    "zero": torch.zeros(3, 4),
    "cyclic": torch.tensor([[0.0, 1.0, -1.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]),
    "transposed": torch.arange(12.0).reshape(3, 4).mT,
}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_inputs(name: str, dtype: torch.dtype) -> None:
    A = AWKWARD[name].to(dtype, copy=True).requires_grad_()
    U, H = polar(A)
    assert U.dtype == H.dtype == dtype
    work = torch.complex128 if dtype.is_complex else torch.float64
    residual = torch.linalg.matrix_norm(U.to(work) @ H.to(work) - A.to(work))
    assert (residual <= 16 * torch.finfo(dtype).eps * torch.linalg.matrix_norm(A.to(work))).all()
    (U.real.float().sin().sum() + H.real.float().sin().sum()).backward()
    assert A.grad is not None
    assert A.grad.isfinite().all()


@pytest.mark.parametrize("exponent", [-66, 66])
def test_scale_invariance_in_single_precision(exponent: int) -> None:
    A = torch.randn(4, 3, requires_grad=True)
    scaled = (A.detach() * 2.0**exponent).requires_grad_()
    one, other = polar(A), polar(scaled)
    assert torch.equal(one.U, other.U)
    assert torch.equal(one.H * 2.0**exponent, other.H)
    gradients = [torch.autograd.grad(value.U.sin().sum(), matrix)[0] for value, matrix in ((one, A), (other, scaled))]
    assert torch.equal(gradients[0], gradients[1] * 2.0**exponent)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 2, 2), (2, 0, 4)])
@pytest.mark.parametrize("side", SIDES)
def test_empty(shape: tuple[int, ...], side: Side) -> None:
    A = torch.zeros(shape, requires_grad=True)
    U, H = polar(A, side)
    order = shape[-1] if side == "right" else shape[-2]
    assert U.shape == shape
    assert H.shape == (*shape[:-2], order, order)
    (U.sum() + H.sum()).backward()
    assert A.grad is not None
    assert A.grad.shape == shape
    assert polar_ex(A, side)[1].status.shape == shape[:-2]


def test_many_small_matrices() -> None:
    A = torch.randn(100_000, 4, 4)
    U, H = polar(A)
    assert (U @ H - A).abs().max() < 1e-5


def test_a_bad_matrix_does_not_fail_the_others() -> None:
    A = torch.randn(3, 3, 2)
    A[1, 0, 0] = torch.inf
    with pytest.raises(torch.linalg.LinAlgError, match=r"A\[1\] has infinite or NaN entries"):
        polar(A)
    value, info = polar_ex(A)
    assert info.status.tolist() == [Status.OK, Status.NON_FINITE, Status.OK]
    assert value.U[1].isnan().all()
    assert torch.equal(value.U[[0, 2]], polar(A.nan_to_num(posinf=0.0)).U[[0, 2]])
    assert math.isinf(info.error_bound[1])


def test_arguments() -> None:
    A = torch.eye(2)
    with pytest.raises(ValueError, match="side is 'both'"):
        polar(A, "both")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="method is 'newton'"):
        polar(A, method="newton")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="int64"):
        polar(torch.eye(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="shape"):
        polar(torch.ones(3))
