"""Contractions with a proved factor: no pair of states refutes it, it is attained, and what has no constant is refused."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import surefoot as sf
from surefoot.nn import EquilibriumInference, EquilibriumLayer, NotCertifiable, contractive, lipschitz_bound

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Map(nn.Module):
    """A module of a function of z, x, and of weights by name."""

    def __init__(self, function, **weights):
        super().__init__()
        self.function = function
        for name, weight in weights.items():
            if isinstance(weight, nn.Module):
                setattr(self, name, weight)
            else:
                setattr(self, name, nn.Parameter(weight))

    def forward(self, z, *x, **kwargs):
        return self.function(self, z, *x, **kwargs)


def slope(f, z, *x):
    """‖∂f/∂z‖ of each sample, the largest; z (batch, *state)."""
    found = [torch.autograd.functional.jacobian(lambda state: f(state, *x), sample[None]) for sample in z]
    return float(torch.linalg.matrix_norm(torch.stack([J.reshape(-1, z[0].numel()) for J in found]), 2).detach().max())


def steepest(f, shape, *x, seed=0):
    """The largest slope at states of many sizes, zero among them."""
    sizes = torch.tensor([0.0, 1e-3, 0.3, 1.0, 3.0, 30.0], dtype=torch.float64)
    states = draw(6, *shape, seed=seed) * sizes.reshape(-1, *[1] * len(shape))
    return slope(f, states, *x)


# name: the function of the module and z, the shape of a sample, and whether the constant is attained (to 1 %)
OPERATIONS = {
    "tanh": (lambda m, z: torch.tanh(z), (3,), True),
    "sigmoid": (lambda m, z: z.sigmoid(), (3,), True),
    "relu": (lambda m, z: F.relu(z + 0.0, inplace=True), (3,), True),
    "silu": (lambda m, z: F.silu(z + torch.linspace(-3, 3, 40)), (40,), True),
    "gelu": (lambda m, z: F.gelu(z + torch.linspace(-3, 3, 40)), (40,), True),
    "elu": (lambda m, z: F.elu(z, 1.5), (3,), False),
    "leaky relu": (lambda m, z: F.leaky_relu(z, -2.0), (3,), True),
    "softplus": (lambda m, z: F.softplus(z, threshold=40), (3,), True),
    "hardtanh": (lambda m, z: F.hardtanh(z, -0.5, 2.0), (3,), True),
    "relu6": (lambda m, z: F.relu6(z), (3,), True),
    "hardsigmoid": (lambda m, z: F.hardsigmoid(z), (3,), True),
    "softsign": (lambda m, z: F.softsign(z), (3,), True),
    "logsigmoid": (lambda m, z: F.logsigmoid(z), (3,), True),
    "tanhshrink": (lambda m, z: F.tanhshrink(z), (3,), True),
    "softshrink": (lambda m, z: F.softshrink(z), (3,), True),
    "selu": (lambda m, z: F.selu(z - 1e-6), (3,), True),
    "sin, cos, atan, asinh": (lambda m, z: z.sin() + z.cos() + z.atan() + z.asinh(), (3,), False),
    "abs, neg, erf": (lambda m, z: (-z).abs() + z.erf(), (3,), False),
    "prelu": (lambda m, z: F.prelu(z, m.a), (4, 2), True),
    "clamp": (lambda m, z: z.clamp(-1.0, 1.0), (3,), True),
    "clamp by another": (lambda m, z: torch.clamp(z, max=0.5 * z + 1.0), (3,), False),
    "sum": (lambda m, z: z + torch.tanh(z), (3,), True),
    "difference": (lambda m, z: 2.0 - z - torch.sub(1.0 * z, z, alpha=-3.0), (3,), True),
    "broadcast sum": (lambda m, z: z[:, :1] + m.a, (3,), True),
    "product": (lambda m, z: z * m.a[:3], (3,), True),
    "broadcast product": (lambda m, z: z[:, :1] * torch.ones_like(m.a), (3,), True),
    "quotient": (lambda m, z: z / (2.0 + m.a[:3].abs()), (3,), True),
    "maximum": (lambda m, z: torch.maximum(z, m.a[:3]), (3,), True),
    "maximum of two": (lambda m, z: torch.maximum(z, -z), (3,), False),
    "where": (lambda m, z: torch.where(m.a[:3] > 0.0, z, 2.0 * z), (3,), False),
    "masked fill": (lambda m, z: z.masked_fill(m.a[:3] > m.a[0], 1.0), (3,), True),
    "boolean mask": (lambda m, z: z * (m.a[:3] < m.a[0] + 0.1), (3,), True),
    "lerp": (lambda m, z: torch.lerp(z, torch.tanh(z), 0.3), (3,), True),
    "linear": (lambda m, z: F.linear(z, m.W, m.a[:5]), (4,), True),
    "z @ W": (lambda m, z: z @ m.W.mT, (2, 4), True),
    "W @ z": (lambda m, z: m.W @ z, (4, 2), True),
    "z @ w": (lambda m, z: (z @ m.W[0])[..., None], (4,), True),
    "conv1d": (lambda m, z: F.conv1d(z, m.k1, padding=2), (2, 24), False),
    "conv2d": (lambda m, z: F.conv2d(z, m.k2, m.a[:2], padding=1), (2, 6, 6), False),
    "strided conv2d": (lambda m, z: F.conv2d(z, m.k2, stride=2, padding=1), (2, 6, 6), False),
    "dilated conv2d": (lambda m, z: F.conv2d(z, m.k2, dilation=2, padding="same"), (2, 6, 6), False),
    "grouped conv2d": (lambda m, z: F.conv2d(z, m.k2[:, :1], groups=2), (2, 6, 6), False),
    "transposed conv2d": (lambda m, z: F.conv_transpose2d(z, m.k2, stride=2, output_padding=1), (2, 4, 4), False),
    "a torus": (lambda m, z: F.conv1d(F.pad(z, (1, 2), mode="circular"), m.k1), (2, 40), True),
    "a torus with steps": (lambda m, z: F.conv1d(F.pad(z, (1, 2), mode="circular"), m.k1, stride=2), (2, 40), True),
    "an odd torus with steps": (
        lambda m, z: F.conv1d(F.pad(z, (1, 2), mode="circular"), m.k1, stride=2),
        (2, 9),
        False,
    ),
    "more than a torus": (lambda m, z: F.conv1d(F.pad(z, (4, 4), mode="circular"), m.k1), (2, 5), False),
    "pad zeros": (lambda m, z: F.pad(z, (1, 2)), (3,), True),
    "pad around": (lambda m, z: F.pad(z, (3, 3), mode="circular"), (1, 3), True),
    "pad reflect": (lambda m, z: F.pad(z, (2, 2), mode="reflect"), (1, 3), True),
    "pad replicate": (lambda m, z: F.pad(z, (2, 1), mode="replicate"), (1, 3), True),
    "max pool": (lambda m, z: F.max_pool2d(z, 2), (1, 4, 4), True),
    "overlapping max pool": (lambda m, z: F.max_pool1d(z, 3, 1, 1), (1, 7), False),
    "average pool": (lambda m, z: F.avg_pool2d(z, 2), (1, 4, 4), True),
    "overlapping average pool": (lambda m, z: F.avg_pool1d(z, 3, 1), (1, 40), True),
    "upsampling": (lambda m, z: F.interpolate(z, scale_factor=2), (1, 3, 3), True),
    "batch norm": (lambda m, z: m.bn(z), (3, 2), True),
    "layer norm": (lambda m, z: F.layer_norm(z, (4,), m.a[:4], eps=1.0), (4,), False),
    "group norm": (lambda m, z: F.group_norm(z, 2, eps=0.5), (4, 2), True),
    "softmax": (lambda m, z: z.softmax(-1), (2,), True),
    "dropout": (lambda m, z: F.dropout(z, 0.5, training=False), (3,), True),
    "views": (
        lambda m, z: z.flatten(1).unflatten(1, (3, 2)).transpose(1, 2).permute(0, 2, 1).reshape(len(z), -1),
        (2, 3),
        True,
    ),
    "casts": (lambda m, z: z.to(torch.float64).contiguous().clone(), (3,), True),
    "expand": (lambda m, z: z.unsqueeze(2).expand(-1, -1, 4), (3,), True),
    "repeat": (lambda m, z: z.repeat(1, 3), (3,), True),
    "repeat each": (lambda m, z: z.repeat_interleave(2, 1), (3,), True),
    "shapes of another": (lambda m, z: z[:, :1].expand_as(z).type_as(z).reshape_as(z), (3,), True),
    "dropout of training": (lambda m, z: F.dropout(z, 0.5), (20,), True),
    "parts": (lambda m, z: torch.cat([*z.chunk(3, 1), z[:, 1:2], z[..., :1]], 1), (3,), False),
    "stack": (lambda m, z: torch.stack([z, 2.0 * z], 1), (3,), True),
    "flip and roll": (lambda m, z: z.flip(1).roll(1, 1), (3,), True),
    "reductions": (lambda m, z: torch.stack([z.sum(1), torch.mean(input=z, dim=1)], 1), (4,), True),
    "extremes": (lambda m, z: torch.stack([z.amax(1), torch.logsumexp(z, 1)], 1), (4,), False),
    "constants of the shape": (lambda m, z: z + torch.ones_like(z) * z.shape[1] + z.new_zeros(z.shape), (3,), True),
    "independent": (lambda m, z: torch.zeros_like(z) + m.a[:3], (3,), None),
}


def operations(name):
    function, shape, tight = OPERATIONS[name]
    bn = nn.BatchNorm1d(3).double().eval()
    with torch.no_grad():
        bn.weight.copy_(torch.tensor([1.0, -2.0, 0.5]))
        bn.running_var.copy_(torch.tensor([0.1, 0.5, 2.0]))
    m = Map(
        function, a=draw(40, seed=1), W=draw(5, 4, seed=2), k1=draw(2, 2, 4, seed=3), k2=draw(2, 2, 3, 3, seed=4), bn=bn
    )
    if name in ("prelu",):
        m.a = nn.Parameter(torch.tensor([0.1, -1.5, 2.0, 0.3], dtype=torch.float64))
    return m, shape, tight


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_constant_of_an_operation(name):
    f, shape, tight = operations(name)
    bound = float(lipschitz_bound(f, torch.zeros(2, *shape, dtype=torch.float64)).detach())
    found = max(steepest(f, shape, seed=seed) for seed in range(3))
    assert found <= bound * (1.0 + 1e-9)
    if tight is None:
        assert bound == 0.0
    elif tight:
        assert found >= 0.97 * bound


class Plain(nn.Module):
    """tanh(W z + U x)"""

    def __init__(self, size=6, inputs=3, dtype=torch.float64):
        super().__init__()
        self.W = nn.Linear(size, size, bias=False, dtype=dtype)
        self.U = nn.Linear(inputs, size, dtype=dtype)
        with torch.no_grad():
            self.W.weight.copy_(draw(size, size, seed=5, dtype=dtype))

    def forward(self, z, x):
        return torch.tanh(self.W(z) + self.U(x))


class Deep(nn.Module):
    """A residual cell of two layers."""

    def __init__(self, size=5):
        super().__init__()
        self.inner = sf.nn.Residual(nn.Linear(size, 8), nn.GELU(), nn.Linear(8, size)).double()
        self.out = nn.Linear(size, size).double()

    def forward(self, z, x):
        return self.out(F.silu(self.inner(z) + x)) + 0.3 * z


class Maps(nn.Module):
    """A convolutional cell with a torus, a frozen batch norm, pooling and upsampling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm2d(3)
        self.second = nn.ConvTranspose2d(3, 2, 2, stride=2)
        self.double().eval()

    def forward(self, z, x):
        h = F.relu(self.norm(self.first(z)), inplace=True)
        return torch.tanh(self.second(F.avg_pool2d(h, 2)) + F.interpolate(F.max_pool2d(z, 2), scale_factor=2) + x)


CELLS = {"plain": (Plain, (6,), (3,)), "deep": (Deep, (5,), (5,)), "maps": (Maps, (2, 4, 4), (2, 4, 4))}


@pytest.mark.parametrize(
    ("name", "size"), [("plain", 1e-150), *((name, size) for name in CELLS for size in (1.0, 1e3))]
)
def test_training_against_the_factor_finds_no_violation(name, size):
    """Gradient ascent on the ratio, over two states and all weights."""
    make, shape, inputs = CELLS[name]
    torch.manual_seed(0)
    f = contractive(make(), 0.8)
    with torch.no_grad():
        for parameter in f.parameters():
            parameter.mul_(size)
    x = draw(4, *inputs, seed=7)
    a, b = (draw(4, *shape, seed=seed).requires_grad_() for seed in (8, 9))
    optimizer = torch.optim.Adam([{"params": [a, b], "lr": 0.1}, {"params": f.parameters(), "lr": 0.03 * size}])
    best = 0.0
    for _ in range(20):
        optimizer.zero_grad()
        ratio = (f(a, x) - f(b, x)).flatten(1).norm(dim=1) / (a - b).flatten(1).norm(dim=1)
        best = max(best, float(ratio.detach().max()))
        (-ratio.clamp(min=1e-300).log().sum()).backward()
        optimizer.step()
    assert best <= 0.8 * (1.0 + 1e-9)
    if name == "plain" and size == 1.0:
        assert best >= 0.5  # the ascent gets somewhere


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_factor_of_a_plain_cell_is_attained(dtype):
    f, x = contractive(Plain(dtype=dtype), 0.9), torch.zeros(1, 3, dtype=dtype)
    with torch.no_grad():
        f.module.U.bias.zero_()
    found = slope(f, torch.zeros(1, 6, dtype=dtype), x)
    assert 0.9 * 0.99 <= found <= 0.9 * (1.0 + (1e-12 if dtype == torch.float64 else 1e-6))


def test_a_contraction_is_left_as_it_is():
    f, z, x = Plain(), draw(2, 6), draw(2, 3)
    with torch.no_grad():
        f.W.weight.mul_(0.5 / torch.linalg.matrix_norm(f.W.weight, 2))
    assert torch.equal(contractive(f, 0.9)(z, x), f(z, x))
    assert float(contractive(f, 0.9).scale(z, x).detach()) == 1.0


def test_weights_of_zero_and_nan():
    f, z, x = contractive(Plain(), 0.9), draw(2, 6), draw(2, 3)
    with torch.no_grad():
        f.module.W.weight.zero_()
    value = f(z, x)
    value.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in f.parameters())
    with torch.no_grad():
        f.module.W.weight[0, 0] = torch.nan
    layer = EquilibriumLayer(f, state_shape=6, on_failure="return")
    assert layer.solve(x).info.status is sf.nn.SolveStatus.NON_FINITE


# In a layer


def test_the_layer_takes_the_factor_and_guarantees_its_bounds():
    layer = EquilibriumLayer(contractive(Plain(), 0.9), state_shape=6)
    x = draw(4, 3).requires_grad_()
    layer(x).square().sum().backward()
    for info in (layer.info, layer.backward_info):
        assert info.guaranteed
        assert info.contraction == 0.9
        assert info.converged
    z, info = layer.solve(x)
    exact = z
    with torch.no_grad():
        for _ in range(400):
            exact = layer.f(exact, x)
    assert ((z - exact).norm(dim=1) <= info.error_bound).all()
    assert EquilibriumLayer(layer.f, contraction=0.95).contraction == 0.95


def test_the_constant_is_proved_once_a_solve(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "surefoot._equilibrium.contractive.lipschitz_bound", lambda *a, **k: calls.append(1) or lipschitz_bound(*a, **k)
    )
    layer = EquilibriumLayer(contractive(Plain(), 0.9), state_shape=6)
    layer(draw(4, 3)).sum().backward()
    assert len(calls) == 1
    assert layer.info.iterations > 5
    x = draw(4, 3)
    scale = layer.f.scale(draw(4, 6), x)
    assert torch.equal(layer(x, state_scale=scale), layer(x))
    half = 0.5 * scale.detach()
    (z, *_), found = EquilibriumInference(layer.eval())(x, state_scale=half), layer(x, state_scale=half)
    assert torch.allclose(z, found, rtol=1e-9) and not torch.allclose(z, layer(x), rtol=1e-2)
    assert len(calls) == 4


def loss(layer, x):
    return lambda W: torch.func.functional_call(layer, {"f.module.W.weight": W}, (x,)).pow(3).sum()


def test_derivatives_through_the_layer():
    layer = EquilibriumLayer(contractive(Plain(size=3), 0.9), state_shape=3)
    of_weight = loss(layer, draw(2, 3))
    W = layer.f.module.W.weight.detach().clone()
    assert torch.autograd.gradcheck(of_weight, W.requires_grad_(), atol=1e-6)
    W = W.detach()
    gradient, step = torch.func.grad(of_weight), 1e-5 * draw(3, 3, seed=3)
    assert torch.allclose(torch.func.jacfwd(of_weight)(W), gradient(W), rtol=1e-8)
    along = torch.func.jvp(gradient, (W,), (step / 1e-5,))[1]
    assert torch.allclose(along, (gradient(W + step) - gradient(W - step)) / 2e-5, rtol=1e-5, atol=1e-7)
    both = torch.vmap(of_weight)(torch.stack([W, 0.1 * W]))
    assert torch.allclose(both, torch.stack([of_weight(W), of_weight(0.1 * W)]), rtol=1e-10)


def test_training_and_copies():
    layer = EquilibriumLayer(contractive(Plain(dtype=torch.float32), 0.9), state_shape=6)
    x = draw(8, 3, dtype=torch.float32)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        value = (layer(x) - 0.3).square().mean()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
        assert layer.info.guaranteed
    assert losses[-1] < 0.7 * losses[0]
    other = EquilibriumLayer(contractive(Plain(dtype=torch.float32), 0.9), state_shape=6)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert set(contractive(Plain()).state_dict()) == {f"module.{name}" for name in Plain().state_dict()}


def test_a_state_of_several_tensors():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Linear(4, 3), nn.Linear(3, 4)
            self.double()

        def forward(self, z, x):
            fine, coarse = z["fine"], z["coarse"]
            return {"fine": torch.tanh(self.up(coarse) + 0.5 * fine + x), "coarse": torch.tanh(self.down(fine))}

    torch.manual_seed(0)
    f = contractive(Two(), 0.9)
    with torch.no_grad():
        for parameter in f.parameters():
            parameter.mul_(5.0)
    layer = EquilibriumLayer(f, state_shape={"fine": 4, "coarse": 3})
    x = draw(3, 4)
    assert layer.solve(x).info.guaranteed

    def of(vector):
        value = f({"fine": vector[None, :4], "coarse": vector[None, 4:]}, torch.zeros(1, 4, dtype=torch.float64))
        return torch.cat([value["fine"][0], value["coarse"][0]])

    with torch.no_grad():
        for parameter in (f.module.up.bias, f.module.down.bias):
            parameter.zero_()
    J = torch.func.jacrev(of)(torch.zeros(7, dtype=torch.float64))
    assert 0.8 <= float(torch.linalg.matrix_norm(J, 2).detach()) <= 0.9 * (1.0 + 1e-9)


def test_keyword_arguments_and_what_depends_on_x_alone():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.W, self.inputs = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
            self.double()

        def forward(self, z, x, *, shift):
            return self.W(z) + self.inputs(x) * x / (1.0 + x.square()) + shift

    f = contractive(Gated(), 0.9)
    z, x = draw(4, 3), draw(4, 3)
    before = copy.deepcopy(f.module.inputs[1].running_mean)
    f.scale(z, x, shift=1.0)
    assert torch.equal(before, f.module.inputs[1].running_mean)
    f.eval()
    assert EquilibriumLayer(f).solve(x, shift=draw(4, 3)).info.guaranteed


def test_the_scale_does_not_depend_on_the_batch():
    f = contractive(Maps(), 0.9)
    one, other = draw(1, 2, 4, 4), draw(7, 2, 4, 4, seed=1)
    assert torch.equal(f.scale(one, one), f.scale(other, 1e6 * other))


def test_dropout_in_training_counts():
    f = Map(lambda m, z: F.dropout(z, 0.75, m.training))
    z = draw(2, 3)
    assert float(lipschitz_bound(f, z)) == pytest.approx(4.0, rel=1e-8)
    assert float(lipschitz_bound(f.eval(), z)) == pytest.approx(1.0, rel=1e-8)


def test_a_contraction_inside_another_map():
    f = Map(lambda m, z, x: 0.5 * m.inner(z, x), inner=contractive(Plain(), 0.9))
    assert float(lipschitz_bound(f, draw(2, 6), draw(2, 3)).detach()) == pytest.approx(0.45, rel=1e-6)


# What is refused


class Escape(torch.autograd.Function):
    """Gives a tensor by a way that no operation of torch shows."""

    @staticmethod
    def forward(ctx, z):
        return torch.Tensor._make_subclass(torch.Tensor, z)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def hidden(h, other=None):
    with torch._C.DisableTorchFunction():
        return h.mul_(5.0) if other is None else h.copy_(other)


ELSEWHERE = torch.ones(3, dtype=torch.float64)
REFUSED = {
    "two factors": (lambda m, z, x: z * z, "multiplies two tensors that depend on z"),
    "two matrices": (lambda m, z, x: z.unsqueeze(1) @ z.unsqueeze(2), "multiplies two tensors that depend on z"),
    "power": (lambda m, z, x: z**2, "pow"),
    "root": (lambda m, z, x: z.abs().sqrt(), "sqrt"),
    "a divisor": (lambda m, z, x: 1.0 / (1.0 + z.abs()), "z"),
    "a factor of x": (lambda m, z, x: z * x, "depends on x"),
    "weights of x": (lambda m, z, x: F.linear(z, x), "depends on x"),
    "a branch": (lambda m, z, x: z if z.sum() > 0 else -z, "mixes the leading dimensions"),
    "an entry": (lambda m, z, x: z * z[0, 0].item(), "mixes the leading dimensions"),
    "a comparison": (lambda m, z, x: torch.where(z > 0, z, 0.0), "gt"),
    "a coarser dtype": (lambda m, z, x: z.float().double(), "rounds a tensor that depends on z to torch.float32"),
    "a coarser sum": (lambda m, z, x: z.sum(1, keepdim=True, dtype=torch.float32), "rounds a tensor that depends on z"),
    "a coarser softmax": (lambda m, z, x: torch.softmax(z, 1, dtype=torch.bfloat16), "bfloat16"),
    "integers": (lambda m, z, x: z.to(torch.int64).double(), "int64"),
    "rounding": (lambda m, z, x: z.round(), "round"),
    "bits": (lambda m, z, x: z.view(torch.int64).double(), "bits"),
    "numpy": (lambda m, z, x: torch.from_numpy(z.detach().numpy()), "numpy"),
    "data": (lambda m, z, x: z.data, "data"),
    "a place": (lambda m, z, x: torch.zeros_like(z).copy_(z), "copy_"),
    "an assignment": (lambda m, z, x: torch.zeros(3).double().__setitem__(0, z[0, 0]), "z"),
    "in place": (lambda m, z, x: (2.0 * z).add_(1.0), "add_"),
    "in place with a slope": (lambda m, z, x: F.leaky_relu(2.0 * z, -3.0, inplace=True), "inplace=False"),
    "out": (lambda m, z, x: torch.add(z, 1.0, out=torch.empty(2, 3).double()), "add"),
    "a hidden tensor": (lambda m, z, x: z + ELSEWHERE, "register it as a buffer"),
    "a hidden change": (lambda m, z, x: hidden(torch.tanh(z)), "changed in place"),
    "a hidden copy": (lambda m, z, x: hidden(torch.zeros_like(z), z), "changed in place"),
    "a hidden way": (lambda m, z, x: Escape.apply(z), "register it as a buffer"),
    "samples summed": (lambda m, z, x: z + z.sum(0, keepdim=True), "batch_dims=0"),
    "samples exchanged": (lambda m, z, x: z[[1, 0]], "may repeat entries"),
    "samples reversed": (lambda m, z, x: z.flip(0), "batch_dims=0"),
    "samples multiplied": (lambda m, z, x: m.S @ z, "batch_dims=0"),
    "samples transposed": (lambda m, z, x: z[:, :2].T, "batch_dims=0"),
    "samples reshaped": (lambda m, z, x: z.reshape(3, 2), "batch_dims=0"),
    "samples broadcast": (lambda m, z, x: z[:, :2] + z[:, 0], "batch_dims=0"),
    "samples as channels": (lambda m, z, x: F.conv1d(z, m.k), "batch_dims=0"),
    "samples in a row": (lambda m, z, x: z.roll(1, []), "batch_dims=0"),
    "samples rolled": (lambda m, z, x: z.roll(1), "batch_dims=0"),
    "batch norm": (lambda m, z, x: F.batch_norm(z, None, None, training=True), "eval mode"),
    "layer norm": (lambda m, z, x: F.layer_norm(z, (3,)), "eps=1"),
    "approximate gelu": (lambda m, z, x: F.gelu(z, approximate="tanh"), "approximate='none'"),
    "jumping softplus": (lambda m, z, x: F.softplus(z), "threshold=40"),
    "a torus cropped first": (lambda m, z, x: F.pad(z, (2, -1), mode="circular"), "negative padding"),
    "bilinear": (lambda m, z, x: F.interpolate(z[:, None], scale_factor=2, mode="linear")[:, 0], "nearest"),
    "a setting": (lambda m, z, x: torch.add(z, z, alpha=z.shape[0] * z[0, 0]), "z"),
    "a number between": (lambda m, z, x: torch.add(z, 5.0, z), "alpha by its name"),
    "a filled value": (lambda m, z, x: torch.full_like(z, z[:, 0].sum()), "batch_dims=0"),
    "attention": (
        lambda m, z, x: F.scaled_dot_product_attention(z[:, None], z[:, None], z[:, None])[:, 0],
        "attention",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    function, words = REFUSED[name]
    f = Map(function, S=draw(2, 2), k=draw(2, 2, 1))
    with pytest.raises(NotCertifiable, match=words):
        lipschitz_bound(
            f, torch.zeros(2, 3, dtype=torch.float64), draw(3, 3)[:2] if name != "weights of x" else draw(3, 3)
        )


ONE_SAMPLE = {
    "mean over an axis": (lambda z: z.mean(axis=0), 3**-0.5),
    "sum over none, which is all": (lambda z: z.sum([]), 6**0.5),
    "difference from a multiple": (lambda z: torch.rsub(z, z, alpha=3), 4.0),
}


@pytest.mark.parametrize("name", ONE_SAMPLE)
def test_other_names_and_forms_of_arguments(name):
    function, constant = ONE_SAMPLE[name]
    bound = lipschitz_bound(Map(lambda m, z: function(z)), draw(3, 2), batch_dims=0)
    assert float(bound) == pytest.approx(constant, rel=1e-8)


def test_views_of_what_changed_in_place_go_on():
    def f(m, z):
        h = torch.tanh(z)
        first, second = h.chunk(2, 1)
        F.relu(first, inplace=True)
        b = torch.zeros(4, dtype=torch.float64)
        half = b[:2]
        b.add_(1.0)
        return torch.cat([first * half, second], 1) + h * b

    assert lipschitz_bound(Map(f), draw(2, 4)).item() == pytest.approx(1.0 + 2.0**0.5, rel=1e-8)


def test_each_place_of_a_tensor_counts():
    f = Map(lambda m, z: F.layer_norm(z, (3,), None, z, 1.0))
    with pytest.raises(NotCertifiable, match="setting"):
        lipschitz_bound(f, draw(3), batch_dims=0)
    twice = Map(lambda m, z: F.linear(z, m.W, z), W=torch.eye(3, dtype=torch.float64))
    assert lipschitz_bound(twice, draw(2, 3)).item() == pytest.approx(2.0, rel=1e-8)


def test_autocast_does_not_round_the_constant_of_a_convolution():
    f, z = nn.Conv2d(3, 3, 3, padding=1), torch.ones(2, 3, 5, 5)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = lipschitz_bound(f, z)
    assert torch.equal(rounded, lipschitz_bound(f, z))


def test_autocast_inside_rounds_more_than_the_state():
    def inside(m, z):
        with torch.autocast("cpu", torch.bfloat16):
            return z @ m.W

    f, z = Map(inside, W=torch.eye(3)), torch.ones(2, 3)
    with pytest.raises(NotCertifiable, match="bfloat16"):
        lipschitz_bound(f, z)
    with torch.autocast("cpu", torch.bfloat16):  # of which the solve knows
        assert lipschitz_bound(f, z).item() == pytest.approx(1.0, rel=1e-8)


def test_one_sample_may_do_what_samples_may_not():
    f = Map(lambda m, z: m.S @ z + z.T.reshape(2, 3).flip(0), S=draw(2, 2))
    z = torch.zeros(2, 3, dtype=torch.float64)
    bound = float(lipschitz_bound(f, z, batch_dims=0).detach())
    J = torch.func.jacrev(f)(z).reshape(6, 6)
    assert float(torch.linalg.matrix_norm(J.detach(), 2)) <= bound
    assert bound == pytest.approx(float(torch.linalg.matrix_norm(f.S.detach(), 2)) + 1.0, rel=1e-6)


def test_a_spectral_norm_in_training_is_that_of_the_next_evaluation():
    torch.manual_seed(0)
    inner = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6).double())
    f, z = Map(lambda m, z: m.inner(z), inner=inner), draw(2, 6)
    bound = float(lipschitz_bound(f, z).detach())
    used = f.inner.weight  # the next power iteration
    assert float(torch.linalg.matrix_norm(used.detach(), 2)) == pytest.approx(bound, rel=1e-6)


def test_masks_on_weights_are_those_of_the_next_evaluation():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(draw(6, 6))

        def forward(self, z, x):
            return torch.tanh(F.linear(z, F.dropout(self.W, 0.8)) + x + 0.1 * torch.randn_like(z))

    f, x = contractive(Masked(), 0.9), draw(3, 6)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    f.scale(x, x)
    assert torch.equal(before, torch.get_rng_state())
    for seed in range(20):
        torch.manual_seed(seed)
        scale = f.scale(x, x).detach()
        mask = F.dropout(f.module.W.detach(), 0.8)
        assert float(scale * torch.linalg.matrix_norm(mask, 2)) <= 0.9
    layer = EquilibriumLayer(f)
    layer(x).sum().backward()
    assert layer.info.guaranteed
    assert layer.backward_info.guaranteed


def test_parametrized_weights():
    f = Map(lambda m, z: m.inner(z), inner=nn.utils.parametrizations.orthogonal(nn.Linear(3, 3).double()))
    assert float(lipschitz_bound(f, draw(2, 3)).detach()) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((lambda z: z,), TypeError, "module is a function"),
        ((nn.Linear(2, 2), 1.0), ValueError, "below 1"),
        ((nn.Linear(2, 2), 0.0), ValueError, "contraction"),
        ((nn.Linear(2, 2), math.nan), ValueError, "contraction"),
        ((nn.Linear(2, 2), "0.9"), TypeError, "contraction"),
    ],
)
def test_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        contractive(*arguments)


def test_arguments_of_batch_dims_and_states():
    with pytest.raises(ValueError, match="batch_dims"):
        contractive(nn.Linear(2, 2), batch_dims=-1)
    with pytest.raises(ValueError, match=r"contractive\(\.\.\., batch_dims=2\)"):
        EquilibriumLayer(contractive(nn.Linear(2, 2)), batch_dims=2)
    with pytest.raises(TypeError, match="pass a module"):
        lipschitz_bound(torch.tanh, draw(2, 2))
    with pytest.raises(TypeError, match="z is"):
        lipschitz_bound(nn.Identity(), "z")
    with pytest.raises(NotCertifiable, match="must return a tensor"):
        lipschitz_bound(Map(lambda m, z: None), draw(2, 2))
