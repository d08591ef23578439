"""``sf.linalg.logdet``: value and bound against exact determinants, derivatives, statuses."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.linalg import Status, logdet, logdet_ex

# Forward-mode differentiation uses parts of torch that warn about themselves.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def determinant(rows: list[list[Fraction]]) -> Fraction:
    """By elimination, exactly."""
    result = Fraction(1)
    for k in range(len(rows)):
        result *= rows[k][k]
        for row in rows[k + 1 :]:
            share = row[k] / rows[k][k]
            row[:] = [x - share * y for x, y in zip(row, rows[k], strict=True)]
    return result


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("least", [1.0, 1e-6])
def test_value_and_its_bound(dtype: torch.dtype, least: float) -> None:
    if dtype == torch.bfloat16 and least < 1:
        least = 0.25
    B = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    A = (B @ B.mT + least * torch.eye(6, dtype=torch.float64)).to(dtype)
    A = A.tril() + A.tril(-1).mT
    value, info = logdet_ex(A)
    exact = determinant([[Fraction(x) for x in row] for row in A.double().tolist()])
    logarithm = math.log(exact.numerator) - math.log(exact.denominator)
    # math.log is right to a few units
    error = abs(value.item() - logarithm) - 1e-14 * abs(logarithm)
    if info.status == Status.OK:
        assert error <= info.error_bound < 2
    else:
        assert info.status == Status.INACCURATE and least < 1 and dtype == torch.float32
    assert torch.equal(logdet(A), value)
    assert info.method == "cholesky" and info.rank == 6


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_derivatives(dtype: torch.dtype) -> None:
    B = torch.randn(2, 3, 3, dtype=dtype, generator=torch.Generator().manual_seed(4))
    A = (B @ B.mH + torch.eye(3)).requires_grad_()

    def hermitian(A: Tensor) -> Tensor:
        return logdet((A + A.mH) / 2)

    assert torch.autograd.gradcheck(hermitian, A, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(hermitian, A, check_fwd_over_rev=True, fast_mode=True)
    (g,) = torch.autograd.grad(logdet(A).sum(), A)
    torch.testing.assert_close(g, torch.linalg.inv(A.detach()))


def test_statuses_and_errors() -> None:
    A = torch.eye(2).repeat(4, 1, 1)
    A[1, 1, 1], A[2, 0, 0], A[3, 1, 1] = -2.0, math.nan, 0.0
    A.requires_grad_()
    value, info = logdet_ex(A)
    assert info.status.tolist() == [Status.OK, Status.OUTSIDE_DOMAIN, Status.NON_FINITE, Status.OUTSIDE_DOMAIN]
    assert value.isnan().tolist() == [False, True, True, True]
    value.nan_to_num().sum().backward()
    assert A.grad is not None and torch.equal(A.grad[0], torch.eye(2)) and not A.grad[1:].any()
    with pytest.raises(LinAlgError, match=r"A\[1\] is not positive definite.*slogdet"):
        logdet(A[:2])
    with pytest.raises(LinAlgError, match=r"A\[2\] has infinite or NaN entries"):
        logdet(A)
