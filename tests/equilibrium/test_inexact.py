"""Derivatives that are inexact by choice, and what their records say."""

import math

import pytest
import torch

import surefoot as sf
from surefoot._equilibrium.layer import EquilibriumLayer

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


W = draw(3, 3, seed=1)
W = 0.8 * W / torch.linalg.matrix_norm(W, 2)
X, DX = draw(4, 3), draw(4, 3, seed=2)


def cell(z, x, W):
    return torch.tanh(z @ W + x)


def phantom(steps, damping, **options):
    return EquilibriumLayer(cell, gradient=sf.nn.PhantomGradient(steps, damping), **options)


def damped_steps(x, W, steps, damping):
    """What a phantom gradient is defined by."""
    z = EquilibriumLayer(cell)(x, W).detach()
    for _ in range(steps):
        z = (1.0 - damping) * z + damping * cell(z, x, W)
    return z


@pytest.mark.parametrize(("steps", "damping"), [(1, 1.0), (1, 0.5), (5, 0.5), (4, 1.0)])
def test_gradients_are_those_of_damped_steps(steps, damping):
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    got = torch.autograd.grad(phantom(steps, damping)(x, w).pow(3).sum(), (x, w))
    true = torch.autograd.grad(damped_steps(x, w, steps, damping).pow(3).sum(), (x, w))
    for a, b in zip(got, true, strict=True):
        assert float((a - b).abs().max()) <= 1e-10
    tangent = torch.func.jvp(lambda x: phantom(steps, damping)(x, W), (X,), (DX,))[1]
    true = torch.func.jvp(lambda x: damped_steps(x, W, steps, damping), (X,), (DX,))[1]
    assert float((tangent - true).abs().max()) <= 1e-10


@pytest.mark.parametrize("contraction", [0.8, None])
@pytest.mark.parametrize(("steps", "damping"), [(1, 1.0), (3, 1.0), (6, 0.5)])
def test_the_record_says_what_is_left_out(contraction, steps, damping):
    layer = phantom(steps, damping, contraction=contraction)
    x, v = X.clone().requires_grad_(), draw(4, 3, seed=3)
    slope = 1.0 - cell(layer(x, W), x, W).detach().square()
    (gradient,) = torch.autograd.grad(layer(x, W), x, v)
    (exact,) = torch.autograd.grad(EquilibriumLayer(cell)(x, W), x, v)
    info = layer.backward_info
    assert layer.info.converged and layer.info.exact
    assert f"PhantomGradient(steps={steps}, damping={damping})" in repr(layer)
    assert not info.exact and not info.converged and info.status == "truncated" and not info.failed.any()
    assert info.iterations == steps - 1
    assert info.text.startswith("inexact by choice") and f"{steps} step(s) damped by {damping:g}" in info.text
    error = ((gradient - exact) / slope).norm(dim=1)  # of u: the gradient is u times the slope
    slack = 1.0 if contraction is not None else 1.5  # without it the bound is an estimate
    assert bool((error <= slack * info.error_bound).all()) and float(error.max()) > 0.01
    assert info.guaranteed == (contraction is not None)
    assert bool(info.error_bound.isfinite().all()) == (contraction is not None or steps > 1)


def test_steps_approach_the_exact_gradient_at_the_stated_rate():
    x = X.clone().requires_grad_()

    def gradient(layer):
        return torch.autograd.grad(layer(x, W).sum(), x)[0]

    exact = gradient(EquilibriumLayer(cell))
    errors = [float((gradient(phantom(steps, 0.5)) - exact).norm()) for steps in (1, 11, 21)]
    rate = (1.0 - 0.5 * 0.2) ** 10
    assert errors[1] <= rate * errors[0] and errors[2] <= rate * errors[1]


def test_bounds_know_the_precision_of_the_cell():
    x, v = X.clone().requires_grad_(), torch.ones_like(X)
    (coarse,) = torch.autograd.grad(phantom(30, 1.0, contraction=0.8)(x.bfloat16(), W.bfloat16()), x, v.bfloat16())
    layer = phantom(30, 1.0, contraction=0.8)
    with torch.autocast("cpu", torch.bfloat16):
        z = layer(x.float(), W.float())
    (gradient,) = torch.autograd.grad(z, x, v.float())
    (exact,) = torch.autograd.grad(EquilibriumLayer(cell)(x, W), x, v)
    unit = torch.finfo(torch.bfloat16).eps
    for got in (coarse, gradient):
        assert 0.02 * unit < float((got - exact).norm() / exact.norm()) < 4.0 * unit
    bound = layer.backward_info.error_bound / exact.norm(dim=1)
    assert bool((bound > unit).all()) and bool((bound < 50.0 * unit).all())


def test_a_claimed_factor_that_the_steps_refute_is_an_error():
    layer = EquilibriumLayer(
        lambda z, x: 0.9 * z.sin() + x,  # contracts by 0.02 at z = 1.55, where the solve stays
        contraction=0.1,
        gradient=sf.nn.PhantomGradient(4, 1.0),
        on_failure="return",
    )
    x = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    layer(x).sum().backward()
    assert layer.backward_info.status == "not_contracting" and layer.backward_info.exact
    assert math.isinf(float(layer.backward_info.error_bound))


def test_a_trajectory_of_plain_steps():
    layer = EquilibriumLayer(cell, solver="plain")
    x = X.clone().requires_grad_()
    found = layer.trajectory(x, W, evaluations=[1, 3, 4, 5000])
    z, values = torch.zeros_like(X), []
    for _ in range(4):
        z = cell(z.detach(), x, W)  # the derivative is that of the last evaluation
        values.append(z)
    for state, true in zip(found.states, (values[0], values[2], values[3]), strict=False):
        assert torch.equal(state, true)
        (got,) = torch.autograd.grad(state.sum(), x, retain_graph=True)
        assert torch.allclose(got, torch.autograd.grad(true.sum(), x)[0], rtol=1e-14)
    assert found.evaluations == (1, 3, 4, layer.info.iterations + 1) and found.info is layer.info
    assert torch.allclose(found.states[3], found.z, rtol=1e-11)
    (exact,) = torch.autograd.grad(found.z.sum(), x, retain_graph=True)
    assert torch.allclose(exact, torch.autograd.grad(EquilibriumLayer(cell)(x, W).sum(), x)[0], rtol=1e-9)
    assert found.text.startswith("states of evaluation 1, 3, 4, ") and "inexact by choice" in found.text


def test_a_trajectory_of_several_tensors_trains():
    def pair(z, x, W):
        a, b = z
        return torch.tanh(b @ W + x), 0.5 * a

    w = W.clone().requires_grad_()
    layer = EquilibriumLayer(pair, state_shape=((3,), (3,)), solver="anderson")
    found = layer.trajectory(X, w, evaluations=(2, 6))
    loss = sum(a.square().sum() for a, _ in (*found.states, found.z))
    loss.backward()
    assert [b.shape for _, b in found.states] == [X.shape, X.shape] and w.grad.any()
    gradient = torch.func.grad(lambda W: layer.trajectory(X, W, evaluations=[1]).states[0][0].sum())(W)
    assert torch.equal(gradient, torch.zeros_like(W))  # the first evaluation is at b = 0
    with pytest.raises(NotImplementedError, match=r"torch\.vmap"):
        torch.vmap(lambda x: layer.trajectory(x, W, evaluations=[1]).z)(X[None])


def test_arguments():
    for evaluations, error in (([0], ValueError), ("12", TypeError), (3, TypeError)):
        with pytest.raises(error, match="evaluations is"):
            EquilibriumLayer(cell).trajectory(X, W, evaluations=evaluations)
    for steps, damping in ((0, 0.5), (2.5, 0.5), (5, 0.0), (5, 1.5)):
        with pytest.raises(ValueError, match=r"steps is|damping is"):
            sf.nn.PhantomGradient(steps, damping)
    with pytest.raises(ValueError, match="gradient is 'phantom'; pass \"implicit\" or"):
        EquilibriumLayer(cell, gradient="phantom")
