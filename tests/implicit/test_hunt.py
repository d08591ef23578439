"""A hunt for false certificates of ``implicit/local``: residuals as large as it allows, and descent by its floor step."""

from __future__ import annotations

import math

import pytest
import torch
from draws import normal

import surefoot as sf

LOCAL = "implicit/local"
STEPS = 20


def network(seed: int, p: int) -> tuple[sf.nn.ImplicitReLU, torch.Tensor]:
    """Contractions from 0.3 to 0.97, and three rows."""
    W, A, b = (normal(*shape, seed=10 * seed + k) for k, shape in enumerate(((4, 8), (8, 8), (8, p))))
    gamma = (0.3, 0.7, 0.9, 0.97)[seed % 4] / float(torch.linalg.matrix_norm(A, 2))
    return sf.nn.ImplicitReLU(W, A, b, gamma), normal(3, 4, seed=10 * seed + 5)


def farthest(
    net: sf.nn.ImplicitReLU, X: torch.Tensor, direction: torch.Tensor
) -> tuple[sf.Certificate, sf.SquaredLoss]:
    """Targets in this direction from the outputs, as far as there is a certificate, to a factor of 1.2."""
    f = net(X).detach().reshape(direction.shape)
    found, low, high = None, 1e-8, 1e2
    while high > 1.2 * low:
        size = math.sqrt(low * high)
        loss = sf.SquaredLoss(X, f + size * direction)
        certificate = sf.certify(net, loss, LOCAL)
        low, high = (size, high) if certificate.holds else (low, size)
        found = (certificate, loss) if certificate.holds else found
    assert found is not None
    return found


def hunted(seed: int, p: int) -> float:
    """What certified descent does, checked; how much of the condition on the residual was used."""
    net, X = network(seed, p)
    certificate, loss = farthest(net, X, torch.nn.functional.normalize(normal(3, p, seed=seed), dim=(0, 1)))
    q = certificate.quantities
    run = sf.descend(net, loss, "floor", STEPS, 0.0, certificate=certificate, progress=False)
    assert run.certified and run.audit().holds and len(run.rows) > 1
    for row in run.rows:
        assert row["gap"] <= certificate.bound(int(row["iteration"])) * (1.0 + 1e-9) + 1e-28
        assert row["distance"] <= q["radius"] * (1.0 + 1e-9)
    return 2.0 * q["lipschitz_J"] * q["r0"] / q["sigma_min_J"] ** 2


@pytest.mark.parametrize("p", [1, 2])
def test_descent_keeps_the_guarantee_at_the_largest_residual(p: int) -> None:
    assert hunted(p, p) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3])
def test_descent_keeps_the_guarantee_of_many_networks(p: int) -> None:
    used = [hunted(seed, p) for seed in range(30)]
    assert 0.1 < max(used) < 1.0, "no residual is near the condition"
