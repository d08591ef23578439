"""The numbers of the two theorems that are evaluated and never certified, against independent definitions of them."""

from __future__ import annotations

import pytest
import torch
from independent.inverse import training
from independent.reference import DIGITS, exact, norm
from independent.step_sizes import problems_of
from instances.arrays import normal, with_values
from mpmath import mp, mpf
from torch import Tensor

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot._inverse.spectra import Spectra
from surefoot._step_sizes.as_printed import layer_quantities

MATRICES = {
    "random": normal(2, 4, 6, seed=1),
    "deficient": with_values(5, 6, [1.5, 1.0, 0.3], 2)[None],
    "ill-conditioned": with_values(5, 5, [1.0, 0.5, 0.1, 1e-3, 1e-4], 3)[None],
    "tiny": 1e-8 * normal(1, 5, 5, seed=4),
    "huge": 1e8 * normal(1, 5, 5, seed=5),
}


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("terms", [1, 2, 3])
@pytest.mark.parametrize("A", MATRICES.values(), ids=list(MATRICES))
def test_training_of_inverses(A: Tensor, layers: int, terms: int) -> None:
    c0 = 1.1 * float(torch.linalg.matrix_norm(A, 2).max()) ** 2
    net = sf.nn.LearnedInverse(1.0 + 0.1 * normal(layers, terms, seed=6), c0)
    C = net.coefficients.detach()
    floor = net.floor(A)
    found = {
        "initial_gap": Spectra.of(A, c0).loss(C) - floor.value,
        "floor": floor.value,
        "smoothness": floor.smoothness,
        "strong_convexity": floor.strong_convexity,
    }
    assert set(PLANS["inverse/training"].theorem.base) == set(found)
    with mp.workdps(DIGITS):
        truth = training(A.numpy(), c0, C.numpy())
        size = truth["initial_gap"] + truth["floor"]
        for name, value in truth.items():
            # both are sums of squares that cancel, and the Hessian has the size of its largest eigenvalue
            room = size if name in ("initial_gap", "floor") else truth["smoothness"]
            assert abs(mpf(found[name]) - value) <= 1e-9 * value + 1e-13 * room, name


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_training_of_step_sizes(scale: float) -> None:
    """The norms of layers, and the constants of the problems that the evaluation of Theorem 4.7 takes."""
    M, Y, weights = normal(3, 4, 6, seed=7), normal(3, 4, seed=8), [normal(3, 2, seed=9), normal(4, 3, seed=10)]
    M, weights = scale * M, [scale * W for W in weights]
    problems = sf.learned.LeastSquares(M, Y)
    norms, C = [float(torch.linalg.matrix_norm(W, 2)) for W in weights], [0.5, 2.0]
    found = layer_quantities(norms, C)
    with mp.workdps(DIGITS):
        first, second = (norm(exact(W.numpy())) + c for W, c in zip(weights, C, strict=True))
        truth = {
            "theta": first * second,
            "theta_inner": first,
            "inverse_squares": first**-2 + second**-2,
            "inverse_largest": max(1 / (c * each) for c, each in zip(C, (first, second), strict=True)),
        }
        assert found.keys() == truth.keys()
        assert all(abs(mpf(found[name]) / value - 1) <= 1e-12 for name, value in truth.items())
        each = problems_of({"M": M.numpy(), "Y": Y.numpy()})
        beta, beta0 = max(p.squares[0] for p in each), min(p.squares[p.rank - 1] for p in each)
        assert beta <= problems.common_smoothness <= beta * (1 + mpf(10) ** -8)
        assert beta0 * (1 - mpf(10) ** -6) <= float(problems.strong_convexity.min()) <= beta0
        pulled = mp.sqrt(
            sum(mp.fsum(a * b for a, b in zip(c, p.target, strict=True)) ** 2 for p in each for c in p.columns)
        )
        assert abs(float(problems.adjoint(problems.Y).norm()) / pulled - 1) <= 1e-12
