"""``lstsq`` and ``lstsq_ex``: every shape and rank, bounds that hold, gradients at a deficient rank, the ridge."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hard_systems import hard_squares, hilbert
from pinv_matrices import draw, of_rank_three, relative, with_singular_values
from pinv_reference import solution_error
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from surefoot._linalg.info import Status
from surefoot.linalg import lstsq, lstsq_ex

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SCRIPTED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
# beyond what is given to the singular values at once, so that each takes its own method
METHODS = {(40, 40): "lu", (60, 20): "cholesky", (20, 60): "cholesky"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 4, 4), *METHODS, (0, 3), (3, 0), (0, 4, 3)])
def test_full_rank_is_as_torch(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    A, B = draw(*shape, dtype=dtype), draw(*shape[:-1], 2, dtype=dtype, seed=1)
    value, info = lstsq_ex(A, B)
    assert value.rank.tolist() == info.rank.tolist() == torch.full(shape[:-2], min(shape[-2:])).tolist()
    if A.numel():
        theirs = torch.linalg.lstsq(A, B).solution
        torch.testing.assert_close(
            value.solution, theirs, rtol=1e-3 if torch.finfo(dtype).eps > 1e-10 else 1e-5, atol=1e-5
        )
        residuals = (A @ theirs - B).abs().square().sum(-2)
        torch.testing.assert_close(value.residuals, residuals, rtol=1e-3, atol=1e-6)
        assert info.ok and info.method == METHODS.get(shape, "svd")
    else:
        assert value.solution.shape == (*shape[:-2], shape[-1], 2) and bool((value.solution == 0).all())
    for plain, other in zip(lstsq(A, B), value, strict=True):
        torch.testing.assert_close(plain, other, rtol=1e-3 if torch.finfo(dtype).eps > 1e-10 else 1e-8, atol=1e-5)


def test_right_sides_follow_the_rule_of_solve() -> None:
    A, vectors = draw(2, 5, 3), draw(2, 5, seed=1)
    torch.testing.assert_close(lstsq(A, vectors).solution, torch.linalg.lstsq(A, vectors).solution)
    value = lstsq(A, vectors[0])
    assert value.solution.shape == (2, 3) and value.residuals.shape == (2,)
    B = draw(4, 1, 5, 2, seed=2)
    torch.testing.assert_close(lstsq(A, B).solution, torch.linalg.pinv(A) @ B)
    with pytest.raises(ValueError, match="m rows of A"):
        lstsq(A, draw(3))
    with pytest.raises(TypeError, match="ridge is None: it must be a number"):
        lstsq(A, vectors, ridge=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ridge is -1"):
        lstsq(A, vectors, ridge=-1.0)


@pytest.mark.parametrize(("dtype", "ridge"), [*((dtype, 0.0) for dtype in DTYPES), (torch.float64, 1e-3)])
def test_no_error_exceeds_its_bound(dtype: torch.dtype, ridge: float) -> None:
    """Against 300 bits; square, tall and wide; alone and in batches large enough for the fast methods."""
    finite = total = 0
    for name, square in hard_squares(dtype).items():
        n = len(square)
        for A in (square, torch.cat((square, square.flip(0)[: n // 2 + 1] / 3)), square[: n // 2 + 1]):
            copies = 1 if n > 20 else 2 + 4_000 // (A.numel() * min(A.shape))
            B = draw(len(A), 2, dtype=dtype, seed=3)
            value, info = lstsq_ex(A.expand(copies, *A.shape), B, ridge=ridge)
            bound, total = float(info.error_bound[0]), total + 1
            if math.isfinite(bound):
                finite += 1
                assert solution_error(value.solution[0], A, B, ridge) <= bound, (name, A.shape)
            else:
                assert info.status[0] in (Status.RANK_DEFICIENT, Status.INACCURATE, Status.OUT_OF_RANGE), name
    assert finite >= 0.6 * total


def test_the_bound_is_near_the_error() -> None:
    for shape in METHODS:
        A, B = draw(*shape), draw(shape[0], 2, seed=1)
        value, info = lstsq_ex(A, B)
        assert (
            solution_error(value.solution, A, B) <= float(info.error_bound) <= 30 * solution_error(value.solution, A, B)
        )


@pytest.mark.parametrize("method", ["lu", "cholesky", "qr", "svd"])
def test_every_method_is_accurate_to_its_condition(method: str) -> None:
    """A condition that the Gram matrix cannot hold goes to QR, one beyond the tolerance to the singular values."""
    condition = {"lu": 1e9, "cholesky": 1e5, "qr": 1e10, "svd": 8e13}[method]
    m, n = (40, 40) if method == "lu" else (50, 30)
    A = with_singular_values(torch.logspace(0, -math.log10(condition), n).tolist(), m, n)
    for matrix in (A, A.mT):
        # the smallest singular value of the last is within the factor of the tolerance in which an estimate decides nothing
        B = matrix @ draw(matrix.shape[-1], 1, seed=2)
        value, info = lstsq_ex(matrix, B, rtol=1e-14)
        assert info.method == method
        size = float(value.solution.norm())
        assert solution_error(value.solution, matrix, B) <= 100 * condition * 2.0**-52 * size


def test_growing_pivots_are_noticed() -> None:
    A, B = hard_squares(torch.float64)["growth"], draw(20, 1, seed=1)
    large = torch.block_diag(A, A, A)
    large[:, -1] = 1.0
    value, info = lstsq_ex(large, torch.cat((B, B, B)))
    assert info.ok and float(info.error_bound) <= 1e-10 * float(value.solution.norm())


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_deficient_rank_has_the_solution_of_least_norm(dtype: torch.dtype) -> None:
    A, true = of_rank_three(dtype)
    for copies in (1, 30):
        B = draw(15, 4, dtype=dtype, seed=1)
        value, info = lstsq_ex(A.expand(copies, 15, 15), B)
        assert value.rank.tolist() == [3] * copies and info.status.tolist() == [Status.RANK_DEFICIENT] * copies
        assert bool(info.error_bound.isinf().all()) and relative(value.solution[0], true.to(dtype) @ B) <= 1e-13
    for rtol in (1e-6, 1e-12):
        sigma = torch.linalg.svdvals(hilbert(12))
        assert int(lstsq(hilbert(12), draw(12), rtol=rtol).rank) == int((sigma > rtol * sigma[0]).sum()) < 12


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(6, 5), (5, 6), (5, 5), (40, 30)])
def test_gradient_at_a_deficient_rank(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """Against differentiation through factors of full rank, A⁺B = (Rᴴ)⁺L⁺B with A = LRᴴ: changes that keep the rank."""
    L, R = draw(shape[0], 2, dtype=dtype).requires_grad_(), draw(shape[1], 2, dtype=dtype, seed=1).requires_grad_()
    B, g = draw(shape[0], 3, dtype=dtype, seed=2).requires_grad_(), draw(shape[1], 3, dtype=dtype, seed=3)

    def loss(X: torch.Tensor) -> torch.Tensor:
        return (X.conj() * g).real.sum() + X.abs().pow(4).sum()

    value, info = lstsq_ex(L @ R.mH, B)
    assert info.status == Status.RANK_DEFICIENT
    gram_L, gram_R = L.mH @ L, R.mH @ R
    true = R @ torch.linalg.solve(gram_R, torch.linalg.solve(gram_L, L.mH @ B))
    torch.testing.assert_close(value.solution, true)
    inputs = (L, R, B)
    ours = torch.autograd.grad(loss(value.solution), inputs, create_graph=True)
    theirs = torch.autograd.grad(loss(true), inputs, create_graph=True)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-8)
    directions = [draw(*M.shape, dtype=dtype, seed=9 + k) for k, M in enumerate(inputs)]
    second = [
        torch.autograd.grad(sum((a.conj() * b).real.sum() for a, b in zip(first, directions, strict=True)), inputs)  # type: ignore[arg-type]
        for first in (ours, theirs)
    ]
    for left, right in zip(*second, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6)


@SCRIPTED
@pytest.mark.parametrize("shape", [(2, 3, 2), (2, 2, 3)])
def test_derivatives_with_a_ridge(shape: tuple[int, ...]) -> None:
    A = draw(*shape, dtype=torch.complex128).requires_grad_()
    B = draw(*shape[:-1], 1, dtype=torch.complex128, seed=1).requires_grad_()
    ridge = torch.tensor([0.3, 0.02], dtype=torch.float64).requires_grad_()

    def value(A: torch.Tensor, B: torch.Tensor, ridge: torch.Tensor) -> torch.Tensor:
        return lstsq_ex(A, B, ridge=ridge)[0].solution

    assert torch.autograd.gradcheck(value, (A, B, ridge), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(value, (A, B, ridge), fast_mode=True)


def test_a_ridge_has_no_derivative_where_a_tolerance_cuts() -> None:
    A = torch.diag(torch.tensor([1.0, 1e-3, 1e-17], dtype=torch.float64)).requires_grad_()
    B = torch.ones(3, 1, dtype=torch.float64)
    for tolerances in ({"atol": 1e-2}, {"rtol": 1e-2}):
        with pytest.raises(LinAlgError, match="A that are not 0 to rounding; with a ridge"):
            lstsq(A, B, ridge=1e-4, **tolerances).solution.sum().backward()
    # those that cut nothing, or what is 0 to rounding
    kept, whole = (
        torch.autograd.grad(lstsq(A, B, ridge=1e-4, **tolerances).solution.sum(), A)[0]
        for tolerances in ({"atol": 1e-9}, {})
    )
    assert torch.equal(kept, whole)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_the_ridge_tends_to_the_solution_of_least_norm(shape: tuple[int, int]) -> None:
    """Also at a deficient rank, where the normal equations are singular; and so does the derivative in the ridge."""
    A = draw(shape[0], 2) @ draw(2, shape[1], seed=1)
    B = draw(shape[0], 2, seed=2)
    limit = lstsq(A, B).solution
    previous = math.inf
    for exponent in (-2, -4, -8, -16, -40, -150):
        value = lstsq(A, B, ridge=10.0**exponent)
        distance = relative(value.solution, limit)
        assert distance <= max(10.0**exponent, 1e-14) and distance <= previous and int(value.rank) == shape[1]
        previous = max(distance, 1e-14)
    slopes = []
    for start in (0.0, 1e-7):
        ridge = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        slopes.append(torch.autograd.grad(lstsq(A, B, ridge=ridge).solution.sum(), ridge)[0])
    difference = (lstsq(A, B, ridge=1e-6).solution.sum() - limit.sum()) / 1e-6
    torch.testing.assert_close(slopes[0], difference, rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(slopes[1], difference, rtol=1e-4, atol=1e-8)


def test_solutions_zero_are_exact() -> None:
    A, B = draw(5, 3), draw(5, 2, seed=1)
    for arguments, ridge in (((A, 0 * B), 0.0), ((A.mT, 0 * B[:3]), 0.1), ((0 * A, B), 0.1)):
        value, info = lstsq_ex(*arguments, ridge=ridge)
        assert not value.solution.any() and info.ok and info.error_bound == info.residual == 0.0
    value, info = lstsq_ex(0 * A, B)
    assert not value.solution.any() and info.status == Status.RANK_DEFICIENT and value.rank == 0


def test_bad_problems_have_their_status_and_spoil_no_other() -> None:
    A, B = draw(4, 5, 3), draw(4, 5, 2, seed=1)
    A[1, 0, 0], B[2, 0, 0] = math.nan, math.inf
    A, B = A.requires_grad_(), B.requires_grad_()
    value, info = lstsq_ex(A, B)
    S = Status
    assert info.status.tolist() == [S.OK, S.NON_FINITE, S.NON_FINITE, S.OK] and info.rank.tolist() == [3, 0, 0, 3]
    assert bool(value.solution[1:3].isnan().all()) and bool(info.error_bound[1:3].isinf().all())
    value.solution[[0, 3]].square().sum().backward()
    assert A.grad is not None and B.grad is not None
    assert bool((A.grad[1:3] == 0).all()) and bool((B.grad[1:3] == 0).all()) and bool((A.grad[[0, 3]] != 0).all())
    with pytest.raises(torch.linalg.LinAlgError, match=r"problem \[1\] has infinite or NaN entries.*lstsq_ex"):
        lstsq(A, B)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [lstsq, lambda *arguments: lstsq_ex(*arguments)[0]])
def test_half_precision(dtype: torch.dtype, function: Callable[..., tuple[torch.Tensor, ...]]) -> None:
    A, B = draw(4, 5, 3).to(dtype).requires_grad_(), draw(4, 5, 2, seed=1).to(dtype)
    X = function(A, B)[0]
    bounds = lstsq_ex(A, B)[1].error_bound
    assert X.dtype == dtype
    for x, a, b, bound in zip(X, A, B, bounds, strict=True):
        assert solution_error(x, a, b) <= float(bound) <= 4 * torch.finfo(dtype).eps * float(x.detach().float().norm())
    X.sum().backward()
    assert A.grad is not None and A.grad.dtype == dtype and bool(A.grad.isfinite().all())
