"""Functions of Hermitian matrices: values and bounds against 40 digits, two derivatives at and near ties, statuses."""

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

DOUBLE = (torch.float64, torch.complex128)
Function = Callable[[Tensor], Tensor]

# Forward-mode differentiation uses parts of torch that warn about themselves.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def fermi(A: Tensor) -> Tensor:
    return sl.matrix_function(A, lambda x: torch.sigmoid(3 * (1.5 - x)))


def arctangent(A: Tensor) -> Tensor:
    return sl.matrix_function(A, torch.atan, lambda x: 1 / (1 + x * x))


FUNCTIONS = {
    "sqrtm": sl.sqrtm,
    "inv_sqrt": sl.inv_sqrt,
    "logm": sl.logm,
    "expm": sl.expm,
    "fermi": fermi,
    "arctangent": arctangent,
}
EXACT = {
    "sqrtm": mpmath.sqrt,
    "inv_sqrt": lambda x: 1 / mpmath.sqrt(x),
    "logm": mpmath.log,
    "expm": mpmath.exp,
    "fermi": lambda x: 1 / (1 + mpmath.exp(3 * (x - mpmath.mpf(1.5)))),
    "arctangent": mpmath.atan,
}


def rotation(n: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n, dtype=dtype, generator=torch.Generator().manual_seed(seed))).Q


def with_eigenvalues(values: list[float], dtype: torch.dtype) -> Tensor:
    Q = rotation(len(values), dtype)
    A = (Q * torch.tensor(values, dtype=torch.float64)) @ Q.mH
    return (A + A.mH) / 2


def hermitian(function: Function) -> Function:
    """Of the Hermitian part, which finite differences of one entry then stay in."""
    return lambda A: function((A + A.mH) / 2)


def exact(name: str, A: Tensor) -> Tensor:
    """f(A) from 40 digits."""
    with mpmath.workdps(40):
        x, Q = mpmath.eighe(mpmath.matrix(A.tolist()))
        F = Q * mpmath.diag([EXACT[name](value) for value in x]) * Q.H
        rows = [[complex(F[i, j]) for j in range(F.cols)] for i in range(F.rows)]
    return torch.tensor(rows, dtype=torch.complex128)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DOUBLE)
def test_value_and_its_bound(name: str, dtype: torch.dtype) -> None:
    A = torch.stack([with_eigenvalues([4.0, 1.0, 1.0, 0.25], dtype), with_eigenvalues([3.0, 1.0, 1e-3, 1e-6], dtype)])
    value, info = getattr(sl, f"{name}_ex", lambda A: sl.matrix_function_ex(A, torch.atan))(A)
    if name == "fermi":
        value = fermi(A)
    # only the lower triangle counts
    assert torch.equal(FUNCTIONS[name](A.tril()), value)
    for i in range(2):
        error = torch.linalg.matrix_norm(value[i] - exact(name, A[i])).item()
        size = torch.linalg.matrix_norm(value[i]).item()
        if hasattr(sl, name):
            assert error <= info.error_bound[i] < 1e-6 * size
            assert info.status[i] == Status.OK
        else:
            assert error < 1e-14 * size
            assert info.error_bound[i] == math.inf
    assert info.rank.tolist() == [4, 4]
    assert info.method == "eigh"


POINTS = {
    "distinct": [3.0, 1.5, 0.5],
    "identity": [1.0, 1.0, 1.0],
    "two and one": [2.0, 2.0, 1.0],
    "near": [2.0, 2.0 + 1e-9, 1.0],
}


@pytest.mark.parametrize(
    ("name", "point", "dtype"),
    [
        *(("sqrtm", point, torch.float64) for point in POINTS),
        *(("arctangent", point, torch.complex128) for point in ("identity", "two and one")),
        *((name, "two and one", torch.float64) for name in ("inv_sqrt", "logm", "expm", "fermi")),
    ],
)
def test_two_derivatives_in_both_modes(name: str, point: str, dtype: torch.dtype) -> None:
    A = torch.eye(3, dtype=dtype) if point == "identity" else with_eigenvalues(POINTS[point], dtype)
    function = hermitian(FUNCTIONS[name])
    assert torch.autograd.gradcheck(function, A.requires_grad_(), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, A, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("gap", [0.0, *(10.0**-k for k in range(1, 17, 3))])
def test_second_derivative_near_ties_has_all_digits(gap: float) -> None:
    """D²√ at A = B² from the equations BL + LB = E and BD + DB = −2L², which have no gaps in them."""
    x = torch.tensor([1.0, 1.0 + gap, 0.25], dtype=torch.float64)
    E = torch.tensor([[0.3, -1.0, 0.7], [-1.0, 0.2, 0.4], [0.7, 0.4, -0.6]], dtype=torch.float64)
    roots = x.sqrt()
    sums = roots[:, None] + roots
    L = E / sums
    expected = -2 * (L @ L) / sums
    tangent = lambda A: torch.func.jvp(sl.sqrtm, (A,), (E,))[1]  # noqa: E731
    for function in (sl.sqrtm, lambda A: sl.matrix_function(A, torch.sqrt)):
        (g,) = torch.autograd.functional.vjp(function, torch.diag(x), E)[1:]
        torch.testing.assert_close(g, L, rtol=0, atol=1e-15)

        def gradient(A: Tensor, function: Function = function) -> Tensor:
            return torch.func.vjp(function, A)[1](E)[0]

        second = torch.func.jvp(gradient, (torch.diag(x),), (E,))[1]
        torch.testing.assert_close(second, expected, rtol=0, atol=2e-14)
    torch.testing.assert_close(tangent(torch.diag(x)), L, rtol=0, atol=1e-15)


def test_torch_is_wrong_at_a_tie_where_this_is_right() -> None:
    W = torch.tensor([[1.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
    A = (2 * torch.eye(2, dtype=torch.float64)).requires_grad_()
    x, Q = torch.linalg.eigh(A)
    (theirs,) = torch.autograd.grad((W * ((Q * x.log()) @ Q.mT)).sum(), A)
    assert not theirs.isfinite().all()
    (ours,) = torch.autograd.grad((W * sl.logm(A)).sum(), A)
    assert torch.equal(ours, W / 2)


def test_a_singular_matrix_has_a_root_and_the_derivative_that_keeps_its_rank() -> None:
    # zeros that rounding leaves alone: the root of what it makes of them is 1e-8
    Q = torch.eye(4, dtype=torch.float64)[:, [2, 0]]

    def root(B: Tensor) -> Tensor:
        return sl.sqrtm(Q @ B @ B.mT @ Q.mT)

    B = torch.tensor([[1.0, 0.5], [-0.3, 0.8]], dtype=torch.float64, requires_grad=True)
    A = (Q @ B @ B.mT @ Q.mT).detach()
    value, info = sl.sqrtm_ex(A)
    torch.testing.assert_close(value @ value, A)
    assert (info.status, info.rank, info.error_bound) == (Status.RANK_DEFICIENT, 2, math.inf)
    assert torch.autograd.gradcheck(root, B)
    assert torch.autograd.gradgradcheck(root, B)
    # rounding of a zero does not matter
    hessians = [
        torch.autograd.functional.hessian(
            lambda A: sl.sqrtm(A).sin().sum(), torch.diag(torch.tensor([1.0, 0.5, noise]))
        )
        for noise in (0.0, 1e-9, -1e-9)
    ]
    torch.testing.assert_close(hessians[1], hessians[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(hessians[2], hessians[0])
    zero = torch.zeros(2, 2, requires_grad=True)
    sl.sqrtm(zero).sum().backward()
    assert zero.grad is not None and bool((zero.grad == 0).all())


def test_statuses_and_errors() -> None:
    A = torch.eye(2).repeat(5, 1, 1)
    A[1, 1, 1], A[2, 0, 0], A[3, 1, 1], A[4] = -2.0, math.nan, 1e-17, 200 * torch.eye(2)
    A.requires_grad_()
    value, info = sl.logm_ex(A)
    domain = [Status.OK, Status.OUTSIDE_DOMAIN, Status.NON_FINITE, Status.INACCURATE, Status.OK]
    assert info.status.tolist() == domain
    assert value.isfinite().all(-1).all(-1).tolist() == [True, False, False, True, True]
    value.nan_to_num().sum().backward()
    assert A.grad is not None and bool(A.grad.isfinite().all()) and not A.grad[[1, 2]].any()
    assert sl.expm_ex(A)[1].status.tolist()[2:] == [Status.NON_FINITE, Status.OK, Status.OUT_OF_RANGE]
    assert sl.matrix_function_ex(A, torch.sqrt)[1].status.tolist() == [
        0,
        Status.OUTSIDE_DOMAIN,
        Status.NON_FINITE,
        0,
        0,
    ]
    with pytest.raises(LinAlgError, match=r"inv_sqrt: A\[1\] has the eigenvalue -2.*inv_sqrt_ex"):
        sl.inv_sqrt(A[:2])
    with pytest.raises(LinAlgError, match=r"A\[2\] has infinite or NaN entries"):
        sl.expm(A)
    with pytest.raises(ValueError, match="entry by entry"):
        sl.matrix_function(A[0], lambda x: x.sum())
    with pytest.raises(TypeError, match="f is 3"):
        sl.matrix_function(A[0], 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be real"):
        sl.matrix_function(A[0], lambda x: 1j * x)


def test_tensors_that_f_depends_on_and_orders_that_do_not_exist() -> None:
    W = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
    A = with_eigenvalues([2.0, 2.0, 1.0], torch.float64).requires_grad_()
    t = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)

    def loss(A: Tensor, t: Tensor) -> Tensor:
        return (W * sl.matrix_function((A + A.mT) / 2, lambda x: torch.tanh(t * x))).sum().sin()

    def in_A(t: Tensor) -> Tensor:
        return torch.autograd.grad(loss(A, t), A, create_graph=True)[0]

    assert torch.autograd.gradcheck(loss, (A, t))
    assert torch.autograd.gradcheck(in_A, t)
    gradient = torch.func.grad(loss, 1)
    with pytest.raises(NotImplementedError, match="once in"):
        torch.func.grad(gradient)(A.detach(), t.detach())
    with pytest.raises(NotImplementedError, match="second order in A"):
        torch.func.jacrev(torch.func.hessian(loss))(A.detach(), t.detach())


def test_second_derivatives_do_not_depend_on_how_the_table_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    A = with_eigenvalues([3.0, 2.0, 2.0], torch.float64)

    def hessian() -> Tensor:
        return torch.func.hessian(lambda A: sl.logm(A).sin().sum())(A)

    whole = hessian()
    monkeypatch.setattr("surefoot._linalg.spectral_operator._BLOCK", 20)
    assert torch.equal(hessian(), whole)


@pytest.mark.parametrize("dtype", DOUBLE)
def test_derivatives_are_those_of_the_hermitian_part(dtype: torch.dtype) -> None:
    A = with_eigenvalues([2.0, 1.0, 0.5], dtype)
    E = torch.randn(3, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))
    derivatives = []
    for function in (sl.logm, hermitian(sl.logm)):

        def gradient(A: Tensor, function: Function = function) -> Tensor:
            return torch.func.vjp(function, A)[1](E)[0]

        tangent = torch.func.jvp(function, (A,), (E,))[1]
        derivatives.append(
            (tangent, gradient(A), torch.func.vjp(gradient, A)[1](E)[0], torch.func.jvp(gradient, (A,), (E,))[1])
        )
    for ours, true in zip(*derivatives, strict=True):
        torch.testing.assert_close(ours, true, rtol=0, atol=1e-13)
        torch.testing.assert_close(ours, ours.mH, rtol=0, atol=1e-13)


MISTAKES: dict[str, tuple[Function, type[Exception], str]] = {
    "in place": (lambda x: x.clamp_(min=2.0), ValueError, "in place"),
    "detached": (lambda x: x.detach().exp(), TypeError, "no derivative for autograd"),
    "normalised": (lambda x: x / x.sum(-1, keepdim=True), ValueError, "entry by entry, without"),
    "from the largest": (lambda x: x - x.amax(-1, keepdim=True), ValueError, "entry by entry, without"),
    "summed": (lambda x: x.cumsum(-1), ValueError, "entry by entry, without"),
    "random": (lambda x: x + torch.rand_like(x), ValueError, "entry by entry, without"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_functions_whose_gradient_would_be_wrong_are_refused(name: str) -> None:
    f, error, message = MISTAKES[name]
    A = with_eigenvalues([3.0, 2.0, 2.0, 1.0], torch.float64).requires_grad_()
    for function in (sl.matrix_function, sl.singular_value_function):
        with pytest.raises(error, match=message):
            function(A, f).sum().backward()


def test_functions_that_are_constant_in_steps_have_the_derivative_zero_on_the_diagonal() -> None:
    A = torch.diag(torch.tensor([3.0, 2.0, 2.0, 1.0], dtype=torch.float64)).requires_grad_()
    # a step at an eigenvalue, seen from one side
    sl.matrix_function(A, lambda x: (x >= 2).double())[1, 3].backward()
    assert A.grad is not None
    torch.testing.assert_close(A.grad[3], torch.tensor([0.0, 0.5, 0.0, 0.0], dtype=torch.float64))
