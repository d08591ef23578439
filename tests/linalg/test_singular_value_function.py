"""Functions of singular values: values and bounds against 40 digits, two derivatives at ties, near them and at deficient rank."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

import surefoot.linalg as sl
from surefoot.linalg import Status

D, C = torch.float64, torch.complex128
Function = Callable[[Tensor], Tensor]

# Forward-mode differentiation uses parts of torch that warn about themselves.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def rotation(n: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n, dtype=dtype, generator=torch.Generator().manual_seed(seed))).Q


def with_singular_values(values: list[float], m: int, n: int, dtype: torch.dtype = D) -> Tensor:
    k = len(values)
    return (rotation(m, dtype, 1)[:, :k] * torch.tensor(values, dtype=D)) @ rotation(n, dtype, 2)[:, :k].mH


FUNCTIONS: dict[str, Function] = {
    "tanh": lambda A: sl.singular_value_function(A, torch.tanh),
    "sine": lambda A: sl.singular_value_function(A, torch.sin, torch.cos),
    "svt": lambda A: sl.svt(A, 0.7),
    "cube": lambda A: sl.singular_power(A, 3),
    "polar": lambda A: sl.singular_power(A, 0),
    "root": lambda A: sl.singular_power(A, 0.5),
    "inverse": lambda A: sl.singular_power(A, -1),
    "nuclear norm": sl.nuclear_norm,
}
EXACT = {
    "svt_ex": (lambda A: sl.svt_ex(A, 0.75), lambda s: max(s - mpmath.mpf(0.75), 0)),
    "cube": (lambda A: sl.singular_power_ex(A, 3), lambda s: s**3),
    "root": (lambda A: sl.singular_power_ex(A, 0.5), mpmath.sqrt),
    "inverse": (lambda A: sl.singular_power_ex(A, -1), lambda s: 1 / s),
    "tanh": (lambda A: sl.singular_value_function_ex(A, torch.tanh), mpmath.tanh),
}


@pytest.mark.parametrize("name", EXACT)
def test_value_and_its_bound(name: str) -> None:
    function, exact = EXACT[name]
    for values, m, n in (([3.0, 1.0, 1.0, 0.25], 4, 4), ([2.0, 1e-3], 3, 2), ([2.0, 2.0], 4, 4)):
        A = with_singular_values(values, m, n)
        value, info = function(A)
        full = len(values) == n
        assert info.rank == len(values)
        if not full and name in ("root", "inverse"):
            assert (info.status, info.error_bound) == (Status.RANK_DEFICIENT, math.inf)
            continue
        assert info.status == Status.OK
        with mpmath.workdps(40):
            U, s, V = mpmath.svd_r(mpmath.matrix(A.tolist()))
            F = U * mpmath.diag([exact(x) for x in s]) * V
            error = float(mpmath.norm(mpmath.matrix(value.tolist()) - F))
        size = torch.linalg.matrix_norm(value).item()
        if name == "tanh":
            assert error < 1e-14 * size
        else:
            assert error <= info.error_bound < 1e-10 * size


def test_bound_of_what_underflows() -> None:
    A = torch.tensor([[1e-15]], dtype=torch.float32)
    value, info = sl.singular_power_ex(A, 3)
    assert abs(value.double() - A.double() ** 3) <= info.error_bound < 1e-37


@pytest.mark.parametrize(
    ("name", "values", "m", "n", "dtype"),
    [
        *((name, [2.0, 2.0, 1.0], 3, 3, D) for name in FUNCTIONS),
        *((name, [2.0, 2.0], 2, 3, C) for name in ("inverse", "nuclear norm")),
        ("root", [2.0, 2.0 + 1e-9], 3, 2, D),
        # values that are 0, null vectors on both sides
        ("sine", [2.0], 3, 2, C),
        ("svt", [2.0], 3, 2, D),
        ("cube", [2.0, 2.0], 3, 3, D),
    ],
)
def test_two_derivatives_in_both_modes(name: str, values: list[float], m: int, n: int, dtype: torch.dtype) -> None:
    A = with_singular_values(values, m, n, dtype).requires_grad_()
    assert torch.autograd.gradcheck(FUNCTIONS[name], A, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], A, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3)])
def test_no_digit_is_lost_near_ties_and_near_zero(shape: tuple[int, int]) -> None:
    """AAᵀA is a polynomial, so that its derivatives are known to rounding."""
    generator = torch.Generator().manual_seed(5)
    E, G = (torch.randn(shape, dtype=D, generator=generator) for _ in range(2))
    for gap in (0.0, 1e-15, 1e-8, 1e-3):
        for third in (1e-9, 0.0):
            A = torch.zeros(shape, dtype=D)
            A.diagonal().copy_(torch.tensor([1.0 + gap, 1.0, third], dtype=D))
            terms = [(E, A, A), (A, E, A), (A, A, E)]
            first = sum(X @ Y.mT @ Z for X, Y, Z in terms)
            terms = [(E, G, A), (E, A, G), (A, E, G), (G, E, A), (G, A, E), (A, G, E)]
            second = sum(X @ Y.mT @ Z for X, Y, Z in terms)
            for function in (FUNCTIONS["cube"], lambda A: sl.singular_value_function(A, lambda s: s**3)):
                B = A.clone().requires_grad_()
                (gradient,) = torch.autograd.grad(function(B), B, E, create_graph=True)
                assert torch.allclose(gradient, first, rtol=0, atol=2e-14)
                (got,) = torch.autograd.grad(gradient, B, G)
                assert torch.allclose(got, second, rtol=0, atol=4e-13), (gap, third)


def test_powers_are_the_polar_factor_and_the_pseudoinverse() -> None:
    W = torch.randn(5, 3, dtype=D, generator=torch.Generator().manual_seed(3))
    for values in ([3.0, 1.0, 1.0], [3.0, 3.0]):
        A = with_singular_values(values, 5, 3).requires_grad_()
        pairs = [(sl.singular_power(A, -1), sl.pinv(A).mH)]
        if len(values) == 3:
            pairs.append((sl.singular_power(A, 0), sl.polar(A).U))
        for ours, other in pairs:
            torch.testing.assert_close(ours, other)
            gradients = [torch.autograd.grad((W * F).sum(), A)[0] for F in (ours, other)]
            torch.testing.assert_close(*gradients)
    assert torch.equal(sl.singular_power(A, 1), A.detach()) or torch.allclose(sl.singular_power(A, 1), A)


def test_threshold_is_differentiable_twice_and_has_one_sided_derivatives_at_the_kink() -> None:
    A = torch.stack([with_singular_values([2.0, 2.0], 3, 2), with_singular_values([1.0, 0.25], 3, 2)])
    t = torch.tensor([0.5, 0.5], dtype=D, requires_grad=True)
    assert torch.autograd.gradcheck(sl.svt, (A.requires_grad_(), t), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(sl.svt, (A, t), fast_mode=True)
    # one value that is 0 to rounding beside a threshold for each matrix
    batch = with_singular_values([2.0], 3, 2).expand(2, 3, 2)
    (g,) = torch.autograd.grad(sl.svt(batch, t).square().sum(), t)
    torch.testing.assert_close(g, -2 * (2 - t.detach()))
    kink = torch.diag(torch.tensor([1.0, 0.5], dtype=D)).requires_grad_()
    rising = torch.zeros(2, 2, dtype=D)
    rising[1, 1] = 1
    value, slope = torch.func.jvp(lambda A: sl.svt(A, 0.5), (kink,), (rising,))
    torch.testing.assert_close(slope, ((sl.svt(kink + 1e-3 * rising, 0.5) - value) / 1e-3))
    # no threshold: the identity, with zeros too
    assert torch.autograd.gradcheck(lambda A: sl.svt(A, 0.0), torch.eye(3, 2, dtype=D)[:, :1].requires_grad_())
    with pytest.raises(ValueError, match="threshold is -1"):
        sl.svt(A, -1.0)
    with pytest.raises(TypeError, match="threshold is None"):
        sl.svt(A, None)  # type: ignore[arg-type]


def test_nuclear_norm_and_its_subgradient_of_least_norm() -> None:
    A = with_singular_values([3.0, 2.0], 4, 3).requires_grad_()
    value, info = sl.nuclear_norm_ex(A)
    assert abs(value.item() - 5) <= info.error_bound < 1e-13
    assert info.status == Status.RANK_DEFICIENT
    (g,) = torch.autograd.grad(value, A)
    # of all subgradients UVᴴ + W it alone vanishes off the ranges of A
    torch.testing.assert_close(g, with_singular_values([1.0, 1.0], 4, 3))
    value, info = sl.nuclear_norm_ex(with_singular_values([1.0, 1.0, 1.0], 3, 3).to(torch.bfloat16))
    assert info.status == Status.OK and abs(value.item() - 3) < 0.05
    assert torch.equal(sl.nuclear_norm(A.detach()), sl.svdvals(A.detach()).sum())


def test_singular_values_alone() -> None:
    A = with_singular_values([2.0, 2.0, 1.0], 3, 4).requires_grad_()
    assert torch.equal(sl.svdvals(A.detach()), torch.linalg.svdvals(A.detach()))
    assert torch.autograd.gradcheck(lambda A: sl.svdvals(A).log().sum(), A)
    # a kink, and a second derivative that the gradient in the values does not determine
    with pytest.raises(LinAlgError, match="0 and 1"):
        sl.svdvals(A)[0].backward()
    with pytest.raises(LinAlgError, match="0 and 1"):
        torch.autograd.functional.hessian(lambda A: sl.svdvals(A).log().sum(), A)
    value, info = sl.svdvals_ex(A)
    assert bool(((value - torch.tensor([2.0, 2.0, 1.0])).abs() <= info.error_bound).all())
    assert sl.svdvals(A.detach().to(torch.complex64)).dtype == torch.float32
    assert sl.svdvals(A.detach().half()).dtype == torch.float16


def test_a_function_that_does_not_vanish_at_zero() -> None:
    """Its value must not depend on the vectors of singular values 0, nor may its derivative, which keeps the rank."""
    A = with_singular_values([2.0], 3, 2)
    value, info = sl.singular_value_function_ex(A, torch.cos)
    torch.testing.assert_close(value, A * (math.cos(2) / 2))
    assert info.status == Status.RANK_DEFICIENT
    assert sl.singular_value_function_ex(A, torch.sin)[1].status == Status.OK
    generator = torch.Generator().manual_seed(7)
    X, Y = (0.1 * torch.randn(n, n, dtype=D, generator=generator) for n in (4, 3))
    A = with_singular_values([2.0, 2.0], 4, 3)

    def same_rank(function: Function) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda X, Y: function((torch.eye(4) + X) @ A @ (torch.eye(3) + Y))

    for function in (lambda A: sl.singular_value_function(A, torch.cos), FUNCTIONS["root"], FUNCTIONS["inverse"]):
        inputs = (X.requires_grad_(), Y.requires_grad_())
        assert torch.autograd.gradcheck(same_rank(function), inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(same_rank(function), inputs, fast_mode=True)


def test_statuses_and_errors() -> None:
    A = torch.eye(2, 3).repeat(3, 1, 1)
    A[1, 0, 0], A[2] = math.inf, 1e20 * A[2]
    A.requires_grad_()
    value, info = sl.singular_power_ex(A, 3)
    assert info.status.tolist() == [Status.OK, Status.NON_FINITE, Status.OUT_OF_RANGE]
    value.nan_to_num().sum().backward()
    assert A.grad is not None and bool(A.grad.isfinite().all()) and not A.grad[1:].any()
    assert sl.nuclear_norm_ex(A)[1].status.tolist() == [Status.OK, Status.NON_FINITE, Status.OK]
    logarithm = lambda s: (s - 5).log()  # noqa: E731
    assert sl.singular_value_function_ex(A, logarithm)[1].status.tolist()[0] == Status.OUTSIDE_DOMAIN
    with pytest.raises(LinAlgError, match=r"A\[1\] has infinite or NaN entries"):
        sl.svt(A, 1.0)
    with pytest.raises(LinAlgError, match=r"not finite at a singular value of A: .*singular_value_function_ex"):
        sl.singular_value_function(A[0], logarithm)
    with pytest.raises(ValueError, match="p is nan"):
        sl.singular_power(A[0], math.nan)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_bound_of_a_threshold_that_single_precision_rounds(dtype: torch.dtype) -> None:
    A = torch.tensor([[100.0]], dtype=dtype)
    value, info = sl.svt_ex(A, 99.9999)
    error = abs(mpmath.mpf(100) - mpmath.mpf(99.9999) - mpmath.mpf(value.double().item()))
    assert 0 < error <= info.error_bound.item() < 1e-5
