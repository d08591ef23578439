"""Losses against autograd and against their Hessians; data of deficient rank (Theorem 7 of the two-layer proofs)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from draws import normal
from torch import Tensor

import surefoot as sf
from surefoot._core.problems import loss_of

F64 = torch.float64


X, Y = normal(30, 4), normal(30, 3, seed=1)
A, y = normal(20, 4, 3, seed=2), normal(20, seed=3)
LABELS = torch.arange(30) % 3

Function = Callable[[Tensor], Tensor]


def squared(W: Tensor) -> Tensor:
    return 0.5 * ((X @ W - Y) ** 2).sum()


def sensing(W: Tensor, measurements: int = 20) -> Tensor:
    return 0.5 * ((torch.einsum("kij,ij->k", A[:measurements], W) - y[:measurements]) ** 2).sum()


ENTRIES = torch.tensor([0, 3, 2, 2, 1, 3, 0]), torch.tensor([1, 2, 0, 2, 1, 2, 0])  # (3, 2) twice


def completion(W: Tensor) -> Tensor:
    return 0.5 * ((W[ENTRIES] - y[:7]) ** 2).sum()


def cross_entropy(W: Tensor, l2: float = 0.1) -> Tensor:
    return torch.nn.functional.cross_entropy(X @ W, LABELS) + 0.5 * l2 * (W**2).sum()


FIXED = normal(4, 3, seed=4)


def adapted_cross_entropy(W: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(X @ (FIXED + W), LABELS) + 0.05 * (W**2).sum()


CASES: dict[str, tuple[sf.Loss, Function]] = {
    "squared": (sf.SquaredLoss(X, Y), squared),
    "sensing": (sf.MatrixSensing(A, y), sensing),
    "sensing, 7 of 12": (sf.MatrixSensing(A[:7], y[:7]), lambda W: sensing(W, 7)),
    "completion": (sf.MatrixCompletion(*ENTRIES, y[:7], (4, 3)), completion),
    "softmax": (sf.SoftmaxRegression(X, LABELS, 0.1), cross_entropy),
    "softmax, fixed map": (sf.SoftmaxRegression(X, LABELS, 0.1, offset=FIXED), adapted_cross_entropy),
}
cases = pytest.mark.parametrize(("loss", "function"), CASES.values(), ids=list(CASES))


@cases
def test_value_and_gradient_agree_with_autograd(loss: sf.Loss, function: Function) -> None:
    for seed, scale in ((10, 1.0), (11, 30.0), (12, 1e-3)):
        W = (scale * normal(4, 3, seed=seed)).requires_grad_(True)
        expected = function(W)
        (gradient,) = torch.autograd.grad(expected, W)
        W = W.detach()
        assert loss.value(W) == pytest.approx(expected.item(), rel=1e-12)
        torch.testing.assert_close(loss.gradient(W), gradient, rtol=1e-11, atol=1e-11 * scale)


@cases
def test_optimum_is_stationary_and_the_optimal_value_is_attained(loss: sf.Loss, function: Function) -> None:
    W = loss.optimum.clone().requires_grad_(True)
    value = function(W)
    (gradient,) = torch.autograd.grad(value, W)
    assert float(gradient.norm()) < 1e-13 * loss.smoothness * (1.0 + float(loss.optimum.norm()))
    assert loss.optimal_value == pytest.approx(value.item(), rel=1e-12, abs=1e-24)
    assert loss.gap(loss.optimum) == 0.0


@cases
def test_constants_bound_the_hessian(loss: sf.Loss, function: Function) -> None:
    for W in (torch.zeros(4, 3, dtype=F64), loss.optimum, normal(4, 3, seed=5)):
        hessian = torch.autograd.functional.hessian(function, W)
        assert isinstance(hessian, Tensor)
        eigenvalues = torch.linalg.eigvalsh(hessian.reshape(12, 12))
        if loss.quadratic:
            assert loss.smoothness == pytest.approx(float(eigenvalues[-1]), rel=1e-12)
            positive = eigenvalues[eigenvalues > 1e-10 * eigenvalues[-1]]  # PL constant: the smallest positive one
            assert loss.strong_convexity == pytest.approx(float(positive[0]), rel=1e-10)
            assert loss.unique_optimum == (len(positive) == 12)
        else:
            assert float(eigenvalues[-1]) <= loss.smoothness
            assert float(eigenvalues[0]) >= loss.strong_convexity * (1.0 - 1e-12)


@cases
def test_gap_is_value_minus_optimal_value(loss: sf.Loss, function: Function) -> None:
    for seed, scale in ((20, 1.0), (21, 100.0)):
        W = loss.optimum + scale * normal(4, 3, seed=seed)
        assert loss.gap(W) == pytest.approx(float(function(W)) - loss.optimal_value, rel=1e-12)


def test_sensing_with_few_measurements_interpolates_with_least_norm() -> None:
    loss = sf.MatrixSensing(A[:7], y[:7])
    design = A[:7].reshape(7, 12)
    assert loss.optimal_value == 0.0
    torch.testing.assert_close(loss.optimum.reshape(-1), torch.linalg.pinv(design) @ y[:7], rtol=1e-12, atol=1e-13)


def test_sensing_with_repeated_measurements_keeps_the_least_squares_optimum() -> None:
    repeated, values = torch.cat([A[:5], A[:5]]), torch.cat([y[:5], y[5:10]])
    loss = sf.MatrixSensing(repeated, values)
    design = repeated.reshape(10, 12)
    W = torch.linalg.pinv(design) @ values
    assert not loss.unique_optimum
    torch.testing.assert_close(loss.optimum.reshape(-1), W, rtol=1e-11, atol=1e-12)
    assert loss.optimal_value == pytest.approx(0.5 * float(((design @ W - values) ** 2).sum()), rel=1e-12)


@cases
def test_arrays_rebuild_the_loss(loss: sf.Loss, function: Function) -> None:
    again = loss_of(loss.kind, loss.arrays())
    W = normal(4, 3, seed=6)
    assert again.gap(W) == pytest.approx(loss.gap(W), rel=1e-12)
    assert again.smoothness == pytest.approx(loss.smoothness, rel=1e-13)
    assert again.strong_convexity == pytest.approx(loss.strong_convexity, rel=1e-12)
    assert again.unique_optimum == loss.unique_optimum


# -- data in other forms -----------------------------------------------------------------------------------------------


def test_a_vector_of_targets_is_one_column() -> None:
    assert sf.SquaredLoss(X, Y[:, 0]).shape == (4, 1)
    torch.testing.assert_close(sf.SquaredLoss(X, Y[:, 0]).optimum, sf.SquaredLoss(X, Y[:, :1]).optimum, rtol=0, atol=0)


def test_float32_data_is_converted_exactly() -> None:
    x, t = X.float(), Y.float()
    single, double = sf.SquaredLoss(x, t), sf.SquaredLoss(x.double(), t.double())
    assert torch.equal(single.optimum, double.optimum)
    assert single.optimum.dtype == F64
    assert (single.smoothness, single.optimal_value) == (double.smoothness, double.optimal_value)
    assert sf.SoftmaxRegression(x, LABELS, 0.1).value(Y[:4, :3]) == sf.SoftmaxRegression(x.double(), LABELS, 0.1).value(
        Y[:4, :3]
    )


@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        lambda a: a[::-1][::-1],
        lambda a: np.ascontiguousarray(a[::-1])[::-1],
        lambda a: a.astype(">f8"),
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: a.tolist(),
    ],
    ids=["Fortran order", "view", "negative strides", "big endian", "strided", "lists"],
)
def test_arrays_of_any_layout_give_the_same_loss(form: Callable[[np.ndarray], object]) -> None:
    expected = sf.SquaredLoss(X, Y)
    loss = sf.SquaredLoss(form(X.numpy()), form(Y.numpy()))
    assert torch.equal(loss.optimum, expected.optimum)


def test_read_only_arrays_are_left_alone() -> None:
    x = X.numpy().copy()
    x.flags.writeable = False
    assert torch.equal(sf.SquaredLoss(x, Y).optimum, sf.SquaredLoss(X, Y).optimum)


# -- rank deficiency ---------------------------------------------------------------------------------------------------

ONES = torch.ones(1, dtype=F64)
DEFICIENT = {
    "duplicate columns": torch.cat([X, X[:, :2]], 1),
    "zero columns": torch.cat([torch.zeros(30, 1), X[:, :2], torch.zeros(30, 2), X[:, 2:]], 1),
    "zero and duplicate columns": torch.cat([X, torch.zeros(30, 1), X[:, :1] - X[:, 1:2]], 1),
    "fewer rows than columns": normal(5, 8, seed=7),
    "fewer rows, a repeated row": torch.cat([normal(4, 8, seed=7), normal(4, 8, seed=7)[:1]]),
    "fewer rows, zero columns": torch.cat([normal(5, 8, seed=7), torch.zeros(5, 2)], 1),
    "zero rows": torch.cat([torch.zeros(3, 6), torch.cat([X, X[:, :2]], 1)]),
    "rank one": X[:, :1] @ normal(1, 5, seed=8),
    "one row": normal(1, 4, seed=9),
    "square with a zero column": torch.cat([normal(5, 4, seed=9), torch.zeros(5, 1)], 1),
}
deficient = pytest.mark.parametrize("x", DEFICIENT.values(), ids=list(DEFICIENT))


@deficient
def test_deficient_data_is_reduced_to_its_rank(x: Tensor) -> None:
    x, target = x.double(), normal(len(x), 3, seed=30)
    rank = int(torch.linalg.matrix_rank(x))
    loss = sf.SquaredLoss(x, target)
    assert loss.basis is not None
    assert loss.basis.shape == (x.shape[1], rank)
    torch.testing.assert_close(loss.basis.T @ loss.basis, torch.eye(rank, dtype=F64), rtol=0, atol=1e-14)
    torch.testing.assert_close(x @ loss.basis @ loss.basis.T, x, rtol=0, atol=1e-13 * float(x.norm()))
    singular = torch.linalg.svdvals(x)
    assert loss.smoothness == pytest.approx(float(singular[0]) ** 2, rel=1e-12)
    assert loss.strong_convexity == pytest.approx(float(singular[rank - 1]) ** 2, rel=1e-10)
    W = torch.linalg.pinv(x) @ target
    torch.testing.assert_close(loss.optimum, W, rtol=1e-10, atol=1e-12 * float(W.norm()))
    best = 0.5 * float(((x @ W - target) ** 2).sum())
    assert loss.optimal_value == pytest.approx(best, rel=1e-11, abs=1e-26)
    V = normal(x.shape[1], 3, seed=31)
    expected = 0.5 * float(((x @ V - target) ** 2).sum())
    assert loss.value(V) == pytest.approx(expected, rel=1e-12)
    assert loss.reduced.value(loss.basis.T @ V) == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(loss.gradient(V), x.T @ (x @ V - target), rtol=1e-11, atol=1e-11)
    assert loss.reduced.basis is None


def test_full_rank_data_with_zero_rows_is_not_reduced() -> None:
    x = torch.cat([torch.zeros(3, 4, dtype=F64), X])
    loss = sf.SquaredLoss(x, torch.cat([torch.zeros(3, 3, dtype=F64), Y]))
    assert loss.basis is None
    torch.testing.assert_close(loss.optimum, sf.SquaredLoss(X, Y).optimum, rtol=1e-12, atol=1e-14)


@deficient
@pytest.mark.parametrize("engine", ["gram", "weights"])
def test_reduced_descent_is_gradient_descent_on_the_full_weights(x: Tensor, engine: str) -> None:
    """Theorem 7: with the reduced problem the full network moves exactly as by autograd on all of its weights."""
    x, target = x.double(), normal(len(x), 3, seed=32)
    loss = sf.SquaredLoss(x, target)
    net = sf.nn.TwoLayerLinear.gaussian(x.shape[1], 3, 6, std=0.5)
    W1, W2 = (W.detach().clone().requires_grad_(True) for W in (net.W1, net.W2))
    eta = 0.05 / loss.smoothness
    for _ in range(25):
        value = 0.5 * ((x @ W1 @ W2.T - target) ** 2).sum()
        G1, G2 = torch.autograd.grad(value, (W1, W2))
        with torch.no_grad():
            W1 -= eta * G1
            W2 -= eta * G2
    start = net.W1.detach().clone()
    run = sf.descend(net, loss, eta, max_iterations=25, tolerance=0.0, engine=engine, progress=False)
    assert run.iterations == 25
    assert float((net.W1.detach() - start).norm()) > 1e-3
    torch.testing.assert_close(net.W1.detach(), W1.detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(net.W2.detach(), W2.detach(), rtol=0, atol=1e-12)


# -- near the optimum --------------------------------------------------------------------------------------------------


def test_gap_resolution_is_above_the_noise_of_the_gap_at_the_rounded_optimum() -> None:
    for loss, _ in CASES.values():
        noise = max(loss.gap(loss.optimum * (1.0 + s * torch.finfo(F64).eps)) for s in (-1, 1))
        assert noise < loss.gap_resolution < 1e-20 * (1.0 + loss.smoothness * float(loss.optimum.norm()) ** 2)
