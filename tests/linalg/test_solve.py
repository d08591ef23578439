"""``solve`` and ``solve_ex``: torch's values, rules and gradients, bounds that hold and are close, statuses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hard_systems import hard_squares
from pinv_matrices import draw
from pinv_reference import solution_error

from surefoot._linalg.info import Status
from surefoot.linalg import solve, solve_ex

SCRIPTED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [
    ((3, 3), (3,)),
    ((3, 3), (3, 2)),
    ((3, 3), (3, 0)),
    ((2, 4, 4), (2, 4)),
    ((2, 4, 4), (4,)),
    ((4, 4), (5, 2, 4, 3)),
    ((5, 1, 4, 4), (2, 4, 3)),
    ((0, 3, 3), (3, 2)),
    ((2, 0, 0), (2, 0)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_values_and_right_sides_are_those_of_torch(
    dtype: torch.dtype, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    A, B = draw(*first, dtype=dtype), draw(*second, dtype=dtype, seed=1)
    theirs = torch.linalg.solve(A, B)
    assert torch.equal(solve(A, B), theirs)
    X, info = solve_ex(A, B)
    torch.testing.assert_close(X, theirs)
    assert info.ok and info.status.shape == torch.broadcast_shapes(first[:-2], theirs.shape[: info.status.ndim])
    assert bool((info.residual <= 1e-4).all())
    if len(second) > len(first) or B.ndim > A.ndim - 1:
        rows = (draw(*second[:-2], 2, first[-1], dtype=dtype, seed=2), A)
        theirs = torch.linalg.solve(A, rows[0], left=False)
        assert torch.equal(solve(A, rows[0], left=False), theirs)
        torch.testing.assert_close(solve_ex(A, rows[0], left=False)[0], theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_error_exceeds_its_bound(dtype: torch.dtype) -> None:
    """Against 300 bits, with right-hand sides of which one belongs to an unusually small solution."""
    finite, matrices = 0, hard_squares(dtype)
    for name, A in matrices.items():
        B = torch.cat((draw(len(A), 1, dtype=dtype, seed=3), A[:, :1]), -1)
        X, info = solve_ex(A, B)
        bound, error = float(info.error_bound), solution_error(X, A, B)
        if math.isfinite(bound):
            finite += 1
            assert error <= bound, name
            assert float(info.condition) >= 0.999 * float(torch.linalg.cond(A)) or "any" in name
        else:
            assert info.status == Status.INACCURATE and math.isinf(info.condition), name
        assert info.status != Status.OK or error <= float(X.norm()), name
    assert finite >= 0.6 * len(matrices)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, left: bool) -> None:
    A, B = (draw(4, 3, 3) + 3 * torch.eye(3)).to(dtype), draw(4, 3, 3, seed=1).to(dtype)
    A, B = A.requires_grad_(), B.requires_grad_()
    X, info = solve_ex(A, B, left=left)
    assert X.dtype == dtype and torch.equal(solve(A, B, left=left), X) and info.ok
    for x, a, b, bound in zip(X, A, B, info.error_bound, strict=True):
        error = solution_error(x, a, b) if left else solution_error(x.mT, a.mT, b.mT)
        assert error <= float(bound) <= 4 * torch.finfo(dtype).eps * float(x.detach().float().norm())
    X.sum().backward()
    assert A.grad is not None and A.grad.dtype == dtype and bool(A.grad.isfinite().all())
    overflow = solve_ex(torch.full((1, 1), 1e-3, dtype=torch.float16), torch.full((1, 1), 6e4, dtype=torch.float16))[1]
    assert overflow.status == Status.OUT_OF_RANGE and math.isinf(overflow.error_bound)


def test_a_right_side_zero_is_solved_exactly() -> None:
    for dtype in DTYPES:
        X, info = solve_ex(draw(2, 4, 4, dtype=dtype), torch.zeros(4, 2, dtype=dtype))
        assert not X.any() and info.ok and info.error_bound.tolist() == info.residual.tolist() == [0.0, 0.0]


def test_bad_systems_have_their_status_and_spoil_no_other() -> None:
    A, B = draw(5, 3, 3), draw(5, 3, 2, seed=1)
    A[1], A[2, 0, 0], B[3, 0, 0] = 1.0, math.nan, math.inf
    A, B = A.requires_grad_(), B.requires_grad_()
    X, info = solve_ex(A, B)
    S = Status
    assert info.status.tolist() == [S.OK, S.SINGULAR, S.NON_FINITE, S.NON_FINITE, S.OK]
    assert bool(X[1:4].isnan().all()) and bool(info.error_bound[1:4].isinf().all())
    X[[0, 4]].square().sum().backward()
    assert A.grad is not None and B.grad is not None
    assert bool((A.grad[1:4] == 0).all()) and bool((B.grad[1:4] == 0).all())
    alone = [M.detach()[[0, 4]].requires_grad_() for M in (A, B)]
    torch.linalg.solve(*alone).square().sum().backward()
    for ours, theirs in zip((A, B), alone, strict=True):
        torch.testing.assert_close(ours.grad[[0, 4]], theirs.grad)  # type: ignore[index]


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_bound_holds_of_a_solution_that_overflows(dtype: torch.dtype) -> None:
    A = torch.full((1, 1), torch.finfo(dtype).tiny / 1024, dtype=dtype)
    X, info = solve_ex(A, torch.ones(1, 1, dtype=dtype))
    assert not X.isfinite().all() and info.status == Status.OUT_OF_RANGE and info.error_bound == math.inf


def test_plain_solve_names_the_singular_matrix_and_the_remedy() -> None:
    A = draw(2, 3, 3, 3)
    A[1, 2] = 0.0
    with pytest.raises(torch.linalg.LinAlgError, match=r"solve: A\[1, 2\] is exactly singular.*lstsq.*solve_ex"):
        solve(A, draw(3, 1))
    with pytest.raises(torch.linalg.LinAlgError, match="solve: A is exactly singular"):
        solve(torch.ones(2, 2), torch.ones(2))


@pytest.mark.parametrize("function", [solve, solve_ex])
def test_arguments_that_do_not_fit_are_named(function: Callable[..., object]) -> None:
    A = draw(2, 3, 3)
    for arguments, error, words in [
        ((A, [1.0]), TypeError, "B must be a torch.Tensor"),
        ((A, draw(3).float()), TypeError, "A has dtype torch.float64 but B has torch.float32"),
        ((A[:, :2], draw(2)), ValueError, "the last two sizes must be equal"),
        ((A, draw(4)), ValueError, "m rows of A"),
        ((A, draw(5, 3, 1)), ValueError, "do not broadcast"),
    ]:
        with pytest.raises(error, match=words):
            function(*arguments)
    with pytest.raises(ValueError, match=r"left is False: a row vector must be a matrix"):
        function(A, draw(2, 3), left=False)


@SCRIPTED
def test_derivatives() -> None:
    dtype = torch.complex128
    A, B = draw(2, 3, 3, dtype=dtype).requires_grad_(), draw(3, 2, dtype=dtype, seed=1).requires_grad_()

    def value(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return solve_ex(A, B)[0]

    assert torch.autograd.gradcheck(value, (A, B), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(value, (A, B), fast_mode=True)
