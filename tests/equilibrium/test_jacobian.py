"""Penalty and spectrum of the Jacobian of a map."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import surefoot as sf
from surefoot._equilibrium.layer import EquilibriumLayer

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


W, X = 0.3 * draw(4, 4, seed=1), draw(5, 4)
Z = draw(5, 4, seed=2)


def cell(z, x, W):
    return torch.tanh(z @ W + x)


def jacobians(z, x, W):
    slope = 1.0 - cell(z, x, W).square()
    return slope[:, :, None] * W.T


def test_the_penalty_is_unbiased_and_knows_its_error():
    estimates = [sf.nn.jacobian_penalty(cell, Z, X, W, samples=4, generator=generator(seed)) for seed in range(100)]
    values = torch.stack([estimate.value for estimate in estimates])
    true = float(jacobians(Z, X, W).square().sum((1, 2)).mean())
    spread = float(values.std())
    assert 0.01 * true < spread < 0.3 * true
    assert abs(float(values.mean()) - true) <= 4.0 * spread / math.sqrt(100)
    stated = float(torch.stack([estimate.standard_error for estimate in estimates]).square().mean().sqrt())
    assert 0.8 * spread <= stated <= 1.25 * spread
    assert math.isnan(float(sf.nn.jacobian_penalty(cell, Z, X, W).standard_error))


def test_gradients_of_the_penalty():
    leaves = tuple(t.clone().requires_grad_() for t in (Z, X, W))
    # of a diagonal Jacobian the estimate is exact
    value = sf.nn.jacobian_penalty(lambda z, x, W: z.sin() * W.diagonal() + x, *leaves).value
    got = torch.autograd.grad(value, (leaves[0], leaves[2]))
    true = torch.autograd.grad((leaves[0].cos() * leaves[2].diagonal()).square().sum(1).mean(), (leaves[0], leaves[2]))
    for a, b in zip(got, true, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)
    functional = torch.func.grad(lambda W: sf.nn.jacobian_penalty(lambda z: z.sin() * W.diagonal(), Z).value)(W)
    assert torch.allclose(functional, true[1], rtol=1e-12, atol=1e-14)


def test_the_penalty_under_vmap():
    weights = torch.stack([W, 2.0 * W])

    def diagonal(w):
        return sf.nn.jacobian_penalty(lambda z: z.sin() * w.diagonal(), Z).value

    got = torch.vmap(torch.func.grad(diagonal), randomness="different")(weights)
    assert torch.allclose(got, torch.stack([torch.func.grad(diagonal)(w) for w in weights]), rtol=1e-12, atol=1e-14)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(W.clone())

    def forward(self, z, x, scale=1.0):
        a, b = z["a"], z["b"]
        return {"a": torch.tanh(scale * b @ self.W[:2] + x), "b": 0.5 * a[:, :2]}


def test_a_layer_with_a_state_of_several_tensors_learns_a_smaller_jacobian():
    layer = EquilibriumLayer(Cell(), state_shape={"a": 4, "b": 2})
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    sizes = []
    for seed in range(10):
        z = layer(X, scale=0.9)
        penalty = sf.nn.jacobian_penalty(layer, z, X, samples=2, generator=generator(seed), scale=0.9)
        optimizer.zero_grad()
        penalty.value.backward()
        optimizer.step()
        sizes.append(float(penalty.value.detach()))
    assert layer.f.W.grad.any() and sizes[-1] < 0.9 * sizes[0]
    assert float(sf.nn.jacobian_spectrum(layer, layer(X), X).norm.max()) <= 1.0


def test_radius_and_norm_of_each_sample():
    rotation = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)  # complex eigenvalues
    shear = torch.tensor([[0.5, 3.0], [0.0, 0.25]], dtype=torch.float64)  # far from normal
    matrices = torch.stack([0.9 * rotation, shear, torch.zeros(2, 2, dtype=torch.float64)])

    def linear(z, A):
        return (z[:, None] @ A)[:, 0]

    z = torch.zeros(3, 2, dtype=torch.float64)
    radius, norm = sf.nn.jacobian_spectrum(linear, z, matrices, iterations=80, generator=generator())
    assert torch.allclose(radius, torch.tensor([0.9, 0.5, 0.0], dtype=torch.float64), rtol=1e-6)
    true = torch.linalg.matrix_norm(matrices, 2)
    assert torch.allclose(norm, true, rtol=1e-6) and bool((norm <= true * (1.0 + 1e-14)).all())
    assert not norm.requires_grad


def test_coupled_samples_have_one_spectrum():
    class Coupled(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4).double()

        def forward(self, z, x):
            return torch.tanh(0.5 * self.norm(z @ W.T) + x)

    coupled = Coupled()
    kept = coupled.norm.running_mean.clone()
    radius, size = sf.nn.jacobian_spectrum(coupled, Z, X, iterations=200, generator=generator())
    assert torch.equal(coupled.norm.running_mean, kept)
    matrix = torch.autograd.functional.jacobian(lambda z: coupled(z, X), Z).reshape(Z.numel(), -1)
    assert torch.allclose(size, torch.linalg.matrix_norm(matrix, 2), rtol=1e-6)
    assert torch.allclose(radius, torch.linalg.eigvals(matrix).abs().max(), rtol=0.02)


def test_the_spectrum_has_no_derivatives():
    def sizes(z):
        return sf.nn.jacobian_spectrum(cell, z, X, W, generator=generator()).norm

    for transformed in (torch.func.grad(lambda z: sizes(z).sum()), torch.vmap(sizes), torch.func.jacfwd(sizes)):
        with pytest.raises(RuntimeError, match="cannot run inside a transform"):
            transformed(Z)
    with forward_ad.dual_level():
        norm = sizes(forward_ad.make_dual(Z, Z))
        assert forward_ad.unpack_dual(norm).tangent is None
        assert torch.equal(norm, sizes(Z))


def test_a_false_claim_is_seen():
    layer = EquilibriumLayer(lambda z, x: torch.tanh(1.2 * z.roll(1, -1)) + x, contraction=0.9, on_failure="return")
    assert float(sf.nn.jacobian_spectrum(layer, torch.zeros_like(X), X).norm.max()) == pytest.approx(1.2)


def test_arguments():
    with pytest.raises(ValueError, match="samples is 0"):
        sf.nn.jacobian_penalty(cell, Z, X, W, samples=0)
    with pytest.raises(ValueError, match="iterations is 1"):
        sf.nn.jacobian_spectrum(cell, Z, X, W, iterations=1)
    with pytest.raises(TypeError, match="z has dtype int64"):
        sf.nn.jacobian_penalty(cell, torch.ones(2, 4, dtype=torch.int64), X, W)
