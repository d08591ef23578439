"""EquilibriumLayer with cells in float16 and bfloat16, by autocast and by their own dtype."""

import copy

import pytest
import torch
from torch import nn

from surefoot._equilibrium.failures import EquilibriumError
from surefoot._equilibrium.layer import EquilibriumLayer
from surefoot._equilibrium.solver.fixed_point import SolveStatus

HALF = [torch.bfloat16, torch.float16]
UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SIZE = 32


class Cell(nn.Module):
    """tanh(Wz + Ux) with ‖W‖ ≤ norm."""

    def __init__(self, norm, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.W, self.U = nn.Linear(SIZE, SIZE, bias=False), nn.Linear(SIZE, SIZE)
        with torch.no_grad():
            for layer in (self.W, self.U):
                layer.weight.copy_(torch.randn(SIZE, SIZE, generator=generator) / SIZE**0.5)
            self.W.weight.mul_(norm / torch.linalg.matrix_norm(self.W.weight, 2))
            self.U.bias.zero_()

    def forward(self, z, x):
        return torch.tanh(self.W(z) + self.U(x))


def inputs(seed=7):
    return torch.randn(6, SIZE, generator=torch.Generator().manual_seed(seed))


def arranged(norm, dtype, how):
    """Cell, x and the context, and the float64 cell with the same numbers."""
    cell, x = Cell(norm), inputs()
    if how == "own dtype":
        cell, x = cell.to(dtype), x.to(dtype)
    reference = copy.deepcopy(cell).double()
    return cell, x, torch.autocast("cpu", dtype=dtype, enabled=how == "autocast"), reference


def unroll(cell, x, count=150):
    z = torch.zeros_like(x)
    for _ in range(count):
        z = cell(z, x)
    return z


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("how", ["autocast", "own dtype"])
@pytest.mark.parametrize(("norm", "given"), [(0.3, True), (0.3, False), (0.8, True), (0.8, False), (0.9, True)])
def test_values_gradients_and_bounds(dtype, how, norm, given):
    cell, x, context, reference = arranged(norm, dtype, how)
    unit = UNIT[dtype]
    layer = EquilibriumLayer(cell, contraction=1.01 * norm if given else None)
    x = x.requires_grad_()
    with context:
        z = layer(x)
    assert z.dtype is x.dtype
    info = layer.info
    exact_x = x.detach().double().requires_grad_()
    true = unroll(reference, exact_x)
    error, size = (z.detach().double() - true.detach()).norm(dim=1), true.detach().norm(dim=1)
    assert (error <= info.error_bound).all()
    assert float((error / size).max()) <= 3 * unit  # seen: 1.5
    # the bound is what the precision allows, 4 u / (1 - q), and what the last step left
    assert float((info.error_bound / size).max()) <= 1.5 * 4 * unit / (1 - info.contraction)
    assert info.rounding_limited

    v = torch.randn(6, SIZE, generator=torch.Generator().manual_seed(3))
    # outside of the context, as users do
    (z.float() * v).sum().backward()
    (true * v.double()).sum().backward()
    assert layer.backward_info.converged
    leaves = [(x, exact_x), *zip(cell.parameters(), reference.parameters(), strict=True)]
    for leaf, exact in leaves:
        assert leaf.grad.dtype is leaf.dtype
        assert float((leaf.grad.double() - exact.grad).norm() / exact.grad.norm()) <= 3 * unit  # seen: 1.5


@pytest.mark.parametrize("how", ["autocast", "own dtype"])
def test_double_backward(how):
    cell, x, context, reference = arranged(0.5, torch.bfloat16, how)
    layer = EquilibriumLayer(cell, contraction=0.51)

    def second(solve, parameters, x):
        leaves = list(parameters)
        first = torch.autograd.grad(solve(x).double().pow(3).sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.double().pow(2).sum() for g in first), leaves)

    with context:
        got = second(layer, cell.parameters(), x)
    true = second(lambda x: unroll(reference, x, 60), reference.parameters(), x.double())
    for a, b in zip(got, true, strict=True):
        assert float((a.double() - b).norm() / b.norm()) <= 0.03  # seen: 0.013


def test_the_context_of_the_forward_holds_in_the_backward():
    cell = Cell(0.5)
    seen = []
    cell.W.register_forward_hook(lambda module, inputs, value: seen.append(value.dtype))
    layer = EquilibriumLayer(cell)
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer(inputs()).square().sum()
    assert set(seen) == {torch.bfloat16}
    seen.clear()
    loss.backward()
    assert set(seen) == {torch.bfloat16}

    seen.clear()
    loss = layer(inputs()).square().sum()
    with torch.autocast("cpu", torch.bfloat16):
        loss.backward()
    assert set(seen) == {torch.float32}
    assert torch.is_autocast_enabled("cpu") is False


def test_weights_keep_their_gradient_after_a_solve_without():
    # the cache of autocast would hold a cast without a graph
    cell = Cell(0.5)
    layer = EquilibriumLayer(cell)
    with torch.autocast("cpu", torch.bfloat16):
        layer.solve(inputs())
        layer(inputs()).sum().backward()
        assert cell.W.weight.grad.any() and cell.U.weight.grad.any()
        cell.zero_grad()
        (cell.W(inputs()).sum() + cell.U(inputs()).sum()).backward()
    assert cell.W.weight.grad.any() and cell.U.weight.grad.any()


def test_autocast_leaves_float64_alone():
    cell = Cell(0.5).double()
    layer = EquilibriumLayer(cell)
    x = inputs().double()
    with torch.autocast("cpu", torch.bfloat16):
        z = layer(x)
    assert torch.equal(z, layer(x))
    assert not layer.info.rounding_limited


def test_a_state_of_several_tensors():
    cell, x, _, reference = arranged(0.5, torch.bfloat16, "own dtype")

    def f(z, x, cell=cell):
        return {"a": cell(z["a"], x), "b": 0.5 * z["b"] + z["a"].mean(1, keepdim=True)}

    layer = EquilibriumLayer(f, state_shape={"a": SIZE, "b": 1}, contraction=0.9)
    z = layer(x)
    assert z["a"].dtype is z["b"].dtype is torch.bfloat16
    true = {"a": torch.zeros(6, SIZE).double(), "b": torch.zeros(6, 1).double()}
    for _ in range(100):
        true = f(true, x.double(), reference)
    error = sum((z[key].double() - true[key]).square().sum(1) for key in "ab").sqrt()
    assert (error <= layer.info.error_bound).all()
    assert float(error.detach().max()) <= 0.05 * float(true["a"].detach().norm(dim=1).max())


def test_dropout_and_batch_norm_under_autocast():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE), nn.Dropout(0.3))

        def forward(self, z, x):
            return 0.1 * torch.tanh(self.net(z)) + x

    layer = EquilibriumLayer(Net())
    with torch.autocast("cpu", torch.bfloat16):
        z = layer(inputs())
    z.sum().backward()
    assert int(layer.f.net[1].num_batches_tracked) == 1
    assert layer.info.converged and layer.backward_info.converged


def test_a_wanted_tolerance_and_what_cannot_be_reached():
    cell, x, context, _ = arranged(0.9, torch.bfloat16, "autocast")
    with context:
        layer = EquilibriumLayer(cell, contraction=0.9, tolerance=0.4)
        layer(x)
        assert not layer.info.rounding_limited
        layer = EquilibriumLayer(cell, contraction=0.9, tolerance=1e-3)
        with pytest.raises(EquilibriumError, match="rounding stopped the iteration above the tolerance"):
            layer(x)
    slow = EquilibriumLayer(Cell(0.98).bfloat16(), contraction=0.98)
    with pytest.raises(EquilibriumError, match="rounding stopped the iteration"):
        slow(inputs().bfloat16())
    assert slow.info.status is SolveStatus.MAX_ITERATIONS


def test_a_divergent_map_is_no_rounding():
    for dtype, how in zip(HALF, ("not seen to contract", "NaN or infinity"), strict=True):  # float16 overflows first
        with pytest.raises(EquilibriumError, match=how):
            EquilibriumLayer(lambda z, x: 1.2 * z + x)(inputs().to(dtype))


def test_overflow_in_a_float16_backward_is_left_to_the_scaler():
    cell, x, _, _ = arranged(0.5, torch.float16, "own dtype")
    layer = EquilibriumLayer(cell)
    x = x.requires_grad_()
    v = torch.ones(6, SIZE)
    v[2] = float("inf")
    (layer(x).float() * v).sum().backward()
    assert layer.backward_info.status is SolveStatus.NON_FINITE
    assert x.grad.isfinite().all(1).tolist() == [True, True, False, True, True, True]
    assert not any(p.grad.isfinite().all() for p in cell.parameters())
    with pytest.raises(EquilibriumError, match="NaN or infinity"):
        layer(float("nan") * x)


def test_values_of_another_dtype_are_named():
    def inside(z, x):
        with torch.autocast("cpu", torch.bfloat16):
            return 0.1 * z @ torch.eye(SIZE) + 0.0 * x.bfloat16()

    with pytest.raises(TypeError, match=r"has dtype bfloat16 but z has float32; .* put autocast around the layer"):
        EquilibriumLayer(inside)(inputs())
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match="has dtype float64 but z has float32"):
        EquilibriumLayer(lambda z, x: 0.5 * z.double() + x)(inputs())
    with pytest.raises(TypeError, match=r"z0\[1\] has dtype bfloat16 but z0\[0\] has float32"):
        EquilibriumLayer(lambda z: z)(z0=(inputs(), inputs().bfloat16()))


def test_transforms():
    cell, x, _, reference = arranged(0.3, torch.bfloat16, "own dtype")
    layer = EquilibriumLayer(cell, contraction=0.31)
    got = torch.func.grad(lambda x: layer(x).float().pow(2).sum())(x)
    true = torch.func.grad(lambda x: unroll(reference, x, 60).pow(2).sum())(x.double())
    got, true = got.detach(), true.detach()
    assert got.dtype is torch.bfloat16
    assert float((got.double() - true).norm() / true.norm()) <= 20 * UNIT[torch.bfloat16]
    assert torch.vmap(layer)(x.expand(2, 6, SIZE)).dtype is torch.bfloat16
    assert layer.info.error_bound.shape == (2, 6)
