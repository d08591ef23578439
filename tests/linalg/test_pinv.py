"""``pinv`` and ``pinv_ex`` against 300-bit references, on the inputs where others fail, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from pinv_matrices import draw, of_rank_three, relative, relative_each, with_singular_values
from pinv_reference import spectral_error, true_gradient, true_pinv

from surefoot._linalg.info import Status
from surefoot._linalg.pinv import pinv, pinv_ex

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
EXPLICIT = ["cholesky", "qr", "svd", "iteration"]
SHAPES = [(3, 4, 6), (2, 6, 4), (2, 5, 5), (2, 3, 3, 7), (4, 1), (1, 4), (1, 1), (40, 6, 9), (30, 12, 12)]


# --- values ---


@pytest.mark.parametrize("method", ["auto", *EXPLICIT])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_value_is_as_accurate_as_the_condition_number_allows(
    dtype: torch.dtype, shape: tuple[int, ...], method: str
) -> None:
    A = draw(*shape, dtype=dtype)
    true = true_pinv(A)
    X, info = pinv_ex(A, method=method)
    assert X.shape == true.shape and X.dtype == dtype
    assert torch.equal(X, pinv(A, method=method)) or method == "auto"
    kappa = torch.linalg.cond(A.to(true.dtype)).max().item()
    assert relative_each(X, true) <= 20 * kappa * torch.finfo(dtype).eps
    assert info.ok and bool((info.rank == min(shape[-2:])).all())
    assert bool((info.condition >= 0.999 * torch.linalg.cond(A.to(true.dtype))).all())
    if method != "auto":
        assert info.method == method


@pytest.mark.parametrize(
    ("dtype", "kappas"), [(torch.float32, (1e1, 1e3, 1e5)), (torch.float64, (1e2, 1e6, 1e10, 1e13))]
)
@pytest.mark.parametrize("shape", [(12, 20), (20, 12), (16, 16)])
def test_auto_keeps_the_accuracy_of_the_svd_as_the_condition_grows(
    dtype: torch.dtype, kappas: tuple[float, ...], shape: tuple[int, int]
) -> None:
    """A Gram matrix alone would lose κ² eps; in batches of 20, so that the fast methods are tried."""
    used = []
    for kappa in kappas:
        k = min(shape)
        A = torch.stack(
            [
                with_singular_values([kappa ** (-i / (k - 1)) for i in range(k)], *shape, dtype, seed)
                for seed in range(20)
            ]
        )
        X, info = pinv_ex(A)
        true = true_pinv(A)
        ours, peer = relative_each(X, true), relative_each(torch.linalg.pinv(A), true)
        assert ours <= max(3 * peer, 20 * kappa * torch.finfo(dtype).eps / 10)
        assert bool((info.status == Status.OK).all())
        used.append(info.method)
    assert used[0] == ("lu" if shape[0] == shape[1] else "cholesky")
    assert "svd" not in used


def test_wilkinsons_matrix_is_not_left_to_elimination() -> None:
    """Pivots grow by 2^(n−1) although κ is small: the residual shows it, and the singular values are used."""
    n = 50
    A = torch.eye(n, dtype=torch.float64) - torch.tril(torch.ones(n, n, dtype=torch.float64), -1)
    # without the perturbations every operation is exact
    A[:, -1] = 1.0 + 0.1 * draw(n)
    A = A * (1.0 + 0.1 * torch.arange(n).double().sin())
    true = true_pinv(A)
    assert relative(torch.linalg.inv(A), true) > 1e-6 and torch.linalg.cond(A) < 200
    X, info = pinv_ex(A)
    assert relative(X, true) <= 1e-13 and info.method == "svd" and info.ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    A = draw(5, 4, 6).to(dtype)
    X, info = pinv_ex(A)
    true = true_pinv(A.float())
    assert X.dtype == dtype and relative_each(X, true) <= torch.finfo(dtype).eps
    for x, a, bound in zip(X, A, info.error_bound, strict=True):
        assert (
            spectral_error(x, a) <= float(bound) <= 4 * torch.finfo(dtype).eps * float(torch.linalg.vector_norm(true))
        )
    A = A.requires_grad_()
    pinv(A).sum().backward()
    assert A.grad is not None and A.grad.dtype == dtype


def test_hermitian_matrices_use_the_lower_triangle_only() -> None:
    B = draw(3, 5, 5, dtype=torch.complex128)
    H = B + B.mH
    true = true_pinv(H)
    garbage = H.tril() + torch.full_like(H, torch.nan).triu(1)
    for A in (H, garbage):
        assert relative_each(pinv(A, hermitian=True), true) <= 1e-13
        assert relative_each(pinv(A, hermitian=True, method="eigh"), true) <= 1e-13
    indefinite = torch.tensor([[0.0, 1.0, -1.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]])
    symmetric = indefinite + indefinite.mT
    assert torch.allclose(pinv(symmetric, hermitian=True), torch.linalg.pinv(symmetric), atol=1e-5)


def test_tolerances_mean_what_they_mean_in_torch() -> None:
    values = [1.0, 1e-2, 1e-4, 1e-6]
    A = torch.stack([with_singular_values(values, 4, 6, seed=s) for s in range(300)])
    for options in ({"rtol": 1e-3}, {"atol": 1e-3}, {"atol": 1e-5, "rtol": 1e-1}, {"atol": 1e-9}, {"rtol": 0.5}, {}):
        X, info = pinv_ex(A, **options)
        tolerance = max(options.get("atol", 0.0), options.get("rtol", 0.0))
        assert bool((info.rank == sum(value > tolerance for value in values)).all())
        assert relative_each(X, torch.linalg.pinv(A, **options)) <= 1e-8
    tolerances = torch.logspace(-1, -7, 300, dtype=torch.float64)
    assert relative_each(pinv(A, rtol=tolerances), torch.linalg.pinv(A, rtol=tolerances)) <= 1e-8
    assert torch.equal(pinv(A, atol=tolerances), pinv(A, atol=tolerances, rtol=0.0))
    # matrices of very different scale, with an absolute tolerance in their own units
    scaled = A * 1e-60
    assert relative_each(pinv(scaled, atol=1e-63), 1e60 * torch.linalg.pinv(A, atol=1e-3)) <= 1e-10


# --- inputs where others fail ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_ones_inside_a_batch_leave_the_others_untouched(dtype: torch.dtype) -> None:
    batch = draw(2000, 3, 3, dtype=dtype)
    batch[7] = 1.0
    X, info = pinv_ex(batch)
    assert torch.allclose(X[7], torch.full((3, 3), 1 / 9, dtype=dtype), rtol=0, atol=10 * torch.finfo(dtype).eps)
    others = torch.arange(2000) != 7
    without = batch.clone()  # the others in the same places of memory, of which rounding may depend
    without[7] = torch.eye(3)
    assert torch.equal(X[others], pinv_ex(without)[0][others])
    assert info.status[7] == Status.RANK_DEFICIENT and info.rank[7] == 1 and math.isinf(info.error_bound[7])
    assert bool((info.status[others] == Status.OK).all())
    assert info.method[7] == "svd" and info.method[8] == "lu"


@pytest.mark.parametrize(("smallest", "rank"), [(4e-7, 3), (3e-7, 2)])
@pytest.mark.parametrize("copies", [1, 500])
def test_the_cliff_of_the_default_tolerance_is_reported(smallest: float, rank: int, copies: int) -> None:
    """max(m, n)·eps = 3.6e-7 in float32: an entry above counts, one below is dropped, and the status says so."""
    A = torch.diag(torch.tensor([1.0, 1.0, smallest])).expand(copies, 3, 3)
    X, info = pinv_ex(A)
    expected = torch.diag(torch.tensor([1.0, 1.0, 1 / smallest if rank == 3 else 0.0]))
    assert torch.allclose(X, expected.expand(copies, 3, 3), rtol=1e-6)
    assert bool((info.rank == rank).all())
    assert bool((info.status == (Status.OK if rank == 3 else Status.RANK_DEFICIENT)).all())


def test_outer_products() -> None:
    u, v = draw(50, 20, 1), draw(50, 30, 1, seed=1)
    A = u @ v.mT
    true = v @ u.mT / (u.square().sum((-2, -1), keepdim=True) * v.square().sum((-2, -1), keepdim=True))
    for method in ("auto", "svd", "iteration"):
        X, info = pinv_ex(A, method=method)
        assert relative_each(X, true) <= 1e-13
        assert bool((info.rank == 1).all()) and bool((info.status == Status.RANK_DEFICIENT).all())


@pytest.mark.parametrize("scale", [1e-20, 1e20, 1e-30, 1e30])
@pytest.mark.parametrize("method", ["auto", *EXPLICIT])
@pytest.mark.parametrize("shape", [(2, 3, 5), (300, 4, 3), (3, 4, 4)])
def test_scale_changes_nothing_in_single_precision(scale: float, method: str, shape: tuple[int, ...]) -> None:
    A = (draw(*shape) * scale).to(torch.float32)
    mixed = A.clone()
    mixed[0] = mixed[0] / scale
    for B in (A, mixed):
        B = B.clone().requires_grad_()
        X, info = pinv_ex(B, method=method)
        true = true_pinv(B[:3])
        assert relative_each(X[:3], true) <= 1e-4
        assert info.ok and bool((info.error_bound <= 1e-4 * torch.linalg.matrix_norm(X.detach().double(), 2)).all())
        # a loss whose gradient is representable
        (X[1] * scale).sum().backward()
        expected = true_gradient(B[1].detach(), torch.full_like(X[1], scale))
        assert B.grad is not None and relative(B.grad[1] * scale, expected * scale) <= 1e-3


def test_zero_and_empty_matrices() -> None:
    for method in ("auto", "svd", "iteration"):
        for shape in ((2, 3, 4), (100, 3, 3), (2, 4, 3)):
            X, info = pinv_ex(torch.zeros(shape), method=method)
            assert torch.equal(X, torch.zeros(shape).mT) and bool((info.rank == 0).all())
            assert bool((info.status == Status.RANK_DEFICIENT).all())
            assert bool((info.residual == 0).all())
    for shape in ((0, 3), (3, 0), (0, 0), (0, 3, 4), (0, 4, 4), (2, 0, 3), (2, 3, 0), (0, 0, 0)):
        for dtype in (torch.float32, torch.complex128, torch.bfloat16):
            A = torch.zeros(shape, dtype=dtype, requires_grad=True)
            X, info = pinv_ex(A)
            assert X.shape == A.mT.shape and X.dtype == dtype and info.status.shape == shape[:-2] and info.ok
            pinv(A).sum().abs().backward()
            assert A.grad is not None and A.grad.shape == A.shape


def test_non_contiguous_and_expanded_inputs() -> None:
    base = draw(6, 8, 5, dtype=torch.complex128)
    for A in (base.mT, base.mH, base[:, ::2, ::2], base.transpose(0, 2), base[0].expand(40, 8, 5), base.conj()):
        X, info = pinv_ex(A)
        true = true_pinv(A[:6].resolve_conj())
        assert relative_each(X[:6], true) <= 1e-12 and info.ok


def test_indefinite_integers_and_fifteen_by_fifteen_of_rank_three() -> None:
    A = torch.tensor([[0.0, 1.0, -1.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]], dtype=torch.float64)
    # the second and third rows are opposite: rank 2, A = BC with B (3, 2), C (2, 3) of full rank
    B, C = (
        A[:, :2] @ torch.eye(2, dtype=torch.float64),
        torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]], dtype=torch.float64),
    )
    C = torch.linalg.lstsq(B, A).solution
    true = true_pinv(C) @ true_pinv(B)
    assert relative(pinv(A), true) <= 1e-14 and pinv_ex(A)[1].rank == 2
    for dtype, limit in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        A, true = of_rank_three(dtype)
        for method in ("auto", "svd", "iteration"):
            X, info = pinv_ex(A, method=method)
            assert relative(X, true) <= limit and info.rank == 3, method
            assert info.status == Status.RANK_DEFICIENT and "rank" in info.messages
            assert info.residual <= 100 * torch.finfo(dtype).eps


def test_a_hundred_thousand_small_matrices() -> None:
    A = draw(100_000, 4, 4)
    A[::1000] = 1.0
    X, info = pinv_ex(A)
    assert bool((info.status[::1000] == Status.RANK_DEFICIENT).all())
    full = info.status == Status.OK
    assert int(full.sum()) == 99_900
    product = A[full] @ X[full] - torch.eye(4, dtype=A.dtype)
    assert float((product.abs().amax((-2, -1)) / info.condition[full]).max()) <= 1e-14


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("method", ["auto", *EXPLICIT])
@pytest.mark.parametrize("shape", [(100, 4, 6), (3, 6, 4), (100, 5, 5)])
def test_a_bad_matrix_of_a_batch_is_nan_with_gradient_zero(bad: float, method: str, shape: tuple[int, ...]) -> None:
    A = draw(*shape)
    A[1, 2, 3] = bad
    A = A.requires_grad_()
    X, info = pinv_ex(A, method=method)
    others = [0, *range(2, shape[0])]
    assert info.status[1] == Status.NON_FINITE and bool(X[1].isnan().all()) and math.isinf(info.error_bound[1])
    assert bool((info.status[others] == Status.OK).all())
    assert relative_each(X[others][:3], true_pinv(A.detach()[others][:3])) <= 1e-11
    X[others].pow(2).sum().backward()
    assert A.grad is not None and bool((A.grad[1] == 0).all())
    clean = A.detach()[others].requires_grad_()
    pinv(clean, method=method).pow(2).sum().backward()
    assert torch.allclose(A.grad[others], clean.grad)
    with pytest.raises(torch.linalg.LinAlgError, match=r"pinv: A\[1\]: the input has infinite or NaN"):
        pinv(A, method=method)


def test_explicit_methods_refuse_what_they_cannot_do() -> None:
    A = torch.stack([draw(3, 5), torch.ones(3, 5, dtype=torch.float64)]).requires_grad_()
    for method in ("cholesky", "qr"):
        X, info = pinv_ex(A, method=method)
        assert info.status.tolist() == [Status.OK, Status.INACCURATE]
        assert bool(X[1].isnan().all()) and relative(X[0], true_pinv(A[0])) <= 1e-13
        (gradient,) = torch.autograd.grad(X[0].sum(), A)
        assert bool((gradient[1] == 0).all()) and bool(gradient.isfinite().all())
        with pytest.raises(torch.linalg.LinAlgError, match=r"A\[1\]"):
            pinv(A, method=method)
    hard = with_singular_values([1.0, 1e-9], 2, 4)
    with pytest.raises(torch.linalg.LinAlgError, match="raise max_iterations"):
        pinv(hard, method="iteration", max_iterations=5)
    X, info = pinv_ex(hard, method="iteration", max_iterations=5)
    assert info.status == Status.NOT_CONVERGED and math.isinf(info.error_bound) and info.iterations == 5


def test_a_value_beyond_the_range_of_the_dtype_is_reported() -> None:
    A = torch.tensor([[1e-40, 0.0], [0.0, 1.0]])
    X, info = pinv_ex(A, rtol=0.0)
    assert info.status == Status.OUT_OF_RANGE and math.isinf(info.error_bound) and bool(X.isinf().any())
    small = (draw(3, 3) * 1e-3).to(torch.float16)
    assert pinv_ex(small * 1e-3)[1].status == Status.OUT_OF_RANGE


# --- refusals ---


def test_arguments_are_checked() -> None:
    A = draw(3, 4)
    for wrong, error, text in (
        ([[1.0]], TypeError, r"A must be a torch.Tensor, not list"),
        (torch.ones(3, 3, dtype=torch.int64), TypeError, r"A has dtype torch.int64: convert it to one of float32"),
        (torch.ones(3), ValueError, r"A has shape \(3,\)"),
        (torch.ones(3, 3).to_sparse(), TypeError, r"to_dense"),
    ):
        for function in (pinv, pinv_ex):
            with pytest.raises(error, match=text):
                function(wrong)  # type: ignore[arg-type]
    eight = torch.ones(3, 3).to(torch.float8_e4m3fn).requires_grad_()
    with pytest.raises(TypeError, match="float8_e4m3fn"):
        pinv(eight)
    for options, error, text in (
        ({"rtol": -1.0}, ValueError, r"rtol is -1.0: it must be a finite number, at least 0"),
        ({"atol": -1e-3}, ValueError, "atol is -0.001"),
        ({"atol": math.nan}, ValueError, "atol is nan"),
        ({"atol": torch.tensor(1.0, device="meta")}, ValueError, "atol is on meta and A on cpu"),
        ({"rtol": torch.ones(7)}, ValueError, r"rtol has shape \(7,\)"),
        ({"rtol": torch.ones((), dtype=torch.complex64)}, TypeError, "must be real"),
        ({"rtol": torch.tensor(-1.0)}, ValueError, "rtol"),
        ({"method": "magic"}, ValueError, "method is 'magic': it must be one of auto, cholesky"),
        ({"backward": "unroll"}, ValueError, "only 'iteration' and 'chebyshev' have steps"),
        ({"backward": "other"}, ValueError, "backward is 'other'"),
        ({"method": "chebyshev"}, ValueError, "needs interval"),
        ({"method": "chebyshev", "interval": (1.0, 0.5)}, ValueError, "0 < low < high"),
        ({"interval": (0.1, 1.0)}, ValueError, "needs interval"),
        ({"method": "eigh"}, ValueError, "hermitian=True"),
        ({"hermitian": True}, ValueError, "last two sizes must be equal"),
        ({"method": "iteration", "rtol": 0.1}, ValueError, "leave them out"),
        ({"method": "iteration", "order": 1}, ValueError, "order is 1"),
        ({"method": "iteration", "order": 3.0}, ValueError, "order is 3.0: it must be an integer"),
        ({"method": "iteration", "max_iterations": 1e3}, ValueError, "max_iterations is 1000.0: it must be an integer"),
        ({"method": "chebyshev", "interval": 0.5}, ValueError, "interval is 0.5: it must be two numbers"),
        ({"method": "chebyshev", "interval": (0.1, 0.5, 1.0)}, ValueError, "it must be two numbers"),
        ({"rtol": "small"}, TypeError, "rtol is 'small': it must be a number"),
        ({"atol": [0.1]}, TypeError, r"atol is \[0.1\]: it must be a number"),
        ({"method": "iteration", "max_iterations": 0}, ValueError, "max_iterations is 0"),
    ):
        for function in (pinv, pinv_ex):
            with pytest.raises(error, match=text):
                function(A, **options)
    with pytest.raises(ValueError, match="use 'auto' or 'eigh'"):
        pinv(draw(3, 3), hermitian=True, method="qr")


def test_a_value_out_of_range_is_said_at_any_rank() -> None:
    A = torch.tensor([[-5.9605e-08, -5.9605e-08], [0.0, 0.0]], dtype=torch.float16)
    X, info = pinv_ex(A)
    assert not bool(X.isfinite().all()) and info.status == Status.OUT_OF_RANGE and info.error_bound == math.inf


@pytest.mark.parametrize("size", [2, 40])
def test_an_entry_that_is_not_finite_is_named_at_every_size(size: int) -> None:
    A = torch.eye(size, dtype=torch.float64)
    A[0, 1] = math.nan
    with pytest.raises(torch.linalg.LinAlgError, match=r"pinv: .*infinite or NaN.*pinv_ex"):
        pinv(A)


def test_complex_entries_whose_magnitude_overflows() -> None:
    A = torch.eye(2, dtype=torch.complex64) * (2.5e38 + 2.5e38j)
    X, info = pinv_ex(A)
    assert info.ok and torch.allclose(X @ (A * 1e-38), torch.eye(2, dtype=torch.complex64) * 1e-38, atol=1e-44)


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("shape", [(2, 4), (3, 3), (5, 3)])
def test_iteration_leaves_no_singular_value_half_inverted(shape: tuple[int, int], order: int) -> None:
    """Singular values about eps: what is called converged is the pseudoinverse of the matrix cut off at the rank it says."""
    k, said = min(shape), 0
    left, right = (torch.linalg.qr(draw(size, k, seed=size))[0] for size in shape)
    for smallest in torch.logspace(-3, -9, 49, dtype=torch.float64):
        S = torch.ones(k, dtype=torch.float64)
        S[-1] = smallest
        A = ((left * S) @ right.mT).float()
        X, info = pinv_ex(A, method="iteration", order=order)
        if info.status in (Status.OK, Status.RANK_DEFICIENT):
            said += 1
            r = int(info.rank)
            U, sigma, Vh = torch.linalg.svd(A.double(), full_matrices=False)
            cut = (Vh[:r].mT / sigma[:r]) @ U[:, :r].mT
            rounding = torch.finfo(torch.float32).eps * float(sigma[0] / sigma[r - 1])
            assert float((X - cut).norm()) <= (0.1 + rounding) * float(cut.norm())
    assert said >= 25
