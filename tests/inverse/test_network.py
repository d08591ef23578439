"""``sf.nn.LearnedInverse``: values, statuses, bounds, gradients, warm starts, dtypes, files, arguments."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import surefoot as sf
from surefoot._inverse import starts
from surefoot._linalg.info import Status

Net = sf.nn.LearnedInverse
DOUBLE = torch.float64
FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
SHAPES = [(5, 5), (4, 7), (7, 4), (1, 3), (1, 1)]


def matrices(m: int, n: int, generator: torch.Generator, dtype: torch.dtype = DOUBLE, count: int = 3) -> Tensor:
    return torch.randn(count, m, n, dtype=dtype, generator=generator)


def norm(A: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(A, 2)


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128, torch.complex64])
@pytest.mark.parametrize(("m", "n"), SHAPES)
@pytest.mark.parametrize("c0", starts.RULES)
def test_it_inverts(m: int, n: int, c0: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    A = matrices(m, n, generator, dtype)
    X, info = Net.ones(40, 4, c0).invert_ex(A)
    assert X.shape == (3, n, m) and X.dtype == dtype
    expected = torch.linalg.pinv(A.to(torch.complex128 if dtype.is_complex else DOUBLE))
    eps = torch.finfo(dtype).eps
    error = norm(X - expected)
    assert bool((error <= 40 * eps * norm(A) * norm(expected).square()).all())
    assert bool((info.status == Status.OK).all())
    assert bool((info.rank == min(m, n)).all())
    assert bool((error <= info.error_bound * (1 + 1e-12) + 4e-16 * norm(A) * norm(expected).square()).all())
    assert torch.equal(Net.ones(40, 4, c0)(A), X)


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize(("m", "n"), [(6, 6), (5, 8), (8, 5)])
def test_rank_deficient_matrices(m: int, n: int, rank: int, generator: torch.Generator) -> None:
    A = matrices(m, rank, generator) @ matrices(rank, n, generator)
    X, info = Net.ones(40, 4).invert_ex(A)
    torch.testing.assert_close(X, torch.linalg.pinv(A, rtol=1e-12), rtol=1e-9, atol=1e-11)
    assert info.status.tolist() == [Status.RANK_DEFICIENT] * 3
    assert info.rank.tolist() == [rank] * 3
    assert bool(info.error_bound.isinf().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrices_that_break_others(dtype: torch.dtype, generator: torch.Generator) -> None:
    cases = {
        "ones": torch.ones(5, 5),
        "identity": torch.eye(4),
        "rank 3 of 15": matrices(15, 3, generator, count=1)[0] @ matrices(3, 15, generator, count=1)[0],
        "antisymmetric": torch.tensor([[0.0, 1, -1], [1, -1, 0], [-1, 1, 0]]),
        "outer product": torch.outer(torch.arange(1.0, 7.0), torch.arange(1.0, 5.0)),
    }
    for name, A in cases.items():
        A = A.to(dtype)
        X, info = Net.ones(30, 4).invert_ex(A)
        expected = torch.linalg.pinv(A.double(), rtol=1e-6)
        size = float(norm(A.double()) * norm(expected))
        assert float(norm(X.double() - expected) / norm(expected)) < 20 * size * torch.finfo(dtype).eps, name
        assert int(info.rank) == int(torch.linalg.matrix_rank(A.double(), rtol=1e-6)), name
        assert info.status in (Status.OK, Status.RANK_DEFICIENT), name


def test_a_silent_cliff_is_not_silent() -> None:
    """diag(1, 1, 4e-7) and 3e-7 in float32: inverted if it says OK, and otherwise it says so."""
    for small in (1e-2, 1e-4, 1e-5, 4e-7, 3e-7, 1e-8):
        A = torch.diag(torch.tensor([1.0, 1.0, small]))
        X, info = Net.ones(64, 4).invert_ex(A)
        error = float(norm(X.double() - torch.linalg.inv(A.double())) * small)
        if info.status == Status.OK:
            assert error < 1e-5 / small
        if bool(info.error_bound.isfinite()):
            assert error / small <= float(info.error_bound) * (1 + 1e-10)
        assert info.status == Status.OK or small < 1e-4


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e20, 1e150])
def test_scale_invariance(scale: float, generator: torch.Generator) -> None:
    A = matrices(4, 6, generator)
    power = 2.0 ** round(math.log2(scale))
    X, info = Net.ones(30, 4).invert_ex(A)
    scaled, other = Net.ones(30, 4).invert_ex(A * power)
    torch.testing.assert_close(scaled * power, X, rtol=1e-13, atol=0.0)
    assert other.status.tolist() == info.status.tolist() == [0, 0, 0]
    torch.testing.assert_close(other.error_bound * power, info.error_bound, rtol=1e-6, atol=0.0)
    if 1e-100 < scale < 1e100:
        fixed = Net.ones(30, 4, 20.0 * power**2)(A * power)
        torch.testing.assert_close(fixed * power, X, rtol=1e-9, atol=1e-12)
    single = Net.ones(30, 4)((A * 1e20).float())
    torch.testing.assert_close(single.double() * 1e20, X, rtol=1e-3, atol=1e-4)


def test_a_bad_matrix_spoils_no_other(generator: torch.Generator) -> None:
    A = matrices(4, 4, generator, count=5).reshape(5, 1, 4, 4).clone()
    good = Net.ones(30, 4)(A)
    A[1, 0, 2, 3], A[2, 0, 0, 0], A[3] = math.nan, math.inf, 0.0
    X, info = Net.ones(30, 4).invert_ex(A)
    assert info.status[:, 0].tolist() == [
        Status.OK,
        Status.NON_FINITE,
        Status.NON_FINITE,
        Status.RANK_DEFICIENT,
        Status.OK,
    ]
    assert bool(X[1:3].isnan().all()) and not bool(X[3].any())
    torch.testing.assert_close(X[[0, 4]], good[[0, 4]], rtol=1e-14, atol=0.0)
    assert bool(info.error_bound[1:4].isinf().all())


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 0), (0, 0), (2, 0, 4, 4)])
def test_empty(shape: tuple[int, ...]) -> None:
    X, info = Net.ones(3, 4).invert_ex(torch.zeros(shape))
    assert X.shape == (*shape[:-2], shape[-1], shape[-2])
    assert info.status.shape == shape[:-2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, generator: torch.Generator) -> None:
    A = matrices(4, 4, generator).to(dtype)
    X, info = Net.ones(30, 4).invert_ex(A)
    assert X.dtype == dtype
    torch.testing.assert_close(X, Net.ones(30, 4)(A.float()).to(dtype))
    error = norm(X.double() - torch.linalg.inv(A.double()))
    assert bool((error <= info.error_bound).all())


def test_non_contiguous_and_transposed_views(generator: torch.Generator) -> None:
    A = matrices(6, 8, generator)
    net = Net.ones(30, 4)
    torch.testing.assert_close(net(A[:, ::2, 1::2]), net(A[:, ::2, 1::2].contiguous()), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(net(A.mT), net(A).mT, rtol=1e-13, atol=1e-13)


def test_few_layers_say_that_they_did_not_converge(generator: torch.Generator) -> None:
    A = matrices(5, 5, generator)
    net = Net.ones(3, 4)
    X, info = net.invert_ex(A)
    assert info.status.tolist() == [Status.NOT_CONVERGED] * 3
    torch.testing.assert_close(X, net.unroll(A)[-1].detach(), rtol=1e-12, atol=1e-13)
    measured = torch.linalg.matrix_norm(A @ X @ A - A) / torch.linalg.matrix_norm(A)
    torch.testing.assert_close(info.residual, measured, rtol=1e-10, atol=0.0)
    certain = info.error_bound.isfinite()
    assert bool((norm(X - torch.linalg.inv(A))[certain] <= info.error_bound[certain]).all())


@pytest.mark.parametrize("rule", starts.RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_c0_is_an_upper_bound(rule: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    for m, n, rank in [(1, 1, 1), (3, 3, 1), (20, 30, 1), (20, 30, 20), (60, 60, 60)]:
        A = (matrices(m, rank, generator) @ matrices(rank, n, generator)).to(dtype)
        exact = norm(A.double()).square()
        c0 = starts.scale(A, rule)
        assert c0.dtype == DOUBLE
        assert bool((c0 >= exact * (1 - 1e-14)).all())
        largest = {"gram": m**0.25, "gram4": m**0.125, "frobenius": m, "svd": 1.0}[rule]
        assert bool((c0 <= exact * largest * (1 + 1e-3)).all())
    orthogonal = torch.linalg.qr(matrices(16, 16, generator).to(dtype)).Q
    assert bool((starts.scale(orthogonal, rule) >= 1.0 - 1e-6).all())


# -- bounds ------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(SHAPES), st.floats(0.0, 12.0), st.floats(-16.0, 0.0))
def test_error_bound_holds_for_any_x(seed: int, shape: tuple[int, int], kappa: float, noise: float) -> None:
    """Theorem 5.1 of the proofs, as the network publishes it, against 60-digit inverses."""
    import mpmath

    generator = torch.Generator().manual_seed(seed)
    m, n = shape
    r = min(m, n)
    U, V = (torch.linalg.qr(torch.randn(k, r, dtype=DOUBLE, generator=generator)).Q for k in (m, n))
    values = torch.logspace(0.0, -kappa, r, dtype=DOUBLE)
    A = (U * values) @ V.mT
    X = (V / values) @ U.mT
    X = X + 10.0**noise * X.abs().max() * torch.randn(n, m, dtype=DOUBLE, generator=generator)
    bound = float(Net.error_bound(A, X))
    with mpmath.workdps(60):
        exact = mpmath.matrix(A.tolist())
        gram = exact * exact.T if m <= n else exact.T * exact
        inverse = exact.T * gram**-1 if m <= n else gram**-1 * exact.T
        error = mpmath.matrix(X.tolist()) - inverse
        square = error.T * error
        largest = mpmath.sqrt(max(mpmath.eigsy(square, eigvals_only=True)))
        assert largest <= bound
        if noise < -4.0 and kappa < 1.0:  # it is loose by a factor of at most about κ
            assert bound <= 1e3 * float(largest) + 1e-12


def test_the_component_that_the_residual_does_not_see() -> None:
    """A = (1 0), X = (1, δ): AX = 1, and the error is δ all the same."""
    A, X = torch.tensor([[1.0, 0.0]], dtype=DOUBLE), torch.tensor([[1.0], [0.25]], dtype=DOUBLE)
    assert 0.25 <= float(Net.error_bound(A, X)) < 0.3
    assert 0.25 <= float(Net.error_bound(A.mT, X.mT)) < 0.3


# -- gradients ---------------------------------------------------------------------------------------------------------


@FORWARD_MODE
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("m", "n"), [(2, 2), (2, 3), (3, 2)])
def test_derivatives(m: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    A = matrices(m, n, generator, dtype, 1).requires_grad_()
    net = Net.ones(40, 4)
    assert torch.autograd.gradcheck(net, (A,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(net, (A,))


def test_gradient_at_a_rank_deficient_matrix_is_that_along_its_rank(generator: torch.Generator) -> None:
    B, C = matrices(6, 3, generator, count=1)[0], matrices(3, 5, generator, count=1)[0]
    net = Net.ones(40, 4)

    def through(B: Tensor, C: Tensor) -> Tensor:
        return net(B @ C)

    assert torch.autograd.gradcheck(through, (B.requires_grad_(), C.requires_grad_()))


def test_mixed_ranks_in_one_batch(generator: torch.Generator) -> None:
    A = matrices(5, 5, generator)
    A[1] = A[1, :, :2] @ A[1, :2, :]
    A[2, 0, 0] = math.nan
    A.requires_grad_()
    net = Net.ones(40, 4)
    weight = matrices(5, 5, generator)
    X = net(A)
    gradient = torch.autograd.grad((X[:2] * weight[:2]).sum(), A)[0]
    for i in range(2):
        alone = A[i].detach().requires_grad_()
        expected = torch.autograd.grad((net(alone) * weight[i]).sum(), alone)[0]
        torch.testing.assert_close(gradient[i], expected, rtol=1e-10, atol=1e-10)
    assert not bool(gradient[2].any())


def test_each_sample_of_vmap_has_its_own_coefficients(generator: torch.Generator) -> None:
    A = matrices(3, 4, generator)
    nets = [Net.ones(3, 3), Net.chebyshev(3, 3, (1e-2, 1.0)), Net.ones(3, 3)]

    def call(C: Tensor, A: Tensor) -> Tensor:
        return torch.func.functional_call(nets[0], {"coefficients": C}, (A,))

    tables = torch.stack([net.coefficients.detach() for net in nets])
    torch.testing.assert_close(
        torch.vmap(call)(tables, A), torch.stack([net(a) for net, a in zip(nets, A, strict=True)])
    )
    torch.testing.assert_close(torch.vmap(call, (0, None))(tables, A), torch.stack([net(A) for net in nets]))


def test_coefficients_learn_through_the_layers_only(generator: torch.Generator) -> None:
    A = matrices(3, 3, generator)
    net = Net.ones(2, 3, backward="unroll")
    net(A).sum().backward()
    assert net.coefficients.grad is not None and bool((net.coefficients.grad != 0).all())
    C = torch.ones(2, 3, dtype=DOUBLE, requires_grad=True)
    small = A / 4

    def through(C: Tensor, A: Tensor) -> Tensor:
        return torch.func.functional_call(Net(C.detach(), 3.0, backward="unroll"), {"coefficients": C}, (A,))

    assert torch.autograd.gradcheck(through, (C, small))
    assert not Net.ones(2, 3)(A).requires_grad


# -- warm start --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(5, 5), (4, 7), (7, 4)])
def test_warm_start(m: int, n: int, generator: torch.Generator) -> None:
    A = matrices(m, n, generator)
    net = Net.ones(30, 3)
    start = net(A)
    near = A + 0.003 * matrices(m, n, generator)
    near[2] = matrices(m, n, generator)[0] * 3.0  # here the start is of no use
    X, info = net.invert_ex(near, start)
    cold, cold_info = net.invert_ex(near)
    torch.testing.assert_close(X, cold, rtol=1e-8, atol=1e-10)
    assert info.status.tolist() == [0, 0, 0]
    assert bool((info.iterations[:2] <= 4).all()) and bool((cold_info.iterations[:2] > 4).all())
    assert info.iterations[2] == cold_info.iterations[2]
    torch.testing.assert_close(net(near, start), X, rtol=0.0, atol=0.0)


def test_warm_start_needs_a_certain_condition_and_no_coefficients() -> None:
    A = torch.diag(torch.tensor([1.0, 2.0, 4.0], dtype=DOUBLE))
    exact = torch.linalg.inv(A)
    net = Net.chebyshev(1, 4, (0.9, 1.0))  # of no use for A: only the warm start converges
    X, info = net.invert_ex(A, 0.999 * exact)
    assert info.iterations == 1 and float(norm(X - exact)) < 1e-11
    for start in (torch.zeros_like(A), 2.01 * exact, math.nan * exact, -exact):
        torch.testing.assert_close(net(A, start), net(A), rtol=0.0, atol=0.0)


def test_warm_start_of_a_wide_matrix_leaves_its_row_space_to_a() -> None:
    """A right inverse with a part outside the row space: no layer would remove it."""
    A = torch.tensor([[1.0, 0.0]], dtype=DOUBLE)
    start = torch.tensor([[0.9], [0.3]], dtype=DOUBLE)
    X, info = Net.ones(6, 4).invert_ex(A, start)
    torch.testing.assert_close(X, torch.tensor([[1.0], [0.0]], dtype=DOUBLE), rtol=0.0, atol=1e-15)
    assert info.status == Status.OK


# -- coefficients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "terms", "lower"), [(1, 1, 0.3), (1, 6, 0.01), (3, 4, 1e-3), (6, 3, 1e-5), (8, 5, 0.5)]
)
def test_chebyshev_residuals_are_chebyshev_polynomials(layers: int, terms: int, lower: float) -> None:
    net = Net.chebyshev(layers, terms, (lower, 1.0), 1.0)
    assert (net.layers, net.terms, net.interval) == (layers, terms, (lower, 1.0))
    y = torch.linspace(lower, 1.0, 9, dtype=DOUBLE)
    w = y
    for row in net.coefficients.detach():
        w = w * sum(c * (1.0 - w) ** j for j, c in enumerate(row))
    degree = terms**layers
    expected = [math.cos(degree * math.acos(max(-1.0, min(1.0, (1 + lower - 2 * float(v)) / (1 - lower))))) for v in y]
    best = 1.0 / math.cosh(min(degree * math.acosh((1 + lower) / (1 - lower)), 700.0))
    torch.testing.assert_close(1.0 - w, best * torch.tensor(expected, dtype=DOUBLE), rtol=1e-5, atol=1e-12)


def test_small_singular_values_are_harmless_and_large_ones_are_not() -> None:
    net = Net.chebyshev(3, 4, (0.1, 1.0), 1.0)
    certificate = sf.certify(net)
    for y in (1e-6, 1e-3, 0.05, 0.099):
        w = float(net.unroll(torch.tensor([[math.sqrt(y)]], dtype=DOUBLE))[-1].detach()) * math.sqrt(y)
        assert certificate.bound(3) < 1.0 - w < 1.0
    outside = net.unroll(torch.tensor([[math.sqrt(1.2)]], dtype=DOUBLE))[-1]
    assert abs(1.0 - float(outside.detach()) * math.sqrt(1.2)) > 10.0


# -- files and arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "net",
    [Net.ones(2, 3, "svd"), Net.chebyshev(2, 3, (0.1, 1.5)), Net([[1.0, 0.5]], 2.5)],
    ids=["rule", "interval", "number"],
)
def test_save_and_load(net: sf.nn.LearnedInverse, tmp_path: Path) -> None:
    net.save(tmp_path / "net.safetensors")
    found = Net.load(tmp_path / "net.safetensors")
    assert torch.equal(found.coefficients, net.coefficients)
    assert (found.c0, found.interval, found.backward) == (net.c0, net.interval, "implicit")
    assert repr(found) == repr(net)
    with pytest.raises(sf.RunDirectoryError, match="missing"):
        Net.load(tmp_path / "other.safetensors")
    sf.nn.StepSizeNet.orthogonal((2, 2)).save(tmp_path / "steps.safetensors")
    with pytest.raises(sf.RunDirectoryError, match="holds no learned inverse"):
        Net.load(tmp_path / "steps.safetensors")


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Net([1.0, 2.0]), ValueError, "coefficients has shape"),
        (lambda: Net([[]]), ValueError, "coefficients is empty"),
        (lambda: Net([[math.nan]]), ValueError, "coefficients has nan"),
        (lambda: Net("ones"), TypeError, "coefficients"),
        (lambda: Net([[1j]]), TypeError, "coefficients"),
        (lambda: Net.ones(0, 4), ValueError, "layers is 0"),
        (lambda: Net.ones(65, 4), ValueError, "at most 64"),
        (lambda: Net.ones(2, 65), ValueError, "terms is 65"),
        (lambda: Net.ones(2.0, 4), ValueError, "layers is 2.0"),  # type: ignore[arg-type]
        (lambda: Net.ones(2, 4, "gramm"), ValueError, "did you mean 'gram'"),
        (lambda: Net.ones(2, 4, 0.0), ValueError, "must be positive"),
        (lambda: Net.ones(2, 4, -1.0), ValueError, "c0 is -1.0"),
        (lambda: Net.ones(2, 4, None), TypeError, "c0 is None"),  # type: ignore[arg-type]
        (lambda: Net.ones(2, 4, backward="auto"), ValueError, "backward is 'auto'"),  # type: ignore[arg-type]
        (lambda: Net.chebyshev(2, 4, (0.1, 0.9)), ValueError, "guarantees no more than"),
        (lambda: Net.chebyshev(2, 4, (0.0, 1.0)), ValueError, "0 < l < u"),
    ],
)
def test_bad_constructions(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_bad_calls() -> None:
    net = Net.ones(2, 4)
    A = torch.eye(3)
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor"):
        net([[1.0]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a matrix"):
        net(torch.ones(3))
    with pytest.raises(TypeError, match="dtype"):
        net(torch.ones(3, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="start must be a tensor"):
        net(A, A.double())
    with pytest.raises(ValueError, match="start has shape"):
        net(A, torch.ones(3, 2))
    with pytest.raises(ValueError, match="start needs backward='implicit'"):
        Net.ones(2, 4, backward="unroll")(A, A)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_nested_forward_mode_is_refused_where_torch_would_drop_a_derivative() -> None:
    net, x = Net.ones(20, 3), torch.tensor([[2.0]], dtype=torch.float64)

    def first(A: torch.Tensor) -> torch.Tensor:
        return net(A)[0, 0]

    with pytest.raises(NotImplementedError, match=r"LearnedInverse: .*jacrev"):
        torch.func.jacfwd(torch.func.jacfwd(first))(x)
    for second in (torch.func.hessian(first), torch.func.jacrev(torch.func.jacrev(first))):
        torch.testing.assert_close(second(x).reshape(()), torch.tensor(0.25, dtype=torch.float64))


@pytest.mark.parametrize("scale", [1.0, 1e60])
@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 2, 4), (3, 4, 2)])
def test_vmap_with_starts_and_a_number_for_c0(shape: tuple[int, ...], scale: float) -> None:
    A = scale * (torch.eye(*shape[1:], dtype=torch.float64) + 0.1 * torch.randn(*shape, dtype=torch.float64))
    near = torch.linalg.pinv(A) * (1.0 + 1e-3)
    for net in (Net.ones(30, 3), Net.ones(30, 3, 2.0 * float(torch.linalg.matrix_norm(A, 2).max()) ** 2)):
        want = torch.linalg.pinv(A) * scale
        torch.testing.assert_close(torch.vmap(net)(A) * scale, want)
        torch.testing.assert_close(torch.vmap(net)(A, near) * scale, want)
        torch.testing.assert_close(torch.vmap(net, in_dims=(1, 2))(A.movedim(0, 1), near.movedim(0, 2)) * scale, want)
        torch.testing.assert_close(torch.vmap(lambda a, net=net: net(a, near[0]))(A) * scale, want)


def test_products_of_low_precision_leave_a_usable_scale() -> None:
    """With TF32 or bfloat16 products of 300 terms the bound of the Gram matrix has no finite rounding error."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        A = torch.randn(300, 300) + 20.0 * torch.eye(300)
        for rule in ("gram", "gram4", "frobenius"):
            assert bool(starts.scale(A, rule).isfinite())
            assert float(starts.scale(A, rule)) >= float(torch.linalg.matrix_norm(A.double(), 2)) ** 2
    finally:
        torch.set_float32_matmul_precision(before)


def test_autocast_does_not_enter() -> None:
    A = torch.randn(12, 12) + 4.0 * torch.eye(12)
    for backward in ("implicit", "unroll"):
        net = Net.ones(12, 3, backward=backward)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = net(A)
        assert torch.equal(value, net(A))


def test_bound_of_a_huge_matrix_does_not_underflow() -> None:
    A = torch.tensor([[1.7e308]], dtype=torch.float64)
    X = A.reciprocal() * (1.0 + 2.0**-50)
    error = abs(Fraction(float(X)) - 1 / Fraction(float(A)))
    assert Fraction(float(Net.error_bound(A, X))) >= error > 0


def test_the_last_correction_of_a_small_singular_value_is_made() -> None:
    """Where the residual is already at rounding level the last layer used to be left out: 6e-8 instead of eps κ = 3e-11."""
    S = torch.tensor([1.0, 2.4e-4, 9.0e-6, 7.6e-6], dtype=torch.float64)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        left, right = (
            torch.linalg.qr(torch.randn(size, 4, dtype=torch.float64, generator=generator))[0] for size in (5, 4)
        )
        A = (left * S) @ right.mT
        X, info = Net.ones(40, 3).invert_ex(A)
        want = torch.linalg.pinv(A)
        assert info.status == Status.OK
        assert float((X - want).norm()) <= 1e-9 * float(want.norm())
