"""``cholesky`` and ``cholesky_ex``: torch's values, the least shift, and bounds that prove definiteness."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hard_systems import hilbert
from pinv_matrices import draw, with_singular_values
from pinv_reference import product_error

from surefoot._linalg.info import Status
from surefoot.linalg import cholesky, cholesky_ex

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SCRIPTED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def definite(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    A = draw(*shape, shape[-1], dtype=dtype, seed=seed)
    A = A @ A.mH
    return (A + A.mH) / 2 + 0.1 * torch.eye(shape[-1], dtype=dtype)


def indefinite(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Hermitian matrices that do not factor, or hardly."""
    thin = draw(9, 3, dtype=torch.float64)
    skew = draw(6, 6) - draw(6, 6).mT
    result = {
        "hilbert": hilbert(14),
        "low rank": thin @ thin.mT,
        "barely": with_singular_values([1.0, 0.5, 1e-17], 5, 3).mT @ with_singular_values([1.0, 0.5, 1e-17], 5, 3),
        "negative": -definite(5),
        "zero": torch.zeros(3, 3).double(),
        "one negative": torch.diag(torch.tensor([1.0, 2.0, -1e-5, 3.0]).double()),
        "large": 1e12 * (thin @ thin.mT - torch.eye(9).double()),
        "small": 1e-12 * (draw(6, 6) + draw(6, 6).mT),
        "more than a block": draw(70, 3) @ draw(70, 3).mT,
    }
    if dtype.is_complex:
        result = {name: A.to(torch.complex128) for name, A in result.items()}
        result["complex"] = 1j * skew
    return {name: A.to(dtype) for name, A in result.items()}


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (2, 3, 5), (0,), (0, 3), (2, 0), (70,)])
def test_definite_matrices_are_as_torch(dtype: torch.dtype, shape: tuple[int, ...], upper: bool) -> None:
    A = definite(*shape, dtype=dtype)
    theirs = torch.linalg.cholesky(A, upper=upper)
    (factor, shift), info = cholesky_ex(A, upper=upper)
    assert torch.equal(cholesky(A, upper=upper), theirs)
    torch.testing.assert_close(factor, theirs, rtol=1e-4, atol=1e-5)
    assert info.ok and info.status.shape == shift.shape == shape[:-1] and not shift.any()
    if A.numel():
        residual, bound = float(info.residual.max()), float(info.error_bound.max())
        eps, trace = torch.finfo(dtype).eps, float(A.diagonal(dim1=-2, dim2=-1).real.sum(-1).max())
        assert residual <= 10 * eps and bound <= 4 * max(shape[-1], 20) * eps * trace


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_shift_is_the_least_and_the_bound_proves_it_enough(dtype: torch.dtype) -> None:
    for name, A in indefinite(dtype).items():
        (L, shift), info = cholesky_ex(A)
        identity = torch.eye(len(A), dtype=torch.complex128 if dtype.is_complex else torch.float64)
        assert info.status == Status.SHIFTED and math.log2(float(shift)).is_integer(), name
        half = A + (shift / 2).to(A.real.dtype) * torch.eye(len(A), dtype=dtype)
        smallest = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(float(A.norm()) or 1.0))
        assert shift == smallest or torch.linalg.cholesky_ex(half)[1] > 0, name
        assert torch.linalg.cholesky_ex(A)[1] > 0, name
        error = product_error(A.to(identity.dtype) + shift * identity, L, L.mH)
        assert error <= float(info.error_bound) <= 1e3 * torch.finfo(dtype).eps * float(A.norm() + shift), name
        lowest = float(torch.linalg.eigvalsh(A.to(identity.dtype))[0])
        assert lowest >= -float(shift + info.error_bound) * (1 + 1e-6), name


def test_the_bound_of_a_subnormal_matrix_is_not_rounded_below_the_error() -> None:
    A = draw(20, 1, 1).square() * 1e-310
    (L, shift), info = cholesky_ex(A)
    for a, factor, bound in zip(A.flatten().tolist(), L.flatten().tolist(), info.error_bound.tolist(), strict=True):
        assert 0 < abs(Fraction(a) - Fraction(factor) ** 2) <= Fraction(bound)
    assert not shift.any()


def test_a_limit_of_the_shift_and_bad_matrices_spoil_no_other() -> None:
    A = definite(5, 3)
    A[1] -= 100 * torch.eye(3).double()
    A[2] = torch.ones(3, 3).double() - 1e-9 * torch.eye(3).double()
    A[3, 1, 1] = math.nan
    A = A.requires_grad_()
    (L, shift), info = cholesky_ex(A, max_shift=1e-6)
    S = Status
    assert info.status.tolist() == [S.OK, S.OUTSIDE_DOMAIN, S.SHIFTED, S.NON_FINITE, S.OK]
    assert 0 < shift[2] <= 2e-9 and shift[[0, 1, 3, 4]].tolist() == [0.0] * 4
    assert bool(L[[1, 3]].isnan().all()) and bool(info.error_bound[[1, 3]].isinf().all())
    L[[0, 2, 4]].square().sum().backward()
    assert A.grad is not None and bool((A.grad[[1, 3]] == 0).all()) and bool((A.grad[[0, 2, 4]] != 0).any())
    other = A.detach()[[0, 4]].requires_grad_()
    torch.linalg.cholesky(other).square().sum().backward()
    torch.testing.assert_close(A.grad[[0, 4]], other.grad)
    limits = torch.tensor([0.0, 1e3, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert cholesky_ex(A, max_shift=limits)[1].status.tolist() == [
        S.OK,
        S.SHIFTED,
        S.OUTSIDE_DOMAIN,
        S.NON_FINITE,
        S.OK,
    ]
    with pytest.raises(ValueError, match="max_shift is -1"):
        cholesky_ex(A, max_shift=-1.0)


def test_plain_cholesky_names_the_matrix_and_the_shift() -> None:
    A = definite(2, 3, 3)
    A[1, 2] = torch.diag(torch.tensor([1.0, 1.0, -0.3]).double())
    with pytest.raises(
        torch.linalg.LinAlgError, match=r"cholesky: A\[1, 2\] is not positive definite, but it is with 0.5 "
    ):
        cholesky(A)
    A[1, 2, 0, 0] = math.inf
    with pytest.raises(torch.linalg.LinAlgError, match=r"cholesky: A\[1, 2\] has infinite or NaN entries"):
        cholesky(A)
    with pytest.raises(ValueError, match="the last two sizes must be equal"):
        cholesky(A[..., :2])


@SCRIPTED
def test_derivatives_and_transforms() -> None:
    """At a shifted and a definite matrix in one batch; the shift is a constant."""
    A = definite(2, 3, dtype=torch.complex128)
    A[1] -= 1.3 * torch.eye(3)
    shift = cholesky_ex(A)[0].shift
    assert shift.tolist() == [0.0, float(shift[1])] and shift[1] > 0

    def factor(A: torch.Tensor) -> torch.Tensor:
        return cholesky_ex((A + A.mH) / 2)[0].factor

    inputs = A.clone().requires_grad_()
    assert torch.autograd.gradcheck(factor, inputs, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(factor, inputs, fast_mode=True)
    torch.testing.assert_close(torch.vmap(factor, in_dims=1)(A.movedim(0, 1)), factor(A))
    assert torch.equal(torch.vmap(cholesky_ex)(A)[0].shift, shift)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    A = definite(4, 3).to(dtype).requires_grad_()
    (L, _), info = cholesky_ex(A)
    assert L.dtype == dtype and torch.equal(cholesky(A), L) and info.ok
    for a, b, bound in zip(A, L, info.error_bound, strict=True):
        assert (
            product_error(a.double(), b, b.mT)
            <= float(bound)
            <= 4 * torch.finfo(dtype).eps * float(a.detach().float().norm())
        )
    cholesky(A).sum().backward()
    assert A.grad is not None and A.grad.dtype == dtype
