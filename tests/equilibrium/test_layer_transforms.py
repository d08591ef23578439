"""EquilibriumLayer under torch.func, with captured tensors, and nested."""

from functools import cache

import pytest
import torch
from torch import nn

from surefoot._equilibrium.failures import EquilibriumError
from surefoot._equilibrium.layer import EquilibriumLayer


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unroll(f, z, count=80):
    for _ in range(count):
        z = f(z)
    return z


def cell(z, x, W):
    return torch.tanh(z @ W + x)


X, W = draw(3, 2), 0.35 * draw(2, 2, seed=1)


def loss(x, W):
    return EquilibriumLayer(cell)(x, W).pow(3).sum()


def true_loss(x, W):
    return unroll(lambda z: cell(z, x, W), torch.zeros_like(x)).pow(3).sum()


def assert_close(got, true, tolerance=1e-10):
    for a, b in zip(got, true, strict=True):
        assert float((a - b).detach().abs().max()) <= tolerance


@cache
def true_gradients():
    return torch.func.grad(true_loss, (0, 1))(X, W)


def test_grad_and_vjp():
    assert_close(torch.func.grad(loss, (0, 1))(X, W), true_gradients())
    value, pull = torch.func.vjp(loss, X, W)
    assert_close(pull(torch.ones_like(value)), true_gradients())


def test_grad_of_a_grad_and_hessian():
    def norm(loss):
        return lambda x: torch.func.grad(loss, 1)(x, W).pow(2).sum()

    assert_close((torch.func.grad(norm(loss))(X),), (torch.func.grad(norm(true_loss))(X),), 1e-9)
    hessian = torch.func.jacrev(torch.func.jacrev(loss, 1), 1)(X, W)
    assert_close((hessian,), (torch.func.jacrev(torch.func.jacrev(true_loss, 1), 1)(X, W),), 1e-9)


def test_third_derivative():
    x, W = torch.tensor([[0.3]], dtype=torch.float64), torch.tensor([[0.5]], dtype=torch.float64)

    def third(loss):
        grad = torch.func.grad
        return grad(lambda W: grad(lambda W: grad(loss, 1)(x, W).sum())(W).sum())(W)

    assert_close((third(loss),), (third(true_loss),), 1e-8)


def test_vmap_over_samples_weights_and_gradients():
    layer = EquilibriumLayer(cell)
    weights = torch.stack([W, 0.5 * W, -W])
    z = torch.vmap(layer, (None, 0))(X, weights)
    assert layer.info.residual.shape == (3, 3)
    assert_close(z, [EquilibriumLayer(cell)(X, w) for w in weights])
    moved = torch.vmap(layer, (None, 2), out_dims=1)(X, weights.movedim(0, 2))
    assert_close((moved.movedim(1, 0),), (z,))

    single = EquilibriumLayer(cell, batch_dims=0)
    assert_close((torch.vmap(single, (0, None))(X, W),), (layer(X, W),))
    per_sample = torch.vmap(torch.func.grad(lambda x, W: single(x, W).pow(3).sum(), 1), (0, None))(X, W)
    assert_close((per_sample.sum(0),), true_gradients()[1:])
    assert single.backward_info.residual.shape == (3,)
    both = torch.vmap(torch.vmap(single, (0, None)), (None, 0))(X, weights)
    assert_close((both,), (z,))


def test_failures_under_vmap_raise():
    weights = torch.stack([W, 20.0 * torch.eye(2, dtype=torch.float64)])
    with pytest.raises(EquilibriumError, match="3 of 6 samples failed, the first at index \\(1, 0\\)"):
        torch.vmap(EquilibriumLayer(lambda z, x, W: z @ W + x), (None, 0))(X, weights)


def test_captured_tensors_have_gradients_of_every_order():
    raw = W.clone().requires_grad_()
    doubled = 2.0 * raw  # not a leaf
    layer = EquilibriumLayer(lambda z, x: torch.tanh(z @ (0.5 * doubled) + x))
    (gradient,) = torch.autograd.grad(layer(X).pow(3).sum(), raw, create_graph=True)
    assert_close((gradient,), true_gradients()[1:])
    true = torch.func.grad(lambda W: torch.func.grad(true_loss, 1)(X, W).pow(2).sum())(W)
    assert_close(torch.autograd.grad(gradient.pow(2).sum(), raw), (true,), 1e-9)


def test_captured_tensors_under_transforms():
    def captured(W):
        return EquilibriumLayer(lambda z, x: torch.tanh(z @ W + x))(X)

    assert_close((torch.func.grad(lambda W: captured(W).pow(3).sum())(W),), true_gradients()[1:])
    value, pull = torch.func.vjp(lambda W: captured(W).pow(3).sum(), W)
    assert_close(pull(torch.ones_like(value)), true_gradients()[1:])
    weights = torch.stack([W, 0.5 * W])
    assert_close(torch.vmap(captured)(weights), [captured(w) for w in weights])


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)
        self.register_buffer("offset", torch.tensor(0.1, dtype=torch.float64))

    def forward(self, z, x):
        return torch.tanh(0.4 * self.linear(z) + x + self.offset)


class Owner(nn.Module):
    """A layer whose function captures the module around it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)
        self.layer = EquilibriumLayer(lambda z, x: torch.tanh(0.4 * self.linear(z) + x))

    def forward(self, x):
        return self.layer(x)


def test_functional_call_of_a_module():
    torch.manual_seed(0)
    layer = EquilibriumLayer(Cell())
    parameters = {name: 1.5 * p.detach() for name, p in layer.named_parameters()}

    def of(solve):
        return torch.func.grad(lambda p: solve(p).pow(3).sum())(parameters)

    got = of(lambda p: torch.func.functional_call(layer, p, (X,)))
    true = of(
        lambda p: unroll(
            lambda z: torch.tanh(0.4 * (z @ p["f.linear.weight"].T + p["f.linear.bias"]) + X + 0.1), torch.zeros_like(X)
        )
    )
    assert_close(got.values(), true.values())


def test_functional_call_around_a_capturing_function_is_no_silent_error():
    torch.manual_seed(0)
    owner = Owner()
    parameters = {name: 1.5 * p.detach() for name, p in owner.named_parameters()}
    with pytest.raises(RuntimeError, match="make f a module that holds them"):
        torch.func.grad(lambda p: torch.func.functional_call(owner, p, (X,)).sum())(parameters)
    owner(X).sum().backward()
    assert owner.linear.weight.grad.any()


def test_parameters_changed_before_the_backward_are_an_error():
    layer = EquilibriumLayer(Cell())
    value = layer(X).sum()
    with torch.no_grad():
        layer.f.linear.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@pytest.mark.parametrize("module", [True, False])
def test_nested_layers(module):
    torch.manual_seed(0)
    inner = EquilibriumLayer(Cell() if module else lambda z, x: torch.tanh(0.4 * linear(z) + x + 0.1))
    linear = inner.f.linear if module else nn.Linear(2, 2, dtype=torch.float64)
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    layer = EquilibriumLayer(lambda z, x: 0.2 * inner(torch.tanh(z @ w) + x))

    def step(z):
        return 0.2 * unroll(
            lambda y: torch.tanh(0.4 * linear(y) + torch.tanh(z @ w) + x + 0.1), torch.zeros_like(z), 40
        )

    leaves = (x, w, linear.weight, linear.bias)
    got = torch.autograd.grad(layer(x).pow(3).sum(), leaves)
    assert_close(got, torch.autograd.grad(unroll(step, torch.zeros_like(x), 25).pow(3).sum(), leaves), 1e-9)


def test_training_reaches_a_target():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2, dtype=torch.float64), EquilibriumLayer(Cell()))
    target = 0.5 * torch.sin(X)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        value = (net(X) - target).square().sum()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < 0.3 * losses[0]
