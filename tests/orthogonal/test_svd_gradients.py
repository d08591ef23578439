"""Gradients of D-SVD: those of the decomposition at its result, at ties too, against central differences of torch's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.nn import LearnedSVD, SVDStatus

F64 = torch.float64
pytestmark = [
    # of torch's own transforms
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def orthonormal(m: int, r: int, seed: int) -> Tensor:
    return torch.linalg.qr(gaussian(m, r, seed=seed))[0]


def from_values(m: int, n: int, values: list[float], seed: int = 0) -> Tensor:
    k = len(values)
    return (orthonormal(m, k, seed + 1) * torch.tensor(values, dtype=F64)) @ orthonormal(n, k, seed + 2).T


def low_rank(count: int, weights: Tensor) -> Loss:
    """⟨weights, Σ_{i<count} s_i u_i v_iᵀ⟩."""
    return lambda U, S, Vh: (((U[..., :count] * S[..., None, :count]) @ Vh[..., :count, :]) * weights).sum()


def polar(count: int, weights: Tensor) -> Loss:
    return lambda U, _, Vh: ((U[..., :count] @ Vh[..., :count, :]) * weights).sum()


def projector(count: int, weights: Tensor) -> Loss:
    def loss(U: Tensor, _: Tensor, Vh: Tensor) -> Tensor:
        V = Vh[..., :count, :].mT
        return ((U[..., :count] @ U[..., :count].mT) @ weights @ (V @ V.mT)).sum()

    return loss


def spectral(count: int, weights: Tensor) -> Loss:
    return lambda U, S, Vh: (S[..., :count] ** 3).sum() * weights.sum()


def differences(loss: Loss, M: Tensor) -> Tensor:
    """The gradient by central differences of the loss of torch's decomposition."""
    step = 1e-5
    gradient = torch.zeros_like(M)
    for entry in range(M.numel()):
        E = torch.zeros_like(M)
        E.view(-1)[entry] = step
        ends = [loss(*torch.linalg.svd(M + sign * E, full_matrices=False)) for sign in (1.0, -1.0)]
        gradient.view(-1)[entry] = (ends[0] - ends[1]) / (2.0 * step)
    return gradient


def gradient(net: LearnedSVD, loss: Loss, M: Tensor, start: tuple[Tensor, Tensor] | None = None) -> Tensor:
    variable = M.clone().requires_grad_()
    found = net(variable, start)
    assert found.info.ok
    return torch.autograd.grad(loss(*found[:3]), variable)[0]


def near(M: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """A start at which the layers have converged: torch's factors, turned by less than the tolerance."""
    U, _, Vh = torch.linalg.svd(M, full_matrices=False)
    turn = gaussian(rank, rank, seed=9)
    turn = torch.linalg.matrix_exp(1e-9 * (turn - turn.mT))
    return U[:, :rank] @ turn, Vh[:rank].mT @ turn


@pytest.mark.parametrize("inverse", ["exact", (6, 4)])
def test_differentiating_the_layers_is_wrong_at_convergence(inverse: Any) -> None:
    """U S Vh = M, so that the gradient of its sum is all ones; the layers of the paper give another one."""
    M = torch.eye(4, dtype=F64)

    def loss(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        return ((U * S) @ Vh).sum()

    implicit, unrolled = (
        gradient(LearnedSVD(4, 4, layers=60, inverse=inverse, backward=backward, ties="one-function"), loss, M)
        for backward in ("implicit", "unroll")
    )
    torch.testing.assert_close(implicit, torch.ones(4, 4, dtype=F64), rtol=0.0, atol=1e-12)
    assert float((unrolled - 1.0).abs().max()) > 0.5
    # S and vectors of a tie in one loss: only the promise of one function determines the gradient
    with pytest.raises(LinAlgError, match="singular values"):
        gradient(LearnedSVD(4, 4, layers=60, inverse=inverse), loss, M)


@pytest.mark.parametrize("make", [low_rank, polar, projector, spectral])
@pytest.mark.parametrize(
    ("M", "rank", "count"),
    [
        (from_values(4, 4, [4.0, 3.0, 2.0, 1.0]), 4, 3),
        (from_values(3, 5, [3.0, 2.0, 2.0]), 3, 3),
        (from_values(5, 3, [3.0, 3.0, 3.0]), 3, 3),
        (from_values(4, 4, [3.0, 3.0, 1.0, 0.5]), 4, 2),
        (from_values(4, 6, [5.0, 4.0, 1.0, 0.5]), 2, 2),
        (from_values(6, 4, [4.0, 4.0, 1.0, 1.0]), 2, 2),
        (from_values(5, 5, [4.0, 3.0]), 2, 2),
        (torch.ones(5, 5, dtype=F64), 5, 1),
    ],
    ids=["square", "wide", "tall", "part", "rank 2", "rank 2 of ties", "rank 2 of 2", "ones"],
)
def test_gradient_is_that_of_the_decomposition(
    make: Callable[[int, Tensor], Loss], M: Tensor, rank: int, count: int
) -> None:
    loss = make(count, gaussian(*M.shape, seed=7))
    net = LearnedSVD(
        M.shape[0], M.shape[1], rank, layers=4, inverse="exact", ties="one-function" if make is low_rank else "raise"
    )
    found, expected = gradient(net, loss, M, near(M, rank)), differences(loss, M)
    assert float((found - expected).abs().max()) <= 1e-6 * float(expected.abs().max())


def test_factors_that_are_not_the_leading_ones() -> None:
    """They are singular vectors, and the gradient is theirs."""
    values = [5.0, 4.0, 2.0, 1.0]
    M, weights = from_values(4, 5, values), gaussian(4, 5, seed=7)
    U, _, Vh = torch.linalg.svd(M, full_matrices=False)
    net = LearnedSVD(4, 5, 2, layers=0)

    def second_and_third(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        kept = slice(1, 3) if S.shape[-1] == 4 else slice(0, 2)
        return (((U[..., kept] * S[..., None, kept]) @ Vh[..., kept, :]) * weights).sum()

    found = gradient(net, second_and_third, M, (U[:, 1:3], Vh[1:3].mT))
    torch.testing.assert_close(found, differences(second_and_third, M), rtol=1e-6, atol=1e-6)


def test_where_the_loss_does_not_determine_a_gradient() -> None:
    M = torch.eye(3, dtype=F64)

    def vectors(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
        return (U * gaussian(3, 3)).sum() + (Vh**3).sum()

    with pytest.raises(LinAlgError, match="singular values 0 and 1"):
        gradient(LearnedSVD(3, 3, layers=30), vectors, M)
    assert bool(gradient(LearnedSVD(3, 3, layers=30, ties="mask"), vectors, M).isfinite().all())


def test_a_matrix_that_has_not_converged_has_no_implicit_gradient() -> None:
    M = torch.stack([torch.eye(3, dtype=F64), gaussian(3, 3)])
    net = LearnedSVD(3, 3, layers=20)
    variable = M.clone().requires_grad_()
    found = net(variable)
    assert found.info.status.tolist() == [SVDStatus.CONVERGED, SVDStatus.NOT_CONVERGED]
    # the other may be used
    (slope,) = torch.autograd.grad(found.S[0].sum(), variable, retain_graph=True)
    torch.testing.assert_close(slope[0], M[0], rtol=0.0, atol=1e-12)
    with pytest.raises(LinAlgError, match=r"M\[1\] has not converged .*unroll"):
        torch.autograd.grad(found.S.sum(), variable)
    with pytest.raises(LinAlgError, match=r"M\[1\] has not converged"):
        torch.func.jvp(lambda M: net(M).S, (M,), (torch.ones_like(M),))
    with pytest.raises(LinAlgError, match="has not converged"):
        torch.vmap(torch.func.grad(lambda M: net(M).S.sum()))(M)
    net.backward = "unroll"
    (slope,) = torch.autograd.grad(net(variable).S.sum(), variable)
    assert bool(slope.isfinite().all())


@pytest.mark.parametrize("rank", [3, 2])
def test_transforms(rank: int) -> None:
    M = torch.stack([from_values(3, 4, [3.0, 2.0, 1.0], seed) for seed in (0, 5)])
    start = tuple(torch.stack(factor) for factor in zip(*(near(A, rank) for A in M), strict=True))
    net = LearnedSVD(3, 4, rank, layers=4, inverse="exact")
    weights = gaussian(3, rank, seed=3), gaussian(rank, 4, seed=4)

    def loss(M: Tensor, U: Tensor, V: Tensor) -> Tensor:
        found = net(M, (U, V))
        return (found.U * weights[0]).sum() + (found.S**2).sum() + (found.Vh * weights[1]).sum()

    slopes = torch.stack([torch.func.grad(loss)(M[i], start[0][i], start[1][i]) for i in range(2)])
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(M, *start), slopes)
    moved = torch.vmap(torch.func.grad(loss), in_dims=(1, 0, 0), out_dims=1)(M.movedim(0, 1), *start)
    torch.testing.assert_close(moved.movedim(1, 0), slopes)
    direction = gaussian(2, 3, 4, seed=6)
    along: Any = torch.func.jvp(lambda M: loss(M, start[0], start[1]), (M,), (direction,))[1]
    torch.testing.assert_close(along, (slopes * direction).sum())
    product = low_rank(rank, gaussian(3, 4, seed=8))
    second = torch.func.hessian(lambda A: product(*net(A, (start[0][0], start[1][0]))[:3]))(M[0])
    expected = torch.func.hessian(lambda A: product(*torch.linalg.svd(A, full_matrices=False)))(M[0])
    torch.testing.assert_close(second, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_compiled() -> None:
    """Without layers, which take the compiler long; the factors that the network starts from are right."""
    M = from_values(3, 4, [3.0, 2.0, 1.0])
    net, start, product = LearnedSVD(3, 4, 2, layers=0), near(M, 2), low_rank(2, gaussian(3, 4, seed=8))
    variable = M.clone().requires_grad_()
    compiled = torch.compile(lambda M: product(*net(M, start)[:3]), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(variable), variable)[0], gradient(net, product, M, start))
