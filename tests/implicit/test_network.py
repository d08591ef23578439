"""The network: constructors, forward map, derivatives of every order, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

import surefoot as sf
from surefoot._equilibrium.failures import EquilibriumError
from surefoot._implicit.equilibrium import EquilibriumStatus
from surefoot._implicit.network import ImplicitReLU, NotWellPosed
from surefoot._implicit.solvers import SolverMemory

F32, F64 = torch.float32, torch.float64

with (Path(__file__).resolve().parents[1] / "cases" / "implicit_relu.json").open() as _file:
    CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.load(_file)["cases"]}
BACKWARD = [name for name, case in CASES.items() if case["kind"] == "forward_backward"]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def random_network(
    seed: int = 0, d: int = 3, m: int = 6, p: int | None = 2, gamma: float = 0.8, **kw: Any
) -> ImplicitReLU:
    A = normal(seed + 1, m, m)
    b = normal(seed + 2, m) if p is None else normal(seed + 2, m, p)
    return ImplicitReLU(normal(seed, d, m), A / torch.linalg.matrix_norm(A, 2), b, gamma, **kw)


def of_case(name: str) -> tuple[ImplicitReLU, Tensor, Tensor]:
    inputs = CASES[name]["inputs"]
    X, y, W = (torch.tensor(inputs[key], dtype=F64) for key in ("X", "y", "W"))
    m = W.shape[1]
    A = torch.eye(m, dtype=F64) if inputs["A"] == "identity" else torch.tensor(inputs["A"], dtype=F64)
    b = torch.zeros(m, dtype=F64) if inputs["b"] == "zeros" else torch.tensor(inputs["b"], dtype=F64)
    return ImplicitReLU(W, A, b, inputs["gamma"]), X, y


def loss(net: ImplicitReLU, X: Tensor, Y: Tensor) -> Tensor:
    return 0.5 * (net(X) - Y).square().sum()


def gradients(net: ImplicitReLU) -> dict[str, Tensor]:
    found = {name: parameter.grad for name, parameter in net.named_parameters()}
    return {name: gradient.clone() for name, gradient in found.items() if gradient is not None}


@pytest.mark.parametrize("name", BACKWARD)
def test_forward_and_backward_of_the_reference_cases(name: str) -> None:
    net, X, y = of_case(name)
    expected = {
        key: torch.tensor(value, dtype=F64) for key, value in CASES[name]["expected"].items() if key[0] in "Zyg"
    }
    value = loss(net, X, y)
    value.backward()
    torch.testing.assert_close(net(X).detach(), expected["yhat"], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(net.equilibrium(X).Z, expected["Z"], rtol=1e-8, atol=1e-8)
    assert value.item() == pytest.approx(CASES[name]["expected"]["loss"], rel=1e-8)
    for key, ours in gradients(net).items():
        torch.testing.assert_close(ours, expected[f"grad_{key}"], rtol=1e-8, atol=1e-8)
    assert net.gamma * net.norm_A() == pytest.approx(CASES[name]["expected"]["gammaA_opnorm"], rel=1e-8)


@pytest.mark.parametrize("name", ["mixed_signs", "duplicate_rows_opposite_labels"])
def test_gradient_descent_on_the_reference_cases(name: str) -> None:
    net, X, y = of_case(name)
    optimizer = torch.optim.SGD(net.parameters(), lr=CASES[name]["inputs"]["eta"])
    wanted = CASES[name]["expected"]["loss_after_k_gd_steps"]
    for k in range(1, max(map(int, wanted)) + 1):
        optimizer.zero_grad()
        loss(net, X, y).backward()
        optimizer.step()
        if str(k) in wanted:
            assert loss(net, X, y).item() == pytest.approx(wanted[str(k)], rel=1e-6)


@pytest.mark.parametrize("gamma", ["0.1", "0.5"])
def test_initialisation_of_the_paper_case(gamma: str) -> None:
    net, X, y = of_case(f"paper_init_gamma_{gamma}")
    expected = CASES[f"paper_init_gamma_{gamma}"]["expected"]
    loss(net, X, y).backward()
    torch.testing.assert_close(net.equilibrium(X).Z, torch.tensor(expected["Z"], dtype=F64), rtol=1e-9, atol=1e-9)
    found = gradients(net)
    torch.testing.assert_close(found["b"], torch.tensor(expected["grad_b"], dtype=F64), rtol=1e-9, atol=0)
    assert not found["W"].any() and not found["A"].any()


def function(net: ImplicitReLU) -> Any:
    return lambda X, W, A, b: functional_call(net, {"W": W, "A": A, "b": b}, (X,))


@pytest.mark.parametrize("p", [None, 2])
@pytest.mark.parametrize("gamma", [0.1, 0.8])
def test_first_and_second_derivatives(p: int | None, gamma: float) -> None:
    """In X, W, A and b, away from kinks."""
    net = random_network(3, p=p, gamma=gamma)
    X = normal(100, 4, 3)
    XW = X @ net.W.detach()
    U = gamma * net.equilibrium(X).Z @ net.A.detach() + XW.relu()
    assert float(U.abs().min()) > 1e-3 and float(XW.abs().min()) > 1e-3
    arguments = (X.requires_grad_(), net.W, net.A, net.b)
    assert torch.autograd.gradcheck(function(net), arguments)
    assert torch.autograd.gradgradcheck(function(net), arguments)


def test_third_derivative() -> None:
    """The derivative of a Hessian-vector product, along a line, against differences."""
    net, X, direction = random_network(4, p=None), normal(5, 3, 3), normal(6, 6, 6)

    def second(t: Tensor) -> Tensor:
        value = functional_call(net, {"A": net.A.detach() + t * direction}, (X,)).square().sum()
        (first,) = torch.autograd.grad(value, t, create_graph=True)
        (result,) = torch.autograd.grad(first, t, create_graph=True)
        return result

    t = torch.zeros((), dtype=F64, requires_grad=True)
    (third,) = torch.autograd.grad(second(t), t)
    h = 1e-5
    difference = (second(t.detach().add(h).requires_grad_()) - second(t.detach().sub(h).requires_grad_())) / (2.0 * h)
    assert third.item() == pytest.approx(difference.item(), rel=1e-4)


def test_calls_in_one_graph_in_eval_mode_and_repeated_backward() -> None:
    net, X, V = random_network(), normal(7, 4, 3), normal(8, 5, 3)
    net.eval()
    separate = []
    for rows in (X, V):
        net.zero_grad()
        net(rows).square().sum().backward()
        separate.append(gradients(net))
    net.zero_grad()
    both = net(X).square().sum() + net(V).square().sum()
    for repetition in (1, 2, 3):
        both.backward(retain_graph=True)
        for name, gradient in gradients(net).items():
            torch.testing.assert_close(
                gradient, repetition * (separate[0][name] + separate[1][name]), rtol=1e-8, atol=1e-8
            )


def test_a_network_of_the_output_of_another() -> None:
    """The equilibrium within a larger graph: the gradient in X carries on."""
    inner, outer = random_network(0, p=3), random_network(20, p=None)
    X = normal(7, 4, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda X: outer(inner(X)), (X,))


def test_per_sample_gradients_by_vmap() -> None:
    net, X = random_network(), normal(7, 5, 3)
    weights = {name: parameter.detach() for name, parameter in net.named_parameters()}

    def sample(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(net, weights, (x[None],)).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(sample), in_dims=(None, 0))(weights, X)
    net(X).square().sum().backward()
    for name, gradient in gradients(net).items():
        torch.testing.assert_close(per_sample[name].sum(dim=0), gradient, rtol=1e-8, atol=1e-8)
    stacked = {name: torch.stack([weight, weight]) for name, weight in weights.items()}
    with pytest.raises(NotImplementedError, match="vmap over A"):
        torch.func.vmap(sample, in_dims=(0, None))(stacked, X[0])


def test_saved_memory_does_not_depend_on_the_iterations() -> None:
    saved = []
    for tolerance in (1e-2, 1e-12):
        sizes: list[int] = []
        net = random_network(gamma=0.95, solver="plain", tolerance=tolerance)
        X = normal(7, 4, 3)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, sizes=sizes: (sizes.append(t.numel()), t)[1], lambda t: t
        ):
            net(X)
        saved.append((sum(sizes), net.equilibrium(X).iterations))
    assert saved[0][0] == saved[1][0] and saved[1][1] > 2 * saved[0][1]


def test_autograd_agrees_with_the_bounded_gradient() -> None:
    net, X, Y = random_network(), normal(7, 4, 3), normal(8, 4, 2)
    loss(net, X, Y).backward()
    bounded = net.gradient(X, Y)
    for name, ours in gradients(net).items():
        assert float((ours - getattr(bounded, name)).norm()) <= 1e-7
    torch.testing.assert_close(bounded.residual, (net(X) - Y).detach(), rtol=1e-8, atol=1e-8)


def test_float32() -> None:
    exact = random_network(gamma=0.7)
    net = copy.deepcopy(exact).float()
    X, Y = normal(7, 20, 3), normal(8, 20, 2)
    out = net(X.float())
    assert out.dtype == F32
    loss(net, X.float(), Y.float()).backward()
    loss(exact, X, Y).backward()
    torch.testing.assert_close(out.detach().double(), exact(X).detach(), rtol=1e-4, atol=1e-4)
    single, double = gradients(net), gradients(exact)
    for name in double:
        assert float((single[name].double() - double[name]).norm()) <= 1e-4 * float(double[name].norm())
    solved = net.equilibrium(X.float())
    assert float((solved.Z.double() - exact.equilibrium(X).Z).norm()) <= 1e-4
    assert solved.error <= 1e-3 * float(solved.Z.norm())


def test_equilibrium_reports_what_it_was_asked_for() -> None:
    net, X = random_network(gamma=0.9), normal(7, 4, 3)
    exact = net.equilibrium(X, tolerance=1e-12)
    loose = net.equilibrium(X, tolerance=1e-2, solver="plain")
    assert loose.solver == "plain" and loose.status is EquilibriumStatus.CONVERGED
    assert float((loose.Z - exact.Z).norm()) <= loose.error + exact.error
    assert net.equilibrium(X, start=exact.Z).iterations < net.equilibrium(X).iterations
    memory = SolverMemory()
    first, second = (net.equilibrium(X, memory=memory).iterations for _ in range(2))
    assert second < first
    short = net.equilibrium(X, max_iterations=2, solver="plain", tolerance=1e-12)
    assert short.status is EquilibriumStatus.MAX_ITERATIONS
    assert float((short.Z - exact.Z).norm()) <= short.error + exact.error


@pytest.mark.parametrize("dtype", [F32, F64])
def test_not_well_posed(dtype: torch.dtype) -> None:
    net = ImplicitReLU(normal(0, 3, 4).to(dtype), 2.0 * torch.eye(4, dtype=dtype), normal(1, 4).to(dtype), 0.6)
    X, Y = normal(2, 5, 3).to(dtype), normal(3, 5).to(dtype)
    for call in (lambda: net(X), lambda: net.gradient(X, Y), lambda: net.gram(X)):
        with pytest.raises(NotWellPosed, match=r"gamma is 0\.6 and ‖A‖ = 2.*gamma below 0\.5") as caught:
            call()
        assert caught.value.norm_A == pytest.approx(2.0, rel=1e-6)
        assert caught.value.largest_gamma == pytest.approx(0.5, rel=1e-6)
    assert net.equilibrium(X).status is EquilibriumStatus.NOT_CONTRACTING
    net.gamma = 0.499
    assert net(X).isfinite().all()


def test_changes_of_the_weights_are_seen() -> None:
    """However A is changed, also where autograd does not notice."""
    net, X = random_network(gamma=0.9), normal(7, 4, 3)
    net(X)
    net.A.data.mul_(1.2)
    with pytest.raises(NotWellPosed):
        net(X)
    net.A.data.mul_(0.5)
    assert net.norm_A() == pytest.approx(0.6, rel=2e-3)


@pytest.mark.parametrize("change", [{"max_iterations": 3}, {"max_iterations": 3, "tolerance": 1e-3, "solver": "plain"}])
def test_too_few_iterations_raise_forward(change: dict[str, Any]) -> None:
    net, X = random_network(gamma=0.99, m=30, **change), normal(7, 4, 3)
    with pytest.raises(EquilibriumError, match=r"equilibrium.* after 3 evaluations.*raise max_iterations"):
        net(X)


def test_a_change_of_gamma_does_not_reach_an_existing_graph() -> None:
    net, X = random_network(), normal(7, 4, 3)
    net(X).square().sum().backward()
    expected = gradients(net)
    net.zero_grad()
    value = net(X).square().sum()
    net.gamma = 0.1
    value.backward()
    for name, gradient in gradients(net).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-8)


def test_too_few_iterations_raise_backward() -> None:
    net, X = random_network(gamma=0.99, m=30), normal(7, 4, 3)
    out = net(X).sum()
    net.max_iterations = 3
    with pytest.raises(EquilibriumError, match=r"adjoint.* after 3 evaluations") as caught:
        out.backward()
    assert caught.value.info.status == "max_iterations"
    assert net.A.grad is None and net.W.grad is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_entries_raise(bad: float) -> None:
    net, X = random_network(), normal(7, 4, 3)
    X[1, 2] = bad
    with pytest.raises(EquilibriumError, match="NaN or infinity in X"):
        net(X)
    assert net.equilibrium(X).status is EquilibriumStatus.NON_FINITE
    out = net(normal(7, 4, 3)).sum()
    with pytest.raises(EquilibriumError, match="NaN or infinity"):
        (out * bad).backward()
    with torch.no_grad():
        net.A[0, 0] = bad
    with pytest.raises(EquilibriumError, match="NaN or infinity"):
        net(normal(7, 4, 3))


def test_paper_initialisation() -> None:
    net = ImplicitReLU.paper(5, 400, 0.1, generator=torch.Generator().manual_seed(3))
    assert (net.inputs, net.width, net.outputs, net.gamma) == (5, 400, 1, 0.1)
    assert torch.equal(net.A, torch.eye(400, dtype=F64)) and not net.b.any()
    assert float(net.W.detach().var()) == pytest.approx(1.0 / 400, rel=0.1)
    assert net.norm_A() == pytest.approx(1.0, rel=1e-6)
    single = ImplicitReLU.paper(5, 400, 0.1, generator=torch.Generator().manual_seed(3), dtype=F32)
    assert torch.equal(single.W, net.W.float())
    several = ImplicitReLU.paper(5, 8, 0.5, outputs=3)
    assert several(normal(0, 4, 5)).shape == (4, 3) and ImplicitReLU.paper(5, 8, 0.5)(normal(0, 4, 5)).shape == (4,)
    for name in ("inputs", "width"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            ImplicitReLU.paper(**{"inputs": 2, "width": 3, "gamma": 0.1, name: 0})


def test_saving_copying_and_printing() -> None:
    net, X = random_network(), normal(7, 4, 3)
    expected = net(X).detach()
    other = random_network(seed=40)
    other(X)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(X).detach(), expected) and torch.equal(copy.deepcopy(net)(X).detach(), expected)
    stored = io.BytesIO()
    torch.save(net, stored)
    stored.seek(0)
    assert torch.equal(torch.load(stored, weights_only=False)(X).detach(), expected)
    assert repr(net) == "ImplicitReLU(inputs=3, width=6, outputs=2, gamma=0.8)"


def weights(**change: Any) -> dict[str, Any]:
    return {"W": normal(0, 3, 4), "A": torch.eye(4, dtype=F64), "b": normal(1, 4), "gamma": 0.5} | change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gamma": 0.0}, ValueError, "gamma is 0.0"),
        ({"gamma": -1}, ValueError, "gamma is -1"),
        ({"gamma": math.nan}, ValueError, "gamma is nan"),
        ({"gamma": "small"}, TypeError, "gamma is 'small'"),
        ({"gamma": True}, TypeError, "gamma is True"),
        ({"W": normal(0, 3, 5)}, ValueError, r"W has shape \(3, 5\), A \(4, 4\) and b \(4,\); they must be"),
        ({"W": normal(0, 3)}, ValueError, r"W has shape \(3,\)"),
        ({"A": normal(0, 4, 3)}, ValueError, r"A \(4, 3\)"),
        ({"b": normal(0, 5)}, ValueError, r"b \(5,\)"),
        ({"b": normal(0, 4, 1, 1)}, ValueError, r"b \(4, 1, 1\)"),
        ({"W": normal(0, 0, 4)}, ValueError, "W is empty"),
        ({"b": torch.tensor([0.0, math.nan, 0.0, 0.0], dtype=F64)}, ValueError, r"b has nan at index \(1,\)"),
        ({"A": torch.eye(4)}, TypeError, "W is float64, A is float32, b is float64; the weights must have one dtype"),
        ({"A": torch.eye(4, dtype=torch.int64)}, TypeError, "A has dtype int64"),
        ({"A": torch.eye(4, dtype=torch.float16)}, TypeError, "A has dtype float16"),
    ],
)
def test_constructor_refuses(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ImplicitReLU(**weights(**change))


def test_constructor_takes_lists_and_arrays() -> None:
    net = ImplicitReLU([[2.0]], [[-1.0]], normal(0, 1).numpy(), 0.5)
    assert net.W.dtype == F64 and float(net.equilibrium(torch.ones(1, 1, dtype=F64)).Z) == pytest.approx(4.0 / 3.0)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (normal(0, 4, 2), ValueError, r"X has shape \(4, 2\); it must be \(N, 3\)"),
        (normal(0, 3), ValueError, r"X has shape \(3,\)"),
        (normal(0, 0, 3), ValueError, r"X has shape \(0, 3\)"),
        (normal(0, 4, 3).float(), TypeError, r"X is torch\.float32"),
        ([[1.0, 2.0, 3.0]], TypeError, "X is list"),
    ],
)
def test_forward_refuses(X: Any, error: type[Exception], message: str) -> None:
    net = random_network()
    for call in (net, net.equilibrium):
        with pytest.raises(error, match=message):
            call(X)


def test_gradient_refuses_labels_that_do_not_fit() -> None:
    net, X = random_network(), normal(7, 4, 3)
    with pytest.raises(ValueError, match=r"Y has shape \(4,\); it must be \(4, 2\)"):
        net.gradient(X, normal(8, 4))
    with pytest.raises(TypeError, match="Y must be a tensor"):
        net.gradient(X, normal(8, 4, 2).float())
    with pytest.raises(ValueError, match="Y has inf"):
        net.gradient(X, normal(8, 4, 2) / 0.0)
    with pytest.raises(ValueError, match="2 outputs"):
        net.gram(X)


@pytest.mark.parametrize("dtype", [F64, F32])
def test_a_memory_changes_the_time_but_not_the_result(dtype: torch.dtype) -> None:
    """Across a step, and with what another batch left; and it holds on to no graph."""
    net = random_network(m=20, gamma=0.7).to(dtype)
    X, Y = normal(9, 5, 3).to(dtype), normal(10, 5, 2).to(dtype)
    memory, foreign = SolverMemory(), SolverMemory()
    (net(-X, foreign) - Y).square().sum().backward()
    (net(X, memory) - Y).square().sum().backward()
    assert memory.Z is not None and memory.V is not None
    assert memory.Z.grad_fn is None and memory.V.grad_fn is None
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(0.98)
    found: list[dict[str, Tensor]] = []
    for given in (None, memory, foreign):
        net.zero_grad()
        (net(X, given) - Y).square().sum().backward()
        found.append(gradients(net))
    tolerance = 1e-8 if dtype == F64 else 1e-4
    for other in found[1:]:
        for name, gradient in other.items():
            torch.testing.assert_close(gradient, found[0][name], rtol=tolerance, atol=tolerance)


def test_the_gradient_starts_from_a_memory() -> None:
    net, memory = random_network(m=20, gamma=0.7), SolverMemory()
    X, Y = normal(9, 5, 3), normal(10, 5, 2)
    cold = net.gradient(X, Y, memory=memory)
    warm = net.gradient(X, Y, memory=memory)
    assert warm.adjoint.iterations < cold.adjoint.iterations
    assert float((warm.A - cold.A).norm()) <= warm.A_error.total + cold.A_error.total


def test_tolerances_and_layouts_that_do_not_fit() -> None:
    generator = torch.Generator().manual_seed(0)
    net = ImplicitReLU.paper(4, 12, 0.5, generator=generator)
    X = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    loose = net.equilibrium(X, tolerance=1e300)
    assert loose.status is EquilibriumStatus.CONVERGED
    assert float((loose.Z - net.equilibrium(X).Z).norm()) <= loose.error + net.equilibrium(X).error
    with pytest.raises(TypeError, match=r"tolerance is 'a' \(str\); pass a finite number"):
        net.equilibrium(X, tolerance="a")  # type: ignore[arg-type]
    for call in (net, net.equilibrium):
        with pytest.raises(TypeError, match=r"X is a sparse tensor; pass X\.to_dense\(\)"):
            call(X.to_sparse())


def test_gamma_is_part_of_the_state() -> None:
    generator = torch.Generator().manual_seed(0)
    net = ImplicitReLU.paper(4, 12, 0.3, generator=generator)
    with torch.no_grad():
        net.b += 1.0
    X = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = ImplicitReLU.paper(4, 12, 0.7)
    other.load_state_dict(torch.load(file, weights_only=True))
    for loaded in (other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(loaded.gamma) is float and loaded.gamma == 0.3
        assert torch.equal(loaded(X), net(X))
    assert ImplicitReLU.paper(4, 12, 0.3, dtype=torch.float32).double().gamma == 0.3
    with pytest.raises(ValueError, match=r"gamma is -1\.0; it must be a positive number"):
        other.load_state_dict({**net.state_dict(), "_extra_state": torch.tensor(-1.0)})


def test_memory_is_public() -> None:
    net = ImplicitReLU.paper(4, 12, 0.3)
    memory = sf.nn.SolverMemory()
    net(torch.ones(2, 4, dtype=torch.float64), memory)
    assert memory.Z is not None and memory.Z.shape == (2, 12)


def test_a_matrix_that_contracts_too_little_is_scaled_down() -> None:
    net = sf.nn.ImplicitReLU.gaussian(3, 8, 0.3)
    before = net.A.detach().clone()
    assert not net.contract_() and torch.equal(net.A, before)
    with torch.no_grad():
        net.A.mul_(10.0)
    assert net.contract_(0.9) and net.gamma * float(torch.linalg.matrix_norm(net.A.detach(), 2)) == pytest.approx(
        0.9, rel=1e-6
    )
    for limit in (0.0, 1.0, True):
        with pytest.raises(ValueError, match="it must lie strictly between 0 and 1"):
            net.contract_(limit)
