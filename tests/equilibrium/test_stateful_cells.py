"""EquilibriumLayer with dropout, noise, batch norm and other modules that draw, or change their buffers, in forward."""

import copy
import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from surefoot._equilibrium.failures import EquilibriumError
from surefoot._equilibrium.layer import EquilibriumLayer
from surefoot._equilibrium.warm_start import WarmStart

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

D = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


X, IMAGES = draw(6, 4), draw(6, 4, 5)


class Cell(nn.Module):
    """scale tanh(net(z)) + x."""

    def __init__(self, *layers, scale=0.3):
        super().__init__()
        self.net = nn.Sequential(*layers)
        self.scale = scale

    def forward(self, z, x):
        return self.scale * torch.tanh(self.net(z)) + x


class Average(nn.Module):
    """With a mean of its own that follows z, in place or by assignment, and that no first evaluation at 0 shows."""

    def __init__(self, in_place):
        super().__init__()
        self.linear = linear()
        self.in_place = in_place
        self.register_buffer("mean", torch.zeros(4, dtype=D))

    def forward(self, z, x):
        value = 0.3 * torch.tanh(self.linear(z) - self.mean) + x
        if self.in_place:
            self.mean.mul_(0.9).add_(z.detach().mean(0), alpha=0.1)
        else:
            self.mean = 0.9 * self.mean + 0.1 * z.detach().mean(0)
        return value


class Raw(nn.Module):
    """Running statistics without a module of torch's."""

    def __init__(self):
        super().__init__()
        self.linear = linear()
        self.register_buffer("mean", torch.zeros(4, dtype=D))
        self.register_buffer("variance", torch.ones(4, dtype=D))

    def forward(self, z, x):
        return 0.1 * F.batch_norm(self.linear(z), self.mean, self.variance, training=True) + x


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = linear()

    def forward(self, z, x):
        return 0.3 * torch.tanh(self.linear(z) + torch.randn_like(z)) + F.dropout(x, 0.25)


def linear():
    return nn.Linear(4, 4, dtype=D)


def seeded(make):
    torch.manual_seed(0)
    return make()


CELLS = {
    "dropout": lambda: Cell(linear(), nn.Dropout(0.5)),
    "alpha dropout": lambda: Cell(nn.AlphaDropout(0.2), linear()),
    "noise": Noise,
    "batch norm": lambda: Cell(linear(), nn.BatchNorm1d(4, dtype=D), scale=0.1),
    # its mean of z0 = 0 is what it was
    "batch norm first": lambda: Cell(nn.BatchNorm1d(4, dtype=D), linear(), scale=0.1),
    "cumulative batch norm": lambda: Cell(linear(), nn.BatchNorm1d(4, momentum=None, dtype=D), scale=0.1),
    "batch norm without statistics": lambda: Cell(
        linear(), nn.BatchNorm1d(4, track_running_stats=False, dtype=D), scale=0.1
    ),
    "raw batch norm": Raw,
    "batch norm and dropout": lambda: Cell(linear(), nn.BatchNorm1d(4, dtype=D), nn.Dropout(0.3), scale=0.1),
    "spectral norm": lambda: Cell(parametrizations.spectral_norm(linear()), scale=0.8),
    "average in place": lambda: Average(True),
    "average by assignment": lambda: Average(False),
    "weight norm": lambda: Cell(parametrizations.weight_norm(linear())),
    "layer norm": lambda: Cell(linear(), nn.LayerNorm(4, dtype=D), scale=0.1),
    "group norm": lambda: Cell(linear(), nn.GroupNorm(2, 4, dtype=D), scale=0.1),
}
IMAGE_CELLS = {
    "instance norm": lambda: Cell(nn.InstanceNorm1d(4, affine=True, track_running_stats=True, dtype=D), scale=0.1),
    "convolution": lambda: Cell(nn.Conv1d(4, 4, 3, padding=1, dtype=D), nn.BatchNorm1d(4, dtype=D), scale=0.1),
    "dropout of channels": lambda: Cell(nn.Conv1d(4, 4, 3, padding=1, dtype=D), nn.Dropout1d(0.5), scale=0.3),
}
COUPLED = {"batch norm", "batch norm first", "cumulative batch norm", "batch norm without statistics", "raw batch norm"}
COUPLED |= {"batch norm and dropout", "convolution"}


def once(cell, seed):
    """The map with its buffers and its random numbers held fixed; those after an evaluation at z."""
    parameters, buffers = dict(cell.named_parameters()), dict(cell.named_buffers())

    def f(z, x):
        held = {**parameters, **{name: buffer.clone() for name, buffer in buffers.items()}}
        torch.manual_seed(seed)
        value = functional_call(cell, held, (z, x))
        return value, {name: held[name] for name in buffers}

    return f


def assert_close(got, true, tolerance=1e-10):
    for a, b in itertools.zip_longest(got, true):
        assert float((a - b).detach().abs().max()) <= tolerance * max(1.0, float(b.detach().abs().max()))


@pytest.mark.parametrize("name", [*CELLS, *IMAGE_CELLS])
def test_one_map_for_forward_backward_and_double_backward_and_one_update(name):
    x = IMAGES if name in IMAGE_CELLS else X
    cell = seeded((CELLS | IMAGE_CELLS)[name])
    reference = copy.deepcopy(cell)
    f = once(reference, seed=5)
    layer = EquilibriumLayer(cell)
    torch.manual_seed(5)
    x = x.clone().requires_grad_()
    z = layer(x)
    after = torch.get_rng_state()
    found = {key: buffer.clone() for key, buffer in cell.named_buffers()}
    leaves = [x, *cell.parameters()]
    first = torch.autograd.grad(z.pow(3).sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), leaves)
    assert torch.equal(torch.get_rng_state(), after)
    assert_close(dict(cell.named_buffers()).values(), found.values(), 0.0)

    leaves = [x, *reference.parameters()]
    unrolled = torch.zeros_like(x)
    for _ in range(70):
        unrolled, _ = f(unrolled, x)
    assert torch.equal(torch.get_rng_state(), after)
    assert_close([z], [unrolled])
    true = torch.autograd.grad(unrolled.pow(3).sum(), leaves, create_graph=True)
    assert_close(first, true)
    assert_close(second, torch.autograd.grad(sum(g.pow(2).sum() for g in true), leaves), 1e-8)
    with torch.no_grad():
        updated = f(z, x)[1]
    assert_close(found.values(), updated.values(), 1e-15)
    assert layer.info.error_bound.shape == (() if name in COUPLED else (6,))
    assert layer.backward_info.error_bound.shape == layer.info.error_bound.shape


@pytest.mark.parametrize("name", ["dropout", "batch norm and dropout", "spectral norm", "average by assignment"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(name, mode):
    cells = [seeded(CELLS[name]) for _ in range(2)]
    found = []
    for cell, context in zip(cells, (torch.enable_grad, mode), strict=True):
        torch.manual_seed(5)
        with context():
            found.append(EquilibriumLayer(cell)(X))
    assert torch.equal(*found)
    assert_close(*([b.clone() for b in cell.buffers()] for cell in cells), 0.0)


@pytest.mark.parametrize("name", ["dropout", "batch norm", "spectral norm"])
def test_eval_changes_and_draws_nothing(name):
    cell = seeded(CELLS[name]).eval()
    before, state = [b.clone() for b in cell.buffers()], torch.get_rng_state()
    layer = EquilibriumLayer(cell)
    z = layer(X)
    assert torch.equal(layer(X), z)
    assert layer.info.error_bound.shape == (6,)
    assert torch.equal(torch.get_rng_state(), state)
    assert_close(cell.buffers(), before, 0.0)


@pytest.mark.parametrize("name", ["dropout", "batch norm"])
def test_a_backward_is_that_of_the_forward_after_eval(name):
    layer = EquilibriumLayer(seeded(CELLS[name]))
    x = X.clone().requires_grad_()
    loss = layer(x).pow(3).sum()
    (true,) = torch.autograd.grad(loss, x, retain_graph=True)
    layer.eval()
    (got,) = torch.autograd.grad(loss, x)
    assert torch.equal(got, true)
    assert not any(module.training for module in layer.modules())


def test_what_a_graph_holds_can_be_offloaded():
    cell = seeded(CELLS["batch norm"])
    stored = []

    def pack(tensor):
        stored.append(tensor.detach().clone())
        return len(stored) - 1

    x = X.clone().requires_grad_()
    made = 2.0 * x
    alive = weakref.ref(made)
    with torch.autograd.graph.saved_tensors_hooks(
        pack, lambda i: stored[i].requires_grad_(stored[i].is_floating_point())
    ):
        z = EquilibriumLayer(cell)(made)
    del made
    assert alive() is None
    assert z.requires_grad


def test_masks_differ_from_call_to_call_and_two_calls_share_a_graph():
    cell = seeded(CELLS["batch norm and dropout"])
    reference = copy.deepcopy(cell)
    layer = EquilibriumLayer(cell)
    torch.manual_seed(1)
    a = layer(X)
    state = torch.get_rng_state()
    b = layer(X)
    assert float((a - b).detach().abs().max()) > 1e-3
    assert int(cell.net[1].num_batches_tracked) == 2
    got = torch.autograd.grad((a * b).sum(), list(cell.parameters()))

    unrolled = []
    for seed in (1, None):
        f = once(reference, 1)
        z = torch.zeros_like(X)
        for _ in range(40):
            if seed is None:
                torch.set_rng_state(state)
                held = {**dict(reference.named_parameters()), **{k: v.clone() for k, v in reference.named_buffers()}}
                z = functional_call(reference, held, (z, X))
            else:
                z, _ = f(z, X)
        unrolled.append(z)
    true = torch.autograd.grad((unrolled[0] * unrolled[1]).sum(), list(reference.parameters()))
    assert_close(got, true)


def test_the_bound_of_a_batch_norm_is_one_of_the_batch():
    x = draw(6, 4) * torch.logspace(-1, 1, 6, dtype=D)[:, None]
    cell = seeded(CELLS["batch norm"])
    layer = EquilibriumLayer(cell, tolerance=1e-4, contraction=0.5, solver="plain")
    z, info = layer.solve(x)
    true = torch.zeros_like(x)
    with torch.no_grad():
        for _ in range(60):
            true = cell(true, x)
    assert info.converged
    assert info.error_bound.shape == info.failed.shape == ()
    assert 1e-9 < float((z - true).norm()) <= float(info.error_bound) <= 1e-4 * float(z.norm())


def test_a_batch_norm_that_does_not_contract_updates_nothing():
    cell = seeded(lambda: Cell(linear(), nn.BatchNorm1d(4, dtype=D), scale=30.0))
    before = [b.clone() for b in cell.buffers()]
    with pytest.raises(EquilibriumError):
        EquilibriumLayer(cell)(X)
    assert_close(cell.buffers(), before, 0.0)


def test_transforms():
    layer = EquilibriumLayer(seeded(CELLS["dropout"]))

    def seeded_grad(f):
        torch.manual_seed(3)
        return f(X)

    true = seeded_grad(lambda x: torch.autograd.grad(layer(x := x.clone().requires_grad_()).pow(3).sum(), x)[0])
    assert_close([seeded_grad(torch.func.grad(lambda x: layer(x).pow(3).sum()))], [true])
    assert_close([seeded_grad(lambda x: torch.func.vjp(layer, x)[1](3.0 * layer_at(layer, x) ** 2)[0])], [true])
    columns = torch.func.jacfwd(lambda x: layer(x).pow(3).sum(), randomness="same")
    rows = torch.func.jacrev(lambda x: layer(x).pow(3).sum(), chunk_size=1)
    assert_close([seeded_grad(columns), seeded_grad(rows)], [true, true])
    copies = X.expand(3, 6, 4)
    with pytest.raises(RuntimeError, match="random operation while in randomness error mode"):
        torch.vmap(layer)(copies)
    same = torch.vmap(layer, randomness="same")(copies)
    assert_close(same[1:], same[:2], 0.0)
    different = torch.vmap(layer, randomness="different")(copies)
    assert float((different[1:] - different[:2]).detach().abs().min(0).values.max()) > 1e-3
    per_copy = torch.func.grad(lambda x: layer(x).pow(2).sum())
    torch.manual_seed(4)
    grads = torch.vmap(per_copy, randomness="different")(copies)
    torch.manual_seed(4)
    x = copies.clone().requires_grad_()
    assert_close([grads], torch.autograd.grad(torch.vmap(layer, randomness="different")(x).pow(2).sum(), x))


def layer_at(layer, x):
    state = torch.get_rng_state()
    torch.manual_seed(3)
    z = layer(x).detach()
    torch.set_rng_state(state)
    return z


def test_an_ensemble_with_batch_norm_by_vmap():
    layers = [EquilibriumLayer(Cell(linear(), nn.BatchNorm1d(4, dtype=D), scale=0.1)) for _ in range(2)]
    singles = [copy.deepcopy(layer) for layer in layers]
    parameters, buffers = torch.func.stack_module_state(layers)
    z = torch.vmap(lambda p, b: functional_call(layers[0], (p, b), (X,)))(parameters, buffers)
    assert layers[0].info.error_bound.shape == (2,)
    assert_close(z, [single(X) for single in singles])
    for name, stacked in buffers.items():
        assert_close(stacked, [dict(single.named_buffers())[name] for single in singles])


def test_forward_mode_with_batch_norm_and_dropout():
    layer = EquilibriumLayer(seeded(CELLS["batch norm and dropout"]))
    dx, h = draw(6, 4, seed=9), 1e-6

    def at(x):
        torch.manual_seed(2)
        return layer(x)

    with torch.autograd.forward_ad.dual_level():
        tangent = torch.autograd.forward_ad.unpack_dual(at(torch.autograd.forward_ad.make_dual(X, dx))).tangent
    assert int(layer.f.net[1].num_batches_tracked) == 1
    assert_close([tangent], [(at(X + h * dx) - at(X - h * dx)) / (2 * h)], 1e-7)


def test_nested_layers():
    inner = EquilibriumLayer(seeded(CELLS["batch norm and dropout"]))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, z, x):
            return 0.3 * self.inner(x + 0.2 * z)

    layer = EquilibriumLayer(Outer())
    torch.manual_seed(1)
    x = X.clone().requires_grad_()
    z = layer(x)
    (got,) = torch.autograd.grad(z.sum(), x)
    assert int(inner.f.net[1].num_batches_tracked) == 1

    def unrolled():
        value = torch.zeros_like(x)
        for _ in range(25):
            torch.manual_seed(1)
            value = 0.3 * inner(x + 0.2 * value)
        return value

    assert_close([z], [unrolled()])
    assert_close([got], torch.autograd.grad(unrolled().sum(), x))


def test_warm_starts_of_a_batch_norm():
    layer, warm = EquilibriumLayer(seeded(CELLS["batch norm"])), WarmStart(6)
    z = layer(X, memory=warm[:])
    cold = layer.info.iterations
    z.sum().backward()
    layer(X, memory=warm[:]).sum().backward()
    assert layer.info.iterations < cold


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
def test_hooks_are_honoured():
    cell = seeded(CELLS["dropout"])
    calls = {"before": 0, "after": 0, "backward": 0}

    def count(name, value=None):
        calls[name] += 1
        return value

    cell.net[0].register_forward_pre_hook(lambda module, inputs: count("before"))
    cell.net[0].register_forward_hook(lambda module, inputs, value: count("after", 0.5 * value))
    cell.net[0].register_full_backward_hook(lambda module, inputs, outputs: count("backward"))
    layer = EquilibriumLayer(cell.eval())
    z = layer(X)
    halved = 0.3 * torch.tanh(0.5 * (z @ cell.net[0].weight.T + cell.net[0].bias)) + X
    assert_close([z], [halved])
    z.sum().backward()
    assert calls["before"] == calls["after"] > layer.info.iterations
    assert calls["backward"] >= layer.backward_info.iterations


def test_threads_share_a_layer_with_dropout():
    layer = EquilibriumLayer(seeded(CELLS["dropout"]))

    def work(_):
        layer(X).sum().backward()
        return float(layer.solve(X).info.residual.max())

    with ThreadPoolExecutor(3) as pool:
        assert max(pool.map(work, range(9))) < 1e-9


@pytest.mark.parametrize("grad", [True, False])
def test_a_function_that_changes_what_it_captures_is_refused(grad):
    norm = nn.BatchNorm1d(4, dtype=D)
    mean, variance = torch.zeros(4, dtype=D), torch.ones(4, dtype=D)
    counter = torch.zeros(())
    functions = [
        lambda z, x: 0.1 * norm(z) + x,
        lambda z, x: 0.1 * F.batch_norm(z, mean, variance, training=True) + x,
        lambda z, x: counter.add_(1) * 0.0 + 0.1 * z + x,
    ]
    for f in functions:
        with torch.set_grad_enabled(grad), pytest.raises(ValueError, match="that it captures"):
            EquilibriumLayer(f)(X)
    norm.eval()
    EquilibriumLayer(functions[0])(X)


def test_what_f_captures_and_changes_before_the_backward_is_an_error():
    factor = torch.tensor(0.5, dtype=D)
    x = X.clone().requires_grad_()
    z = EquilibriumLayer(lambda z, x: factor * torch.tanh(z) + x)(x)
    factor.mul_(0.5)
    with pytest.raises(RuntimeError, match="that f captures was changed"):
        z.sum().backward()


def test_a_buffer_that_changes_and_requires_grad_is_refused():
    layer = EquilibriumLayer(seeded(CELLS["average in place"]))
    buffers = {"f.mean": torch.ones(4, dtype=D, requires_grad=True)}
    with pytest.raises((ValueError, RuntimeError), match="mean of f requires grad, but f changes it"):
        functional_call(layer, buffers, (X,))


def test_draws_that_depend_on_z_are_refused():
    def f(z, x):
        for _ in range(int(z.abs().sum() * 1e3) % 7):
            torch.rand(())
        return 0.5 * z + x + 0.0 * torch.rand(())

    with pytest.raises(RuntimeError, match="draws more or fewer random numbers than at first"):
        EquilibriumLayer(f)(X)


def test_numbers_drawn_in_another_thread_meanwhile_do_not_matter():
    calls = itertools.count()

    def f(z, x):
        if next(calls) in (0, 1, 2):  # as another thread might
            torch.rand(3 + next(calls))
        return 0.5 * z + x

    assert_close([EquilibriumLayer(f)(X)], [2.0 * X], 1e-11)


def test_ranks_that_would_wait_for_each_other_are_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    layer = EquilibriumLayer(seeded(lambda: Cell(linear(), nn.SyncBatchNorm(4, dtype=D))))
    with pytest.raises(ValueError, match="SyncBatchNorm in training mode"):
        layer(X)
    layer.eval()(X)
