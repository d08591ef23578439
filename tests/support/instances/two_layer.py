"""Two-layer linear networks: squared loss, matrix sensing and softmax regression."""

from __future__ import annotations

from collections.abc import Callable

import torch
from enclosed import Stored, certified
from torch import Tensor

import surefoot as sf

from .arrays import DOUBLE, graded, normal, with_values


def squared(X: Tensor, m: int, seed: int = 3) -> sf.Loss:
    """Squared loss with noisy targets."""
    return sf.SquaredLoss(X, X @ normal(X.shape[1], m, seed=seed) + 0.1 * normal(len(X), m, seed=seed + 1))


def gaussian(n: int, m: int, h: int, std: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian weights."""
    return std * normal(n, h, seed=seed), std * normal(m, h, seed=seed + 50)


def balanced(n: int, m: int, h: int) -> tuple[Tensor, Tensor]:
    """W1ᵀW1 and W2ᵀW2 nearly the same, of rank min(n, m)."""
    common = with_values(min(n, m), h, [2.0, 1.0, 0.5, 0.25][: min(n, m)], 5)
    first, second = (torch.linalg.qr(normal(k, k, seed=6 + k))[0][:, : len(common)] for k in (n, m))
    return first @ common + 1e-7 * normal(n, h, seed=8), second @ common


def softmax(n: int, m: int, l2: float, scale: float = 1.0, rows: int = 7) -> sf.Loss:
    """Softmax regression with all classes."""
    return sf.SoftmaxRegression(scale * normal(rows, n, seed=9), torch.arange(rows) % m, l2, m)


def adapted_softmax() -> sf.Loss:
    """Softmax regression of what is added to a fixed map."""
    return sf.SoftmaxRegression(normal(7, 2, seed=9), torch.arange(7) % 3, 0.05, offset=2.0 * normal(2, 3, seed=15))


def sensing(count: int, n: int, m: int, scale: float = 1.0) -> sf.Loss:
    """Gaussian measurements."""
    return sf.MatrixSensing(scale * normal(count, n, m, seed=10), scale * normal(count, seed=11))


def completion() -> sf.Loss:
    """Four entries of a 2 x 3 matrix, one of them observed three times."""
    rows, columns = torch.tensor([1, 0, 1, 0, 1, 1]), torch.tensor([2, 0, 0, 1, 2, 2])
    return sf.MatrixCompletion(rows, columns, normal(6, seed=14), (2, 3))


def near_optimum(loss: sf.Loss, h: int) -> tuple[Tensor, Tensor]:
    """Weights whose product is the optimum up to 1e-9."""
    U, s, Vt = torch.linalg.svd(loss.optimum, full_matrices=False)
    turn = torch.linalg.qr(normal(h, h, seed=12))[0][: len(s)]
    return U * s.sqrt() @ turn + 1e-9 * normal(len(U), h, seed=13), (Vt.T * s.sqrt()) @ turn


def families() -> dict[str, Callable[[], tuple[tuple[Tensor, Tensor], sf.Loss]]]:
    """Weights and loss by name."""
    tall = normal(6, 3, seed=1)
    return {
        "random": lambda: (gaussian(3, 2, 5), squared(tall, 2)),
        "narrow": lambda: (gaussian(3, 4, 2), squared(tall, 4)),
        "wide": lambda: (gaussian(2, 3, 9), squared(tall[:, :2], 3)),
        "one output, one row less": lambda: (gaussian(3, 1, 4), squared(tall[:3], 1)),
        "single row": lambda: (gaussian(3, 2, 6), squared(normal(1, 3, seed=2), 2)),
        "ill-conditioned": lambda: (gaussian(3, 2, 6), squared(with_values(6, 3, [1.0, 1e-3, 1e-5], 4), 2)),
        "graded": lambda: (gaussian(3, 2, 6), squared(graded(6, 3, 1e-3, 4), 2)),
        "tied singular values": lambda: (gaussian(3, 3, 6), squared(with_values(6, 3, [2.0, 2.0, 2.0], 4), 3)),
        "rank-deficient": lambda: (gaussian(3, 2, 6), squared(with_values(6, 3, [2.0, 1.0], 4), 2)),
        "tiny": lambda: (gaussian(3, 2, 6, 1e-6), squared(1e-9 * tall, 2)),
        "huge": lambda: (gaussian(3, 2, 6, 1e3), squared(1e6 * tall, 2)),
        "balanced": lambda: (balanced(3, 2, 4), squared(tall, 2)),
        "low-rank weights": lambda: (
            (with_values(3, 5, [3.0], 7), with_values(2, 5, [3.0, 3.0], 8)),
            squared(tall, 2),
        ),
        "zero layer": lambda: ((torch.zeros(3, 4, dtype=DOUBLE), normal(2, 4, seed=5)), squared(tall, 2)),
        "near the optimum": lambda: ((near_optimum(squared(tall, 2), 5)), squared(tall, 2)),
        "sensing": lambda: (gaussian(2, 2, 5), sensing(6, 2, 2)),
        "sensing, few measurements": lambda: (gaussian(2, 2, 5), sensing(3, 2, 2)),
        "sensing, tiny": lambda: (gaussian(2, 2, 5), sensing(6, 2, 2, 1e-7)),
        "completion": lambda: (gaussian(2, 3, 6), completion()),
        "softmax, two classes": lambda: (gaussian(2, 2, 5), softmax(2, 2, 0.1)),
        "softmax": lambda: (gaussian(2, 3, 6), softmax(2, 3, 1e-2)),
        "softmax, fixed map": lambda: (gaussian(2, 3, 6), adapted_softmax()),
        "softmax, large inputs": lambda: (gaussian(2, 2, 5), softmax(2, 2, 0.5, 30.0)),
        "softmax, no penalty": lambda: (gaussian(2, 2, 5), softmax(2, 2, 0.0)),
    }


def orthonormal(n: int, m: int, h: int, s: float, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """n + m rows s times orthonormal, and noise."""
    Z = s * torch.linalg.qr(normal(h, n + m, seed=14))[0].T + noise * normal(n + m, h, seed=15)
    return Z[:n].contiguous(), Z[n:].contiguous()


def prescribed_families() -> dict[str, Callable[[], tuple[tuple[Tensor, Tensor], sf.Loss]]]:
    """The same for prescribed steps: weights near orthonormal ones, and spectra for which few steps are planned."""

    def data(values: list[float], n: int = 3) -> Tensor:
        return with_values(6, n, values, 4)

    def exactly(X: Tensor) -> sf.Loss:
        return sf.SquaredLoss(X, X @ normal(3, 2, seed=3))

    return {
        "orthonormal": lambda: (orthonormal(3, 2, 5, 4.0), squared(data([1.2, 1.1, 1.0]), 2)),
        "not quite orthonormal": lambda: (orthonormal(3, 2, 7, 5.0, 1e-3), squared(data([1.1, 1.05, 1.0]), 2)),
        "not orthonormal": lambda: (orthonormal(3, 2, 7, 9.0, 0.3), squared(data([1.1, 1.05, 1.0]), 2)),
        "tied singular values": lambda: (orthonormal(3, 3, 6, 5.0), squared(data([2.0, 2.0, 2.0]), 3)),
        "one output": lambda: (orthonormal(3, 1, 4, 3.0), squared(data([1.2, 1.1, 1.0]), 1)),
        "more outputs": lambda: (orthonormal(2, 3, 6, 4.0), squared(data([1.1, 1.0], 2), 3)),
        "rank-deficient": lambda: (orthonormal(3, 2, 5, 3.0), squared(data([1.2, 1.0]), 2)),
        "tiny": lambda: (orthonormal(3, 2, 5, 4.0), exactly(1e-9 * data([1.2, 1.1, 1.0]))),
        "huge": lambda: (orthonormal(3, 2, 5, 300.0), squared(1e6 * data([1.1, 1.0, 1.0]), 2)),
    }


def instances(theorem: str) -> dict[str, Callable[[], Stored]]:
    """Every family for every theorem."""

    def make(build: Callable[[], tuple[tuple[Tensor, Tensor], sf.Loss]]) -> Stored:
        weights, loss = build()
        return certified(sf.nn.TwoLayerLinear(*weights), loss, theorem)

    of_theorem = prescribed_families() if theorem == "two-layer/prescribed" else families()
    return {name: lambda b=build: make(b) for name, build in of_theorem.items()}
