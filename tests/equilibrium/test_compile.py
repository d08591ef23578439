"""Layers in compiled graphs, and compiled cells in layers."""

import copy
import gc

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from surefoot._equilibrium.failures import EquilibriumError
from surefoot._equilibrium.graphs import compiled
from surefoot._equilibrium.layer import EquilibriumLayer
from surefoot._equilibrium.warm_start import WarmStart

# torch says it once a process, of a tensor that its compiler looks at
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    # the compiler's own use, where it is imported first
    pytest.mark.filterwarnings("ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning"),
]
SIZE = 4


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Cell(nn.Module):
    def __init__(self, norm=0.6, seed=1) -> None:
        super().__init__()
        W = draw(SIZE, SIZE, seed=seed)
        self.W = nn.Parameter(norm * W / torch.linalg.matrix_norm(W, 2))
        self.register_buffer("shift", draw(SIZE, seed=2))

    def forward(self, z: Tensor, x: Tensor, scale=1.0, mask: Tensor | None = None) -> Tensor:
        value = torch.tanh(scale * (z @ self.W) + x + self.shift)
        return value if mask is None else value * mask


class Two(nn.Module):
    """A state of two tensors, dropout, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.A = nn.Parameter(0.2 * draw(SIZE, SIZE, seed=3))
        self.drop, self.norm = nn.Dropout(0.3), nn.BatchNorm1d(SIZE, affine=False).double()

    def forward(self, z, x):
        fine, coarse = z
        return torch.tanh(self.drop(coarse @ self.A) + self.norm(x)), torch.tanh(fine @ self.A.T + x)


class Model(nn.Module):
    def __init__(self, f, **options) -> None:
        super().__init__()
        self.before, self.layer = nn.Linear(SIZE, SIZE).double(), EquilibriumLayer(f, **options)

    def forward(self, x, **arguments):
        z = self.layer(self.before(x).relu(), **arguments)
        return z if isinstance(z, Tensor) else torch.cat(z, 1)


X, OTHER = draw(3, SIZE), draw(5, SIZE, seed=4)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)


def compiled_of(model, backend="eager", **options):
    return torch.compile(model, backend=backend, fullgraph=True, **options)


def gradients(model, *calls):
    """Of a loss of these calls, all of them before the backward."""
    parameters = list(model.parameters())
    torch.manual_seed(1)
    loss = sum((i + 1) * call().pow(2).sum() for i, call in enumerate(calls))
    return torch.autograd.grad(loss, parameters)


def assert_equal(got, true):
    for a, b in zip(got, true, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_model_is_one_graph_with_the_same_values_and_gradients(backend):
    model = Model(Cell())
    fast = compiled_of(model, backend)
    true = gradients(model, lambda: model(X), lambda: model(OTHER))
    records = model.layer.info.iterations, model.layer.backward_info.iterations
    got = gradients(model, lambda: fast(X), lambda: fast(OTHER))
    for a, b in zip(got, true, strict=True):
        assert float((a - b).abs().max()) <= (1e-11 if backend == "inductor" else 0.0)  # inductor rounds otherwise
    assert (model.layer.info.iterations, model.layer.backward_info.iterations) == records
    with torch.no_grad():
        assert float((fast(X) - model(X)).abs().max()) < 1e-12
    assert not counters["graph_break"]
    graphs = counters["stats"]["unique_graphs"]
    with torch.no_grad():
        model.layer.f.W.mul_(1.3)  # more iterations, in the same graph
    fast(X)
    assert counters["stats"]["unique_graphs"] == graphs


def test_arguments_of_all_kinds():
    model = Model(Cell())
    fast = compiled_of(model)
    mask = draw(SIZE, seed=5).sign().requires_grad_()
    for arguments in ({"scale": 0.5}, {"scale": 0.7}, {"scale": 1, "mask": mask}, {"z0": draw(3, SIZE, seed=6)}):
        value, true = fast(X, **arguments), model(X, **arguments)
        assert torch.equal(value, true)
        if "mask" in arguments:
            assert_equal(torch.autograd.grad(value.sum(), mask), torch.autograd.grad(true.sum(), mask))
    assert not counters["graph_break"]


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_several_tensors_dropout_and_running_statistics(backend):
    model = Model(Two(), state_shape=((SIZE,), (SIZE,)))
    other = copy.deepcopy(model)
    true = gradients(model, lambda: model(X))
    fast = compiled_of(other, backend)
    got = gradients(other, lambda: fast(X))
    for a, b in zip(got, true, strict=True):
        assert float((a - b).abs().max()) < 1e-10
    assert float((other.layer.f.norm.running_mean - model.layer.f.norm.running_mean).abs().max()) < 1e-12
    assert float(other.layer.f.norm.running_mean.abs().max()) > 0.0
    assert int(other.layer.f.norm.num_batches_tracked) == 1


def test_failures_raise_as_ever():
    class Doubling(nn.Module):
        def forward(self, z, x):
            return 2.0 * z + x

    with pytest.raises(EquilibriumError, match="not seen to contract"):
        compiled_of(Model(Doubling()))(X)
    model = Model(Cell(), max_iterations=3, on_failure="return")
    compiled_of(model)(X)
    assert not model.layer.info.converged
    hidden = Cell()
    hidden.held = (draw(SIZE).requires_grad_(),)  # no parameter
    hidden.forward = lambda z, x: torch.tanh(0.5 * z + x * hidden.held[0])
    with pytest.raises(RuntimeError, match="compiled graph would lose"):
        compiled_of(Model(hidden))(X)


def test_a_graph_breaks_where_the_layer_cannot_be_an_operation():
    W = draw(SIZE, SIZE).mul(0.1).requires_grad_()
    model = Model(lambda z, x: torch.tanh(z @ W + x))
    fast = torch.compile(model, backend="eager")
    assert_equal(torch.autograd.grad(fast(X).sum(), W), torch.autograd.grad(model(X).sum(), W))
    assert len(counters["graph_break"]) == 1
    torch._dynamo.reset()
    with pytest.raises(Exception, match="only where f is a module"):
        compiled_of(model)(X)
    warm, model = WarmStart(3), Model(Cell())
    fast = torch.compile(model, backend="eager")
    for _ in range(2):
        fast(X, memory=warm[:])
    assert model.layer.info.iterations <= 3


def test_a_record_is_read_after_the_solve():
    layer = EquilibriumLayer(Cell())

    def f(x):
        z = layer(x * 1.0)
        return z, layer.info

    layer(OTHER)
    _, info = torch.compile(f, backend="eager")(X)
    assert info is layer.info
    assert info.error_bound.shape == (3,)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="read it outside"):
        torch.compile(f, backend="eager", fullgraph=True)(X)


def test_a_copy_is_another_layer():
    first = EquilibriumLayer(Cell())
    second = copy.deepcopy(first)
    with torch.no_grad():
        second.f.W.mul_(0.5)

    def call(layer, x):
        return layer(x * 1.0)

    fast = torch.compile(call, backend="eager", fullgraph=True)
    for layer in (first, second, first):
        layer._records.clear()
        assert torch.equal(fast(layer, X), layer.solve(X).z)
    fast(second, OTHER)
    assert second.info.error_bound.shape == (5,)
    assert first.info.error_bound.shape == (3,)


def test_what_a_backward_needs_is_kept_as_long_as_it_may_come():
    model = Model(Cell())
    fast = compiled_of(model)
    gc.collect()
    before = set(compiled._GRAPHS)  # of errors that are still looked at
    loss = fast(X).sum()
    assert len(compiled._GRAPHS) == len(before) + 1
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    assert_equal(torch.autograd.grad(loss, list(model.parameters()), retain_graph=True), first)
    del loss
    gc.collect()
    assert set(compiled._GRAPHS) == before
    fast = compiled_of(model, "aot_eager")
    for _ in range(2):
        fast(X).sum().backward()
    gc.collect()
    assert set(compiled._GRAPHS) == before


def test_a_compiled_cell_is_compiled():
    cell = Cell()
    x = X.clone().requires_grad_()
    layer, plain = EquilibriumLayer(torch.compile(cell, backend="aot_eager")), EquilibriumLayer(cell)
    for _ in range(2):
        got = torch.autograd.grad(layer(x).pow(2).sum(), (x, cell.W))
        true = torch.autograd.grad(plain(x).pow(2).sum(), (x, cell.W))
        for a, b in zip(got, true, strict=True):
            assert float((a - b).abs().max()) < 1e-11
    assert counters["stats"]["unique_graphs"] >= 1
    assert not counters["graph_break"]
    graphs = counters["stats"]["unique_graphs"]
    layer(x * 2.0)
    assert counters["stats"]["unique_graphs"] == graphs


def test_a_compiled_function_keeps_the_gradients_of_what_it_captures():
    w = draw(SIZE).mul(0.1).requires_grad_()

    def f(z, x):
        return torch.tanh(w * z + x)

    got = torch.autograd.grad(EquilibriumLayer(torch.compile(f, backend="eager"))(X).sum(), w, create_graph=True)
    true = torch.autograd.grad(EquilibriumLayer(f)(X).sum(), w, create_graph=True)
    assert float((got[0] - true[0]).detach().abs().max()) < 1e-11
    second = (torch.autograd.grad(g.sum(), w)[0] for g in (got[0], true[0]))
    a, b = second
    assert float((a - b).abs().max()) < 1e-10
