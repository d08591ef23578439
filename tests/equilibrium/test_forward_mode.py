"""EquilibriumLayer in forward mode, and forward and reverse mode mixed."""

from functools import cache
from itertools import product

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from surefoot._equilibrium.failures import EquilibriumError, EquilibriumWarning
from surefoot._equilibrium.layer import EquilibriumLayer

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cell(z, x, W):
    return torch.tanh(z @ W + x)


X, W = draw(2, 2), 0.35 * draw(2, 2, seed=1)
DX, DW = draw(2, 2, seed=2), draw(2, 2, seed=3)


def unrolled(x, W):
    z = torch.zeros_like(x)
    for _ in range(40):
        z = cell(z, x, W)
    return z


def assert_close(got, true, tolerance=1e-10):
    assert float((got - true).detach().abs().max()) <= tolerance


def test_a_tangent_and_its_record():
    layer = EquilibriumLayer(cell)
    z, w = jvp(layer, (X, W), (DX, DW))
    assert_close(z, layer(X, W), 0.0)
    h = 1e-5
    assert_close(w, (layer(X + h * DX, W + h * DW) - layer(X - h * DX, W - h * DW)) / (2 * h), 1e-8)
    assert_close(w, jvp(unrolled, (X, W), (DX, DW))[1])
    assert layer.backward_info is None
    assert layer.tangent_info.converged and layer.tangent_info.residual.shape == (2,)
    assert float((layer.tangent_info.error_bound / w.norm(dim=1)).max()) <= 1e-11


def test_a_given_contraction_bounds_the_tangent():
    half = EquilibriumLayer(lambda z, x: 0.5 * z + x, contraction=0.5, backward_tolerance=1e-3, solver="plain")
    _, w = jvp(half, (X,), (DX,))
    info = half.tangent_info
    assert info.guaranteed and 5 <= info.iterations <= 15
    assert bool(((w - 2.0 * DX).norm(dim=1) <= info.error_bound).all())


@cache
def true_second(i, j):
    return jacrev(jacrev(unrolled, i), j)(X[:1], W)


@pytest.mark.parametrize(
    "modes", list(product((jacfwd, jacrev), repeat=2)), ids=lambda m: f"{m[0].__name__}-{m[1].__name__}"
)
def test_second_derivatives_in_every_mode(modes):
    outer, inner = modes
    for i, j in product((0, 1), repeat=2):
        got = outer(inner(EquilibriumLayer(cell), i), j)(X[:1], W)
        assert_close(got, true_second(i, j), 1e-9)


def test_hessian_and_third_derivatives():
    layer = EquilibriumLayer(cell)

    def of(solve):
        return lambda W: solve(X[:1], W).pow(3).sum()

    assert_close(hessian(of(layer))(W), hessian(of(unrolled))(W), 1e-9)
    true = jacfwd(hessian(of(unrolled)))(W)
    for outer in (jacfwd, jacrev):
        assert_close(outer(hessian(of(layer)))(W), true, 1e-8)


def test_vmap_over_and_under_forward_mode():
    layer, weights = EquilibriumLayer(cell), torch.stack([W, -W])
    directions = torch.stack([DW, 2.0 * DW])

    def tangent(w, dw):
        return jvp(lambda w: layer(X, w), (w,), (dw,))[1]

    true = torch.stack([jvp(lambda w: unrolled(X, w), (w,), (d,))[1] for w, d in zip(weights, directions, strict=True)])
    assert_close(vmap(tangent)(weights, directions), true)
    assert layer.tangent_info.residual.shape == (2, 2)
    assert_close(jvp(lambda w: vmap(layer, (None, 0))(X, w), (weights,), (directions,))[1], true)


def test_a_derivative_under_vmap_evaluates_f_once():
    calls = []

    def counted(z, x, W):
        calls.append(None)
        return cell(z, x, W)

    layer = EquilibriumLayer(counted)
    layer(X, W)
    forward = len(calls)
    for jacobian in (jacrev, jacfwd):
        calls.clear()
        jacobian(layer, 1)(X, W)
        assert len(calls) <= forward + 3


def pair(z, x, W):
    return {"a": torch.tanh(z["b"] @ W + x), "b": 0.5 * z["a"].sin()[:, :1].expand(-1, 2) + x}


def test_a_state_of_several_tensors():
    layer = EquilibriumLayer(pair, state_shape={"a": 2, "b": 2})

    def solved(x, W):
        z = layer(x, W)
        return z["a"] * z["b"]

    def true(x, W):
        z = {"a": x, "b": x}
        for _ in range(40):
            z = pair(z, x, W)
        return z["a"] * z["b"]

    x = X[:1]
    for transform in (
        lambda f: jvp(f, (x, W), (DX[:1], DW))[1],
        lambda f: jacfwd(f, 1)(x, W),
        lambda f: hessian(lambda W: f(x, W).sum())(W),
        lambda f: vmap(lambda w: jvp(lambda x: f(x, w), (x,), (DX[:1],))[1])(torch.stack([W, -W])),
    ):
        assert_close(transform(solved), transform(true), 1e-9)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")  # by torch itself
def test_linearize_and_recorded_graphs():
    layer = EquilibriumLayer(cell)
    value, tangent = torch.func.linearize(layer, X, W)
    assert_close(value, unrolled(X, W))
    for directions in ((DX, DW), (2.0 * DX, -DW)):
        assert_close(tangent(*directions), jvp(unrolled, (X, W), directions)[1])
    batch = vmap(tangent)(torch.stack([DX, 2.0 * DX]), torch.stack([DW, -DW]))
    assert_close(batch[1], tangent(2.0 * DX, -DW))
    gradient = torch.func.grad(lambda W: layer(X, W).pow(3).sum())
    assert_close(torch.func.linearize(gradient, W)[1](DW), jvp(gradient, (W,), (DW,))[1])
    graph = make_fx(layer)(X, W)
    assert_close(graph(X + 1.0, 0.5 * W), unrolled(X + 1.0, 0.5 * W))


@pytest.mark.parametrize("grad_mode", [True, False])
def test_dual_tensors(grad_mode):
    with forward_ad.dual_level(), torch.set_grad_enabled(grad_mode):
        x, w = forward_ad.make_dual(X, DX), forward_ad.make_dual(W, DW)
        got = forward_ad.unpack_dual(EquilibriumLayer(cell)(x, w)).tangent
        captured = forward_ad.unpack_dual(EquilibriumLayer(lambda z, x: cell(z, x, w))(X)).tangent
    assert_close(got, jvp(unrolled, (X, W), (DX, DW))[1])
    assert_close(captured, jvp(lambda w: unrolled(X, w), (W,), (DW,))[1])


def test_solve_has_no_tangent():
    layer = EquilibriumLayer(cell)
    with forward_ad.dual_level():
        z = layer.solve(forward_ad.make_dual(X, DX), W).z
        assert forward_ad.unpack_dual(z).tangent is None
    assert not jvp(lambda x: layer.solve(x, W).z, (X,), (DX,))[1].any()
    assert layer.tangent_info is None


def test_reverse_mode_over_and_under_dual_tensors():
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()

    def over(solve):
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(solve(forward_ad.make_dual(x, DX), w)).tangent
            return torch.autograd.grad(tangent.square().sum(), (x, w))

    def under(solve, create_graph):
        with forward_ad.dual_level():
            value = solve(forward_ad.make_dual(x, DX), w).pow(3).sum()
            grads = torch.autograd.grad(value, (x, w), create_graph=create_graph)
            return [forward_ad.unpack_dual(g).tangent for g in grads]

    for got, true in zip(over(EquilibriumLayer(cell)), over(unrolled), strict=True):
        assert_close(got, true, 1e-9)
    for create_graph in (True, False):
        for got, true in zip(under(EquilibriumLayer(cell), create_graph), under(unrolled, False), strict=True):
            assert_close(got, true, 1e-9)


def test_gradcheck_in_both_modes():
    inputs = (X[:1].clone().requires_grad_(), W.clone().requires_grad_())
    layer = EquilibriumLayer(cell)
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(layer, inputs, check_forward_ad=True, fast_mode=True, rtol=1e-5)
    assert torch.autograd.gradgradcheck(
        layer, inputs, check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=True, rtol=1e-5
    )


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)
        self.register_buffer("rows", torch.tensor([1, 0]))

    def forward(self, z, x):
        return torch.tanh(0.4 * self.linear(z) + x[self.rows])


def test_parameters_of_a_module():
    torch.manual_seed(0)
    layer = EquilibriumLayer(Cell())
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def solved(parameters):
        return functional_call(layer, parameters, (X,))

    forward, reverse = jacfwd(solved)(parameters), jacrev(solved)(parameters)
    for name in parameters:
        assert_close(forward[name], reverse[name])


def test_captured_tensors_and_nested_layers():
    def captured(W):
        return EquilibriumLayer(lambda z, x: cell(z, x, W))(X)

    assert_close(jacfwd(captured)(W), jacfwd(lambda W: unrolled(X, W))(W))

    inner = EquilibriumLayer(lambda y, z, x: torch.tanh(0.1 * y + 0.4 * z + x))
    outer = EquilibriumLayer(lambda z, x: 0.1 * inner(z.flip(-1), x))
    x, dx, h = X[:1], DX[:1], 1e-5
    gradient = torch.func.grad(lambda x: outer(x).pow(3).sum())
    moved = (gradient(x + h * dx) - gradient(x - h * dx)) / (2 * h)
    assert_close(jvp(gradient, (x,), (dx,))[1], moved, 1e-8)
    assert_close(jvp(outer, (x,), (dx,))[1], (outer(x + h * dx) - outer(x - h * dx)) / (2 * h), 1e-8)


def test_a_solve_that_does_not_converge_is_reported():
    def layer(on_failure):
        return EquilibriumLayer(
            lambda z, x: 0.9 * z + x, tolerance=0.5, max_iterations=30, solver="plain", on_failure=on_failure
        )

    with pytest.raises(EquilibriumError, match=r"the solve of forward mode .* did not converge") as error:
        jvp(layer("raise"), (X,), (X,))
    assert bool(error.value.info.failed.all())
    with pytest.warns(EquilibriumWarning, match="the derivative would be wrong"):
        jvp(layer("warn"), (X,), (X,))
    silent = layer("return")
    jvp(silent, (X,), (X,))
    assert silent.info.converged and not silent.tangent_info.converged


class Silent(torch.autograd.Function):
    """A backward that gradients do not pass."""

    @staticmethod
    def forward(ctx, z):
        return 0.5 * z

    @staticmethod
    def backward(ctx, v):
        return torch.from_numpy(0.5 * v.detach().numpy())


class Once(Silent):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v):
        return 0.5 * v


def attention(z):  # its fused kernel has no second derivative
    return 0.5 * torch.nn.functional.scaled_dot_product_attention(z[None, None], z[None, None], z[None, None])[0, 0]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Silent.apply, "does not let gradients through"),
        (Once.apply, "does not let gradients through"),
        (attention, "does not allow .*is not implemented"),
    ],
)
def test_an_operation_without_a_second_derivative_is_an_error(operation, message):
    x = 0.1 * X[None, :].requires_grad_()
    layer = EquilibriumLayer(lambda z, x: torch.stack([operation(s) for s in z]) + x)
    h = torch.full_like(x, 1e-6)
    (gradient,) = torch.autograd.grad(layer(x).sum(), x)
    assert_close((gradient * h).sum(), (layer(x + h) - layer(x - h)).sum() / 2, 1e-9)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match=message):
        layer(forward_ad.make_dual(x.detach(), h))
