"""Gradients of ``svd`` and ``eigh`` where values are equal: right, or an error; never wrong.

The truth is the derivative of the matrix function itself: with dP in the basis of the vectors, dF has the entries
h[s_i, s_j]·herm(dP)_ij + (h_i + h_j)/(s_i + s_j)·skew(dP)_ij (Daleckii and Krein); the divided difference h[s, s] is h'(s).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from surefoot._linalg.tied_pairs import Ties
from surefoot.linalg import eigh, svd

DOUBLE = (torch.float64, torch.complex128)

# Forward-mode differentiation and torch.compile use parts of torch that warn about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


class Function(NamedTuple):
    """h and h'."""

    h: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


FUNCTIONS = (
    Function(torch.ones_like, torch.zeros_like),
    Function(lambda s: s, torch.ones_like),
    Function(torch.square, lambda s: 2 * s),
    Function(torch.exp, torch.exp),
    Function(torch.atan, lambda s: 1 / (1 + s * s)),
    Function(lambda s: s - 2, torch.ones_like),
)


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unitary(n: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n, dtype=dtype, generator=generator)).Q


def divided(function: Function, s: Tensor) -> Tensor:
    """h[s_i, s_j] of values that are equal or well apart."""
    h, gaps = function.h(s), s[:, None] - s[None, :]
    equal = gaps == 0
    return torch.where(equal, function.slope(s)[:, None], (h[:, None] - h[None, :]) / torch.where(equal, 1.0, gaps))


def true_gradient(function: Function, weights: Tensor, U: Tensor, s: Tensor, Vh: Tensor) -> Tensor:
    """The gradient of Re⟨weights, U·h(s)·Vh⟩ at U·diag(s)·Vh, s > 0."""
    h, M = function.h(s), U.mH @ weights @ Vh.mH
    sums = (h[:, None] + h[None, :]) / (s[:, None] + s[None, :])
    return U @ (divided(function, s) * (M + M.mH) / 2 + sums * (M - M.mH) / 2) @ Vh


SPECTRA = ((2.0, 2.0), (2.0, 2.0, 1.0), (3.0, 2.0, 2.0, 2.0), (3.0, 3.0, 1.0, 1.0), (3.0, 2.0, 1.0, 0.5))


class Case(NamedTuple):
    """A matrix with ties, random terms Re⟨weights, U·h(S)·Vh⟩, and their exact gradient."""

    A: Tensor
    terms: list[tuple[Function, Tensor]]
    exact: Tensor

    def loss(self, U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        values = [(w.conj() * ((U * f.h(S)) @ Vh)).sum().real for f, w in self.terms]
        return torch.stack(values).sum()


def case(seed: int, count: int, dtype: torch.dtype, hermitian: bool) -> Case:
    generator = draw(seed)
    s = torch.tensor(SPECTRA[seed % len(SPECTRA)], dtype=torch.float64)
    n = len(s)
    U = unitary(n, generator, dtype)
    Vh = U.mH if hermitian else unitary(n, generator, dtype)
    chosen = torch.randint(len(FUNCTIONS), (count,), generator=generator).tolist()
    terms = [(FUNCTIONS[i], torch.randn(n, n, dtype=dtype, generator=generator)) for i in chosen]
    exact = torch.stack([true_gradient(f, w, U, s, Vh) for f, w in terms]).sum(0)
    return Case((U * s) @ Vh, terms, (exact + exact.mH) / 2 if hermitian else exact)


def gradient(loss: Callable[..., Tensor], A: Tensor, hermitian: bool, ties: Ties) -> Tensor:
    A = A.clone().requires_grad_()
    if hermitian:
        values, Q = eigh(A, ties=ties)
        factors = Q, values, Q.mH
    else:
        factors = svd(A, ties=ties)
    return torch.autograd.grad(loss(*factors), A)[0]


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("count", [45, pytest.param(2000, marks=pytest.mark.slow)])
def test_sums_of_terms_are_right_or_an_error(count: int, dtype: torch.dtype, hermitian: bool) -> None:
    """Random sums of one to three terms of random functions: the default is never wrong."""
    right, refused = 0, 0
    for seed in range(count):
        problem = case(seed, 1 + seed // len(SPECTRA) % 3, dtype, hermitian)
        tied = len(set(SPECTRA[seed % len(SPECTRA)])) < len(SPECTRA[seed % len(SPECTRA)])
        try:
            found = gradient(problem.loss, problem.A, hermitian, "raise")
        except LinAlgError as error:
            assert tied and "do not determine the derivative" in str(error)
            refused += 1
        else:
            torch.testing.assert_close(found, problem.exact, rtol=1e-9, atol=1e-9)
            right += 1
    # without ties always, and the polar factor alone with them
    assert right >= count // 5 and refused >= count // 2


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DOUBLE)
def test_one_function_is_right_or_an_error(dtype: torch.dtype, hermitian: bool) -> None:
    for seed in range(20):
        problem = case(seed, 1, dtype, hermitian)
        try:
            found = gradient(problem.loss, problem.A, hermitian, "one-function")
        except LinAlgError as error:
            # h(2) = 0 and h'(2) = 1: the vectors do not show, and nothing can be read off
            assert problem.terms[0][0] is FUNCTIONS[-1] and "equal to rounding" in str(error)
        else:
            torch.testing.assert_close(found, problem.exact, rtol=1e-6, atol=1e-6)


# ---- two smooth terms of one call


def differences_of(loss: Callable[[Tensor], Tensor], A: Tensor) -> Tensor:
    """Central differences of a loss, composed as it stands."""
    step, result = 1e-5, torch.zeros_like(A)
    for index in range(A.numel()):
        change = torch.zeros_like(A).view(-1)
        change[index] = step
        result.view(-1)[index] = (loss(A + change.view_as(A)) - loss(A - change.view_as(A))) / (2 * step)
    return result


def test_two_terms_in_one_call_are_an_error_and_apart_they_are_right() -> None:
    A, W = 2 * torch.eye(2, dtype=torch.float64), torch.tensor([[1.0, 2.0], [0.0, 3.0]], dtype=torch.float64)

    def square(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        return (W * ((U * S.square()) @ Vh)).sum()

    def both(A: Tensor, decompose: Callable[[Tensor], Any]) -> Tensor:
        U, S, Vh = decompose(A)
        return square(U, S, Vh) + S.log().sum()

    true = torch.tensor([[4.5, 6.0], [2.0, 12.5]], dtype=torch.float64)
    found = differences_of(lambda A: both(A, torch.linalg.svd), A)
    torch.testing.assert_close(found, true, rtol=1e-8, atol=1e-8)
    A.requires_grad_()
    for decompose in (svd, lambda A: svd(A, ties="one-function")):
        with pytest.raises(
            LinAlgError, match=r"singular values 0 and 1 are equal to rounding.*polar.*singular_value_function"
        ):
            both(A, decompose).backward()
    (square(*svd(A, ties="one-function")) + svd(A).S.log().sum()).backward()
    assert A.grad is not None
    torch.testing.assert_close(A.grad, true, rtol=0, atol=1e-13)


def test_low_rank_part_and_squared_nuclear_norm_with_a_tie_inside() -> None:
    generator = draw(0)
    Q, R, W = (unitary(3, generator, torch.float64) for _ in range(3))
    A = (Q * torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64)) @ R

    def low_rank(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        return (W * ((U[:, :2] * S[:2]) @ Vh[:2])).sum()

    def both(A: Tensor) -> Tensor:
        U, S, Vh = torch.linalg.svd(A)
        return low_rank(U, S, Vh) + S.sum().square()

    true = differences_of(both, A)
    A.requires_grad_()
    U, S, Vh = svd(A)
    with pytest.raises(LinAlgError, match="singular values 0 and 1"):
        (low_rank(U, S, Vh) + S.sum().square()).backward()
    (low_rank(*svd(A, ties="one-function")) + svd(A).S.sum().square()).backward()
    assert A.grad is not None
    torch.testing.assert_close(A.grad, true, rtol=1e-7, atol=1e-7)


def test_weights_made_of_the_vectors_do_not_deceive() -> None:
    """The diagonal is constant in the basis at hand, so that no ratio of gradients tells of the second term."""
    A = 2 * torch.eye(2, dtype=torch.float64, requires_grad=True)
    U, S, Vh = svd(A)
    W = (U @ torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64) @ Vh).detach()
    with pytest.raises(LinAlgError, match="singular values 0 and 1"):
        ((W * ((U * S.square()) @ Vh)).sum() + S.log().sum()).backward()
    values, Q = eigh(A)
    with pytest.raises(LinAlgError, match="eigenvalues 0 and 1"):
        ((W * ((Q * values.square()) @ Q.mT)).sum() + values.log().sum()).backward()


# ---- what is determined


def principal(A: Tensor, k: int = 3) -> Tensor:
    """The projector on the vectors of the k largest eigenvalues of the Hermitian part."""
    Q = eigh(A + A.mH).eigenvectors[..., -k:]
    return Q @ Q.mH


def laplacian(name: str) -> Tensor:
    adjacency = torch.zeros(6, 6, dtype=torch.float64)
    if name == "complete":
        adjacency = 1 - torch.eye(6, dtype=torch.float64)
    else:
        for i in range(6):
            adjacency[i, (i + 1) % 6] = adjacency[(i + 1) % 6, i] = 1.0
    return adjacency.sum(0).diag() - adjacency


def rotated(values: tuple[float, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    Q = unitary(len(values), draw(1), dtype)
    return (Q * torch.tensor(values, dtype=torch.float64)) @ Q.mH


@pytest.mark.parametrize(
    ("A", "k"),
    [
        (laplacian("cycle"), 3),  # eigenvalues 0, 1, 1, 3, 3, 4
        (laplacian("complete"), 5),  # 0 and five times 6
        (rotated((1.0, 1.0, 2.0)), 1),
        (rotated((1.0, 2.0, 2.0)), 2),
        (rotated((2.0, 2.0, 1.0, 1.0), torch.complex128), 2),
        (torch.stack((rotated((0.0, 0.0, 1.0)), rotated((3.0, 2.0, 1.0)))), 1),
    ],
)
def test_projectors_with_ties_inside_and_outside(A: Tensor, k: int) -> None:
    """torch.linalg.eigh gives NaN or garbage: its issues 23133, 25481, 47599, 76531."""
    A = (A / 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: principal(A, k), A, check_batched_grad=True)


def test_torch_fails_where_we_are_right() -> None:
    A, W = torch.eye(3, dtype=torch.float64, requires_grad=True), torch.randn(3, 3, dtype=torch.float64)
    Q = torch.linalg.eigh(A).eigenvectors
    assert not torch.autograd.grad((W * (Q @ Q.mT)).sum(), A)[0].isfinite().all()
    Q = eigh(A).eigenvectors
    assert torch.autograd.grad((W * (Q @ Q.mT)).sum(), A)[0].abs().max() < 1e-14


def factor(A: Tensor) -> Tensor:
    U, _, Vh = svd(A, full_matrices=False)
    return U @ Vh


@pytest.mark.parametrize("dtype", DOUBLE)
def test_losses_of_vectors_alone_and_of_values_alone(dtype: torch.dtype) -> None:
    A = torch.eye(3, dtype=dtype, requires_grad=True)
    near = torch.tensor([1.0, 1.0 + 1e-13, 1.0 - 1e-9], dtype=torch.float64).diag().to(dtype).requires_grad_()
    for at in (A, near):
        assert torch.autograd.gradcheck(factor, at, check_batched_grad=True)
    assert torch.autograd.gradcheck(lambda A: svd(A).S.atan().sum(), A)
    assert torch.autograd.gradcheck(lambda A: eigh(A + A.mH).eigenvalues.atan().sum(), A)


def test_a_tie_that_the_loss_does_not_see_passes() -> None:
    """A low-rank part with ties outside, with singular values 0 too, beside functions of the values."""
    Q, R = unitary(4, draw(2), torch.float64), unitary(5, draw(3), torch.float64)[:4]
    W = torch.randn(4, 5, dtype=torch.float64, generator=draw(4))

    def loss(A: Tensor) -> Tensor:
        U, S, Vh = svd(A)
        return (W * ((U[:, :1] * S[:1]) @ Vh[:1])).sum() + S.square().sum()

    for values in ([3.0, 1.0, 1.0, 0.5], [3.0, 1.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]):
        A = (Q * torch.tensor(values, dtype=torch.float64)) @ R
        assert torch.autograd.gradcheck(loss, A.requires_grad_())


# ---- what is not


def test_kinks_are_errors() -> None:
    A = torch.diag(torch.tensor([3.0, 2.0, 2.0], dtype=torch.float64)).requires_grad_()
    assert torch.equal(torch.autograd.grad(svd(A).S[0], A)[0].nonzero(), torch.tensor([[0, 0]]))
    with pytest.raises(LinAlgError, match="singular values 1 and 2 are equal to rounding or nearly"):
        svd(A).S[1].backward()
    with pytest.raises(LinAlgError, match="eigenvalues 0 and 1 are equal to rounding or nearly"):
        eigh(A).eigenvalues[0].backward()
    svd(A, ties="mask").S[1].backward()
    assert A.grad is not None and A.grad.isfinite().all()


def test_the_pair_is_named_in_a_batch_and_under_transforms() -> None:
    A = torch.stack((torch.randn(3, 3, dtype=torch.float64), torch.diag(torch.tensor([3.0, 2.0, 2.0]).double())))
    expected = pytest.raises(LinAlgError, match=r"singular values 1 and 2 of A\[1\] are equal")

    def loss(A: Tensor) -> Tensor:
        return svd(A).U[..., 1].sum()

    with expected:
        loss(A.requires_grad_()).backward()
    with expected:
        torch.vmap(torch.func.grad(loss))(A)
    with expected:
        torch.func.grad(lambda A: torch.vmap(loss)(A).sum())(A)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_unused_values_are_known_under_transforms_but_not_compiled(compiled: bool) -> None:
    A = torch.eye(3, dtype=torch.float64, requires_grad=True)
    W = torch.randn(3, 3, dtype=torch.float64, generator=draw(5))

    def loss(A: Tensor) -> Tensor:
        return (W * factor(A)).sum()

    if compiled:
        torch._dynamo.reset()
        with pytest.raises(LinAlgError, match="singular values 0 and 1"):
            torch.compile(loss, fullgraph=True, backend="aot_eager")(A).backward()
        return
    true = (W - W.mT) / 2
    torch.testing.assert_close(torch.func.grad(loss)(A), true)
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(A.expand(2, 3, 3)), true.expand(2, 3, 3))


def test_phases() -> None:
    A = torch.randn(3, 3, dtype=torch.complex128, requires_grad=True)
    with pytest.raises(LinAlgError, match="phase of the vectors of singular value 0"):
        svd(A).U[:, 0].real.sum().backward()
    with pytest.raises(LinAlgError, match="phase of the vectors of eigenvalue 0"):
        eigh(A).eigenvectors[:, 0].real.sum().backward()


def test_slopes_at_zero_are_errors() -> None:
    """U·S·Vh is A itself, and its gradient at 0 is W; of W, U and V do not show and S shows the diagonal."""
    W = torch.randn(3, 3, dtype=torch.float64, generator=draw(6))
    for A in (torch.zeros(3, 3), torch.diag(torch.tensor([1.0, 0.0, 0.0]))):
        A = A.double().requires_grad_()
        U, S, Vh = svd(A)
        with pytest.raises(LinAlgError, match=r"0 to rounding.*slope at 0"):
            (W * ((U * S) @ Vh)).sum().backward()
    # one entry of U·S·Vh away from the diagonal, in the coordinates of LAPACK's null vectors
    for shape, entry in (((4, 4), (2, 3)), ((3, 5), (2, 4)), ((5, 2), (4, 1)), ((1, 3), (0, 2))):
        for A in (torch.zeros(shape), torch.tensor([2.0, 1.0, 0.0, 0.0]).diag()[: shape[0], : shape[1]]):
            A = torch.nn.functional.pad(A, (0, shape[1] - A.shape[1], 0, shape[0] - A.shape[0])).double()
            U, S, Vh = svd(A.requires_grad_(), full_matrices=False)
            if S[-1] < 1e-12:
                with pytest.raises(LinAlgError, match="0 to rounding"):
                    ((U * S) @ Vh)[entry].backward()
    with pytest.raises(LinAlgError, match="single null vectors"):
        svd(torch.diag(torch.tensor([1.0, 0.0, 0.0])).requires_grad_()).U[1, 1].backward()
    # a single 0 of a square matrix hides nothing
    A = torch.diag(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)).requires_grad_()
    U, S, Vh = svd(A)
    torch.testing.assert_close(torch.autograd.grad((W * ((U * S) @ Vh)).sum(), A)[0], W)


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3])
def test_near_ties_are_accurate_or_an_error(offset: float) -> None:
    """W∘U(S + offset)Vh for symmetric W has the gradient W; the quotient loses ε·offset/gap."""
    W = torch.randn(2, 2, dtype=torch.float64, generator=draw(7))
    W, passed = W + W.mT, []
    for exponent in range(4, 52):
        A = torch.diag(torch.tensor([1.0 + 2.0**-exponent, 1.0], dtype=torch.float64)).requires_grad_()
        U, S, Vh = svd(A)
        try:
            (found,) = torch.autograd.grad((W * ((U * (S + offset)) @ Vh)).sum(), A)
        except LinAlgError as error:
            assert "singular values 0 and 1 are equal to rounding or nearly" in str(error)
        else:
            torch.testing.assert_close(found, W, rtol=1e-3, atol=1e-3)
            passed.append(exponent)
    # from a gap on, which grows with the offset
    assert passed == list(range(4, 4 + len(passed))) and abs(len(passed) - (36 - math.log2(1 + offset))) < 8


# ---- forward mode and second derivatives


def test_forward_mode() -> None:
    for A in (torch.diag(torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64)),):
        turning, along = torch.randn(3, 3, dtype=torch.float64, generator=draw(8)), A.matrix_power(2)
        for values in (lambda A: svd(A).S.sum(), lambda A: eigh(A).eigenvalues.sum()):
            with pytest.raises(LinAlgError, match="no derivative along this direction"):
                torch.func.jvp(values, (A,), (turning,))
            assert torch.func.jvp(values, (A,), (along,))[1] == pytest.approx(9.0, abs=1e-12)
        masked = torch.func.jvp(lambda A: svd(A, ties="mask").S.sum(), (A,), (turning,))[1]
        assert masked == pytest.approx(turning.trace().item(), abs=1e-12)


def test_second_derivatives_are_right_or_an_error() -> None:
    A = torch.diag(torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64)).requires_grad_()
    # the gradient of the sum of singular values is the polar factor, of vectors alone
    assert torch.autograd.gradgradcheck(lambda A: svd(A).S.sum(), A)
    direction = torch.randn(3, 3, dtype=torch.float64, generator=draw(9))
    losses: tuple[tuple[Ties, Callable[..., Tensor]], ...] = (
        ("one-function", lambda U, S, Vh: ((U * S) @ Vh).sin().sum()),
        ("raise", lambda U, S, Vh: (direction * (U @ Vh).sin()).sum()),
        ("raise", lambda U, S, Vh: S.square().sum()),
    )
    for ties, loss in losses:
        (first,) = torch.autograd.grad(loss(*svd(A, ties=ties)), A, create_graph=True)
        with pytest.raises(LinAlgError, match="singular values 0 and 1"):
            (first * direction).sum().backward()
        (first,) = torch.autograd.grad(loss(*svd(A, ties="mask")), A, create_graph=True)
        assert torch.autograd.grad((first * direction).sum(), A)[0].isfinite().all()
