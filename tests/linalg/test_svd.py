"""``surefoot.linalg.svd``: accuracy beside LAPACK, derivatives at ties, transforms, inputs that break others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from surefoot.linalg import Status, polar_ex, svd, svd_ex

REAL = (torch.float32, torch.float64)
DTYPES = (*REAL, torch.complex64, torch.complex128)
DOUBLE = (torch.float64, torch.complex128)

# Forward-mode differentiation and torch.compile use parts of torch that warn about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


def orthonormal(m: int, n: int, dtype: torch.dtype) -> Tensor:
    return torch.linalg.qr(torch.randn(m, n, dtype=dtype)).Q


def adjusted(h: Callable[[Tensor], Tensor], k: int | None = None) -> Callable[[Tensor], Tensor]:
    """A ↦ U·h(S)·Vh over the first k singular values; a loss of it is one of one function."""

    def function(A: Tensor) -> Tensor:
        U, S, Vh = svd(A, full_matrices=False, ties="one-function")
        return (U[..., :k] * h(S)[..., None, :k]) @ Vh[..., :k, :]

    return function


def left_function(A: Tensor) -> tuple[Tensor, ...]:
    """The independent parts of U·√S·Uᴴ: the others have gradients 0, of which rounding alone is left."""
    U, S, _ = svd(A, full_matrices=False, ties="one-function")
    F = (U * S.sqrt().unsqueeze(-2)) @ U.mH
    return (F.real, F.imag.tril(-1)) if F.is_complex() else (F,)


def projectors(A: Tensor) -> tuple[Tensor, Tensor]:
    U, _, Vh = svd(A, full_matrices=False)
    return U[..., :2] @ U[..., :2].mH, Vh[..., :2, :].mH @ Vh[..., :2, :]


def null_projectors(A: Tensor) -> tuple[Tensor, Tensor]:
    U, S, Vh = svd(A)
    k = S.shape[-1]
    return U[..., k:] @ U[..., k:].mH, Vh[..., k:, :].mH @ Vh[..., k:, :]


def vectors(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    U, S, Vh = svd(A, full_matrices=False)
    return U.abs(), S, Vh.abs()


def errors(A: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Residual relative to s_1 and the orthogonality defects, in double precision."""
    k = S.shape[-1]
    wide = torch.complex128 if A.is_complex() else torch.float64
    A, U, Vh, S = A.to(wide), U.to(wide), Vh.to(wide), S.double()
    residual = torch.linalg.matrix_norm(A - (U[..., :k] * S.unsqueeze(-2)) @ Vh[..., :k, :]) / S[..., 0]
    defect = [torch.linalg.matrix_norm(Q.mH @ Q - torch.eye(Q.shape[-1], dtype=wide)) for Q in (U, Vh.mH)]
    return residual, *defect


# ---- values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(20, 12, 30), (3, 2, 7, 4), (20, 9, 9), (5, 1), (1, 6)])
@pytest.mark.parametrize("full_matrices", [True, False])
def test_as_accurate_as_lapack(shape: tuple[int, ...], dtype: torch.dtype, full_matrices: bool) -> None:
    A = torch.randn(shape, dtype=dtype)
    ours, theirs = svd(A, full_matrices), torch.linalg.svd(A, full_matrices)
    assert [x.shape for x in ours] == [x.shape for x in theirs]
    assert (ours.S.diff(dim=-1) <= 0).all()
    eps = torch.finfo(dtype).eps
    # LAPACK's error for one matrix can be small by luck: at least its usual size
    for own, other in zip(errors(A, *ours), errors(A, *theirs), strict=True):
        assert (own <= 10 * other.clamp_min(eps * min(shape[-2:]))).all()
    reference = torch.linalg.svdvals(A.to(torch.complex128))
    bound = 10 * (theirs.S - reference).abs().amax(-1).clamp_min(eps * reference[..., 0])
    assert ((ours.S - reference).abs().amax(-1) <= bound).all()


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("condition", [1.0, 10.0, 1e2, 1e4, 1e8, 1e14])
def test_gram_route_stays_within_ten_times_lapack_or_yields(condition: float, dtype: torch.dtype) -> None:
    S = torch.logspace(0, -math.log10(condition), 32, dtype=torch.float64)
    A = torch.stack([(orthonormal(32, 32, dtype) * S) @ orthonormal(48, 32, dtype).mH for _ in range(6)])
    value, info = svd_ex(A, full_matrices=False)
    if condition != 100:  # the border
        assert info.method == ("gram" if condition < 100 else "svd")
    for own, other in zip(errors(A, *value), errors(A, *torch.linalg.svd(A, full_matrices=False)), strict=True):
        assert (own <= 10 * other.clamp_min(32 * 2.0**-52)).all()
    assert ((value.S - S).abs().amax(-1) <= info.error_bound + 40 * 2.0**-52).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gram_route_is_for_long_matrices(dtype: torch.dtype) -> None:
    for shape, route in (((45, 30), "gram"), ((24, 60), "gram"), ((30, 40), "svd"), ((8, 40), "svd")):
        k = min(shape)
        A = orthonormal(shape[0], k, dtype) @ orthonormal(shape[1], k, dtype).mH
        value, info = svd_ex(A.expand(3, *shape))
        assert info.method == route
        assert (value.S - 1).abs().max() < 20 * torch.finfo(dtype).eps


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_error_bound_holds(shape: tuple[int, int]) -> None:
    for scale in (1.0, 1e-20, 1e20):
        for rank in (min(shape), 2):
            A = (
                scale
                * torch.randn(shape[0], rank, dtype=torch.float64)
                @ torch.randn(rank, shape[1], dtype=torch.float64)
            )
            value, info = svd_ex(A)
            with mpmath.workdps(60):
                wide = A if shape[0] >= shape[1] else A.mT
                exact = mpmath.svd_r(mpmath.matrix(wide.tolist()), compute_uv=False)
                error = max(abs(mpmath.mpf(s) - t) for s, t in zip(value.S.tolist(), exact, strict=True))
            assert error <= info.error_bound.item() <= 1e-13 * value.S[0].item()
            assert info.rank == rank
            assert info.status == (Status.OK if rank == min(shape) else Status.RANK_DEFICIENT)


# ---- derivatives


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("shape", [(2, 2), (2, 3, 2), (2, 3)])
@pytest.mark.parametrize("function", [adjusted(torch.Tensor.atan), projectors, vectors, null_projectors])
def test_derivatives_of_first_and_second_order(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    A = torch.randn(shape, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(function, A, check_forward_ad=True)
    if len(shape) == 2:
        assert torch.autograd.gradgradcheck(function, A)


TIED = {
    "identity": torch.eye(4),
    "two and one": torch.diag(torch.tensor([2.0, 2.0, 1.0])),
    "tall": torch.diag(torch.tensor([3.0, 3.0, 3.0, 1.0]))[:, :3],
    "wide batch": torch.stack((torch.eye(2, 3), torch.diag(torch.tensor([1.0, 2.0, 3.0]))[:2])),
    "permutation": torch.eye(3)[[2, 0, 1]],
}


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("name", TIED)
@pytest.mark.parametrize("function", [adjusted(torch.ones_like), adjusted(torch.Tensor.atan), left_function])
def test_jacobian_at_ties(function: Callable[[Tensor], Any], name: str, dtype: torch.dtype) -> None:
    """Every entry of the Jacobian against central differences, though LAPACK's basis would hide the entries off the diagonal."""
    A = TIED[name].to(dtype, copy=True).requires_grad_()
    assert torch.autograd.gradcheck(function, A)


def test_low_rank_approximation_with_a_tie_inside() -> None:
    A = torch.diag(torch.tensor([2.0, 2.0, 1.0, 0.5], dtype=torch.float64))
    Q, R = orthonormal(4, 4, torch.float64), orthonormal(4, 4, torch.float64)
    assert torch.autograd.gradcheck(adjusted(lambda S: S, 2), A.requires_grad_())
    assert torch.autograd.gradcheck(adjusted(lambda S: S, 2), (Q @ A.detach() @ R).requires_grad_())
    assert torch.autograd.gradcheck(projectors, A)


def test_low_rank_approximation_plus_nuclear_norm_at_a_tie_of_three() -> None:
    def loss(A: Tensor) -> Tensor:
        U, S, Vh = svd(A, ties="one-function")
        return ((U * S.unsqueeze(-2)) @ Vh).sin().sum() + 0.3 * S.sum()

    assert torch.autograd.gradcheck(loss, torch.eye(3, dtype=torch.float64, requires_grad=True))


def test_torch_gives_nan_at_the_identity_where_we_are_right() -> None:
    B = torch.randn(4, 4, dtype=torch.float64)

    def loss(A: Tensor, decomposition: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        U, _, Vh = decomposition(A)
        return (B * (U @ Vh)).sum()

    A = torch.eye(4, dtype=torch.float64, requires_grad=True)
    (theirs,) = torch.autograd.grad(loss(A, torch.linalg.svd), A)
    (ours,) = torch.autograd.grad(loss(A, svd), A)
    assert not theirs.isfinite().all()
    # d polar(I) = skew(dA)
    torch.testing.assert_close(ours, (B - B.mT) / 2, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", ["atan", "identity", "one"])
def test_near_ties(dtype: torch.dtype, name: str) -> None:
    """Gradient of ⟨C, U·h(S)·Vᵀ⟩ at diag(1 + gap, 1, ½), by divided differences in 50 digits; torch loses ε/gap."""
    h = {"atan": torch.atan, "identity": lambda S: S, "one": torch.ones_like}[name]
    exact_h = {"atan": mpmath.atan, "identity": lambda s: s, "one": lambda s: mpmath.mpf(1)}[name]
    slope = {"atan": lambda s: 1 / (1 + s * s), "identity": lambda s: 1, "one": lambda s: 0}[name]
    C = torch.randn(3, 3, dtype=dtype)
    eps = torch.finfo(dtype).eps
    worst, torch_worst, at_tie = 0.0, 0.0, torch.inf
    for exponent in range(1, 60, 2):
        gap = 2.0**-exponent
        A = torch.diag(torch.tensor([1 + gap, 1, 0.5], dtype=dtype)).requires_grad_()
        s = [mpmath.mpf(x) for x in A.diagonal().tolist()]
        expected = torch.zeros(3, 3, dtype=torch.float64)
        with mpmath.workdps(50):
            for i in range(3):
                for j in range(3):
                    quotient = slope(s[i]) if s[i] == s[j] else (exact_h(s[i]) - exact_h(s[j])) / (s[i] - s[j])
                    mean = (exact_h(s[i]) + exact_h(s[j])) / (s[i] + s[j])
                    c, d = mpmath.mpf(C[i, j].item()), mpmath.mpf(C[j, i].item())
                    expected[i, j] = float(quotient * (c + d) / 2 + mean * (c - d) / 2)
        gradients = []
        for U, S, Vh in (svd(A, ties="one-function"), torch.linalg.svd(A)):
            (gradient,) = torch.autograd.grad((C * ((U * h(S)) @ Vh)).sum(), A)
            gradients.append((gradient - expected).abs().max().item())
        worst, torch_worst, at_tie = max(worst, gradients[0]), max(torch_worst, gradients[1]), gradients[0]
    assert worst <= 4 * eps**0.5
    assert at_tie <= 20 * eps
    assert not torch_worst < 100 * eps**0.5


def test_rank_deficient_losses_that_are_differentiable_there() -> None:
    A = torch.randn(5, 2, dtype=torch.float64) @ torch.randn(2, 4, dtype=torch.float64)
    A.requires_grad_()
    assert torch.autograd.gradcheck(lambda A: svd(A).S.square().sum(), A)
    assert torch.autograd.gradcheck(adjusted(lambda S: S, 2), A)
    assert torch.autograd.gradcheck(projectors, A)
    U, _, Vh = svd(A, full_matrices=False, ties="mask")
    (U @ Vh).sin().sum().backward()
    assert A.grad is not None
    assert A.grad.isfinite().all()


def test_zero_matrix_has_zero_gradient() -> None:
    A = torch.zeros(3, 2, requires_grad=True)
    U, S, Vh = svd(A, ties="mask")
    (U.sum() + S.square().sum() + Vh.sum()).backward()
    assert A.grad is not None
    assert (A.grad == 0).all()


def test_torch_ignores_null_vectors_and_we_do_not() -> None:
    A = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 4, dtype=torch.float64)
    gradients = []
    for decomposition in (torch.linalg.svd, svd):
        null = decomposition(A)[0][:, 2:]
        gradients.append(torch.autograd.grad((weight * (null @ null.mT)).sum(), A)[0])
    assert (gradients[0] == 0).all()
    assert gradients[1].abs().max() > 1e-2
    assert torch.autograd.gradcheck(null_projectors, A)


# ---- transforms


def test_jacobian_by_vmap_at_a_tie() -> None:
    A = torch.eye(3, dtype=torch.float64)
    for jacobian in (torch.func.jacrev(adjusted(torch.Tensor.atan))(A),):
        entry = torch.zeros(3, 3, dtype=torch.float64)
        entry[0, 1] = 1.0
        # (h'(1)·herm + h(1)·skew) of a unit matrix
        expected = (entry + entry.mT) / 4 + math.pi / 8 * (entry - entry.mT)
        torch.testing.assert_close(jacobian[:, :, 0, 1], expected, rtol=0, atol=1e-13)


# ---- inputs that break others


AWKWARD = {
    "ones": torch.ones(5, 5),
    "identity": torch.eye(4),
    "rank 3": torch.randn(15, 3, generator=torch.Generator().manual_seed(1)) @ torch.ones(3, 15).cumsum(0).cos(),
    "ones in a batch": torch.stack((torch.ones(3, 3), torch.eye(3), torch.arange(9.0).reshape(3, 3))),
    "above the cliff": torch.diag(torch.tensor([1.0, 1.0, 4e-7])),
    "below the cliff": torch.diag(torch.tensor([1.0, 1.0, 3e-7])),
    "outer product": torch.arange(1.0, 5.0)[:, None] * torch.arange(1.0, 4.0),
    "tiny": 1e-20 * torch.eye(3) + 1e-21 * torch.ones(3, 3),
    "huge": 1e20 * torch.eye(3) + 1e19 * torch.ones(3, 3),
    "zero": torch.zeros(3, 4),
    "cyclic": torch.tensor([[0.0, 1.0, -1.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]),
    "transposed": torch.arange(12.0).reshape(3, 4).mT,
}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_inputs(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.float16 and name in ("tiny", "huge"):
        pytest.skip("1e±20 is no float16 number")
    A = AWKWARD[name].to(dtype, copy=True).requires_grad_()
    U, S, Vh = svd(A, full_matrices=False, ties="mask")
    assert U.dtype == Vh.dtype == dtype
    work = torch.complex128 if dtype.is_complex else torch.float64
    residual = torch.linalg.matrix_norm((U.to(work) * S.to(work).unsqueeze(-2)) @ Vh.to(work) - A.to(work))
    assert (residual <= 16 * torch.finfo(dtype).eps * S[..., 0].double()).all()
    scale = S.detach().amax().clamp_min(torch.finfo(S.dtype).tiny)
    loss = (U @ Vh).real.float().sin().sum() + ((U * (S / scale).unsqueeze(-2)) @ Vh).real.float().square().sum()
    loss.backward()
    assert A.grad is not None
    assert A.grad.isfinite().all()


def test_no_cliff_between_3e_7_and_4e_7() -> None:
    """Both sides of ε: the gradient of the polar factor differs by as little as the matrices."""
    gradients = []
    for small in (3e-7, 4e-7):
        A = torch.diag(torch.tensor([1.0, 1.0, small])).requires_grad_()
        U, _, Vh = svd(A)
        gradients.append(torch.autograd.grad((torch.arange(9.0).reshape(3, 3) * (U @ Vh)).sum(), A)[0])
    assert (gradients[0] - gradients[1]).abs().max() < 2e-6


@pytest.mark.parametrize("exponent", [-66, 66])
def test_scale_invariance_in_single_precision(exponent: int) -> None:
    """Powers of two change nothing at all, though the squares leave the range of float32 (7e-20 and 7e19)."""
    A = torch.randn(4, 3)
    one, other = svd(A), svd(A * 2.0**exponent)
    assert torch.equal(one.U, other.U)
    assert torch.equal(one.S * 2.0**exponent, other.S)
    assert torch.equal(one.Vh, other.Vh)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 2, 2), (2, 0, 4)])
@pytest.mark.parametrize("full_matrices", [True, False])
def test_empty(shape: tuple[int, ...], full_matrices: bool) -> None:
    A = torch.zeros(shape, requires_grad=True)
    ours, theirs = svd(A, full_matrices), torch.linalg.svd(A, full_matrices)
    assert [x.shape for x in ours] == [x.shape for x in theirs]
    sum(x.sum() for x in ours).backward()
    assert A.grad is not None
    assert A.grad.shape == shape
    assert svd_ex(A)[1].status.shape == shape[:-2]


def test_many_small_matrices() -> None:
    A = torch.randn(100_000, 4, 4)
    U, S, Vh = svd(A)
    assert ((U * S.unsqueeze(-2)) @ Vh - A).abs().max() < 1e-5


def test_a_bad_matrix_does_not_fail_the_others() -> None:
    A = torch.randn(3, 3, 2)
    A[1, 0, 0] = torch.nan
    with pytest.raises(torch.linalg.LinAlgError, match=r"A\[1\] has infinite or NaN entries"):
        svd(A)
    value, info = svd_ex(A)
    assert info.status.tolist() == [Status.OK, Status.NON_FINITE, Status.OK]
    assert value.S[1].isnan().all()
    assert torch.equal(value.S[[0, 2]], svd(A.nan_to_num()).S[[0, 2]])
    assert info.error_bound[1] == torch.inf


def test_arguments() -> None:
    A = torch.eye(2)
    with pytest.raises(ValueError, match="ties is 'drop'"):
        svd(A, ties="drop")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="method is 'qr'"):
        svd(A, method="qr")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="int64"):
        svd(torch.eye(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="shape"):
        svd(torch.ones(3))


@pytest.mark.parametrize("function", [lambda A: svd_ex(A), lambda A: polar_ex(A)])
def test_complex_subnormal_and_huge_entries(function: Any) -> None:
    """The quotient by a subnormal scale was NaN, and the magnitude of a finite entry infinite."""
    A = torch.randn(3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    assert function(A * 1e-42)[1].ok
    _, info = function(torch.eye(2, dtype=torch.complex64) * (2.3e38 + 2.3e38j))
    assert info.ok and info.error_bound < math.inf
    # the singular values themselves overflow
    _, info = function(torch.eye(2, dtype=torch.complex64) * (3e38 + 3e38j))
    assert info.status == Status.OUT_OF_RANGE and info.error_bound == math.inf and info.condition == math.inf
