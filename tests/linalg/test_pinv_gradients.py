"""The gradients of ``pinv`` against ball arithmetic, finite differences, and the formula with all its terms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pinv_matrices import draw, of_rank_three, relative, with_singular_values
from pinv_reference import true_gradient
from torch import Tensor

from surefoot._linalg.pinv import pinv
from surefoot._linalg.pinv_iteration import iterate

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
# torch's own forward mode loads scripted functions, with a warning
SCRIPTED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@pytest.mark.parametrize("method", ["auto", "cholesky", "qr", "iteration"])
@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_against_ball_arithmetic(dtype: torch.dtype, shape: tuple[int, int], method: str) -> None:
    A, g = draw(*shape, dtype=dtype), draw(*shape[::-1], dtype=dtype, seed=5)
    copies = A.expand(300, *shape).clone().requires_grad_()  # enough of them for the fast methods of "auto"
    pinv(copies, method=method).backward(g.expand(300, *g.shape))
    kappa = float(torch.linalg.cond(A))
    assert copies.grad is not None
    assert relative(copies.grad[0], true_gradient(A, g)) <= 30 * kappa * torch.finfo(dtype).eps


@pytest.mark.parametrize("shape", [(6, 6), (5, 9), (9, 5)])
def test_gradient_of_ill_conditioned_matrices_beats_the_full_formula(shape: tuple[int, int]) -> None:
    """Terms that vanish in exact arithmetic multiply the rounding error by up to κ (theorem 7.1)."""
    kappa = 1e8
    k = min(shape)
    ours, theirs = [], []
    for seed in range(20):
        A = with_singular_values([kappa ** (-i / (k - 1)) for i in range(k)], *shape, seed=seed)
        g = draw(*shape[::-1], seed=seed + 50)
        true = true_gradient(A, g)
        for values, function in ((ours, pinv), (theirs, torch.linalg.pinv)):
            B = A.clone().requires_grad_()
            function(B).backward(g)
            assert B.grad is not None
            values.append(relative(B.grad, true))
    assert max(ours) <= 50 * kappa * torch.finfo(torch.float64).eps
    if shape[0] == shape[1]:
        assert sum(theirs) > 10 * sum(ours)


@SCRIPTED
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("options", [{}, {"method": "qr"}, {"method": "iteration"}])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 2, 2)])
def test_first_and_second_derivatives(shape: tuple[int, ...], options: dict[str, str], dtype: torch.dtype) -> None:
    A = draw(*shape, dtype=dtype).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: pinv(A, **options), A, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda A: pinv(A, **options), A)


@SCRIPTED
def test_derivatives_of_hermitian_matrices() -> None:
    A = draw(3, 3, dtype=torch.complex128).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: pinv(A + A.mH, hermitian=True), A, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda A: pinv(A + A.mH, hermitian=True), A)


def low_rank(B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
    return B @ C


@pytest.mark.parametrize(("m", "n"), [(4, 4), (3, 5), (5, 3)])
def test_derivatives_along_changes_that_keep_the_rank(m: int, n: int) -> None:
    """Through A = BC of rank 2 every change keeps the rank, so finite differences are those of a smooth function."""
    B, C = draw(m, 2).requires_grad_(), draw(2, n, seed=1).requires_grad_()
    for method in ("auto", "svd", "iteration"):
        assert torch.autograd.gradcheck(lambda B, C: pinv(low_rank(B, C), method=method), (B, C))  # noqa: B023
    assert torch.autograd.gradgradcheck(lambda B, C: pinv(low_rank(B, C), method="svd"), (B, C))


def test_differentiating_the_steps_is_wrong_where_the_rank_is_deficient() -> None:
    """The derivative of the iteration sees changes out of the range of A, which A⁺ does not follow to any finite degree.

    The last step of ours, X ← XAX, removes what has grown there, from the value and from the derivative through the steps.
    """
    A, _ = of_rank_three()

    def gradient(inverse: Callable[[Tensor], Tensor]) -> Tensor:
        B = A.clone().requires_grad_()
        inverse(B).sum().backward()
        assert B.grad is not None
        return B.grad

    exact = gradient(torch.linalg.pinv)
    norm = torch.tensor(float(torch.linalg.matrix_norm(A, 2)) * 1.01, dtype=A.dtype)
    assert relative(gradient(lambda B: iterate(B, norm, 0.0, 3, 30)[0]), exact) > 1.0
    assert relative(gradient(lambda B: pinv(B, method="iteration")), exact) <= 1e-9
    assert relative(gradient(lambda B: pinv(B, method="iteration", backward="unroll")), exact) <= 1e-9


def test_differentiating_the_steps_is_right_at_full_rank() -> None:
    A, g = draw(4, 6), draw(6, 4, seed=2)
    for options in ({"method": "iteration"}, {"method": "chebyshev", "interval": (0.3, 6.0)}):
        B = A.clone().requires_grad_()
        pinv(B, backward="unroll", **options).backward(g)
        assert B.grad is not None and relative(B.grad, true_gradient(A, g)) <= 1e-6
