"""``surefoot.linalg.eigh``: values beside LAPACK, bounds against many digits, derivatives, inputs that break others.

Ties are in ``test_ties``, transforms in ``test_operators``.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.linalg import Status, eigh, eigh_ex

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)

# Forward-mode differentiation and torch.compile use parts of torch that warn about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("UPLO", ["L", "U"])
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 4, 4), (1, 1), (0, 0), (0, 2, 2)])
def test_values_are_those_of_one_triangle(shape: tuple[int, ...], UPLO: str, dtype: torch.dtype) -> None:
    A = draw(*shape, dtype=dtype)
    other = A.triu(1) if UPLO == "L" else A.tril(-1)
    for matrix in (A, A + torch.where(other != 0, torch.nan, 0)):
        value, info = eigh_ex(matrix, UPLO)  # pyright: ignore[reportArgumentType]
        values, Q = value
        torch.testing.assert_close(values, torch.linalg.eigh(A, UPLO=UPLO).eigenvalues)
        half = A.tril(-1) if UPLO == "L" else A.triu(1)
        H = half + half.mH + torch.diag_embed(A.diagonal(dim1=-2, dim2=-1).real)
        assert values.dtype == A.real.dtype and Q.dtype == dtype and info.ok and info.status.shape == shape[:-2]
        torch.testing.assert_close((Q * values.unsqueeze(-2)) @ Q.mH, H.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_error_bounds_hold(dtype: torch.dtype, scale: float) -> None:
    A = draw(6, 6)
    for matrix in (A + A.mT, draw(6, 2) @ draw(2, 6, seed=1), torch.ones(6, 6), torch.eye(6)):
        matrix = (scale * (matrix + matrix.mT)).to(dtype)
        value, info = eigh_ex(matrix)
        with mpmath.workdps(50):
            exact = sorted(mpmath.eigsy(mpmath.matrix(matrix.tolist()), eigvals_only=True))
            error = max(abs(mpmath.mpf(x) - y) for x, y in zip(value.eigenvalues.tolist(), exact, strict=True))
            largest = max(abs(x) for x in exact)
            assert error <= info.error_bound.item() <= 60 * torch.finfo(dtype).eps * largest
        values, Q = value.eigenvalues.double(), value.eigenvectors.double()
        assert torch.linalg.matrix_norm(matrix.double() @ Q - Q * values) <= info.residual


def test_record_of_each_matrix() -> None:
    A = torch.stack((torch.diag(torch.tensor([-4.0, 2.0, 1.0])), torch.ones(3, 3), torch.eye(3)))
    A[2, 1, 0] = torch.inf
    value, info = eigh_ex(A)
    assert info.status.tolist() == [Status.OK, Status.RANK_DEFICIENT, Status.NON_FINITE]
    assert info.rank.tolist() == [3, 1, 0] and info.method == ["eigh", "eigh", "none"]
    assert 4.0 <= info.condition[0] <= 4.0 + 1e-5 and info.error_bound[2] == info.residual[2] == torch.inf
    assert value.eigenvalues[2].isnan().all() and value.eigenvectors[2].isnan().all()
    with pytest.raises(LinAlgError, match=r"A\[2\] has infinite or NaN entries"):
        eigh(A)
    # the sum of finite entries overflows
    assert eigh_ex(torch.full((3, 3), 2e38))[1].status == Status.OUT_OF_RANGE
    assert eigh(torch.full((2, 2), 1e38)).eigenvalues[1] == pytest.approx(2e38)


def above(A: Tensor) -> Tensor:
    """A function of the Hermitian matrix of the upper triangle."""
    values, Q = eigh(A, "U")
    return (Q * values.atan().unsqueeze(-2)) @ Q.mH


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("function", [above, lambda A: tuple(x.abs() for x in eigh(A))])
def test_derivatives_of_first_and_second_order(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    A = draw(2, 2, dtype=dtype).requires_grad_()

    def symmetric(A: Tensor) -> Tensor:
        return function(A + A.mH)

    assert torch.autograd.gradcheck(symmetric, A, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(symmetric, A)


def test_arguments() -> None:
    with pytest.raises(ValueError, match="UPLO is 'lower'"):
        eigh(torch.eye(2), "lower")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="ties is 'drop'"):
        eigh(torch.eye(2), ties="drop")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="last two sizes"):
        eigh(torch.ones(2, 3))
