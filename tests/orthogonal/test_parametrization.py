"""``sf.nn.Orthogonal`` on torch's layers: orthonormal weights, assignment, saving, copies, compiling, and gradients at ties."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import surefoot as sf

Layer = nn.Linear | nn.Conv2d
LAYERS: list[Callable[[torch.dtype], Layer]] = [
    lambda dtype: nn.Linear(7, 4, dtype=dtype),
    lambda dtype: nn.Linear(4, 7, dtype=dtype),
    lambda dtype: nn.Conv2d(3, 5, 3, dtype=dtype),
]
METHODS = ["exact", "products"]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def parametrized(layer: Layer, method: str) -> Layer:
    parametrize.register_parametrization(layer, "weight", sf.nn.Orthogonal(method))  # type: ignore[arg-type]
    return layer


def defect(weight: Tensor) -> float:
    """max |UᴴU − I| of (out, in·...), on the side that can be orthonormal."""
    U = weight.detach().double().flatten(1)
    U = U if U.shape[0] >= U.shape[1] else U.mT
    return float((U.mT @ U - torch.eye(U.shape[1], dtype=torch.float64)).abs().max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_are_orthonormal_and_assignable(
    make: Callable[[torch.dtype], Layer], method: str, dtype: torch.dtype
) -> None:
    layer = parametrized(make(dtype), method)
    eps = torch.finfo(dtype).eps
    assert layer.weight.dtype is dtype and defect(layer.weight) <= 10 * eps
    # any weight becomes its polar factor, and an orthonormal one stays what it is
    V = draw(*layer.weight.shape)
    layer.weight = V.to(dtype)
    true = sf.linalg.polar(V.to(dtype).double().flatten(1)).U.reshape(V.shape)
    assert float((layer.weight.detach().double() - true).abs().max()) <= 20 * eps
    before = layer.weight.detach()
    layer.weight = before
    assert float((layer.weight.detach() - before).abs().max()) <= 10 * eps
    # after a step of descent too
    (gradient,) = torch.autograd.grad(
        layer.weight.pow(3).sum(), (parameter := next(layer.parametrizations.parameters()))
    )
    with torch.no_grad():
        parameter -= 0.5 * gradient
    assert defect(layer.weight) <= 10 * eps and not torch.equal(layer.weight.detach(), before)


@pytest.mark.parametrize("method", METHODS)
def test_state_copies_and_removal(method: str) -> None:
    layer, other = (parametrized(nn.Conv2d(3, 5, 2), method) for _ in range(2))
    assert not torch.equal(layer.weight, other.weight)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.weight, other.weight) and torch.equal(copy.deepcopy(layer).weight, layer.weight)
    x = torch.randn(2, 3, 6, 6)
    expected = layer(x)
    parametrize.remove_parametrizations(layer, "weight")
    assert not parametrize.is_parametrized(layer) and torch.equal(layer(x), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_layers_have_the_same_values_and_gradients() -> None:
    layer = parametrized(nn.Linear(6, 3, dtype=torch.float64), "exact")
    compiled: Any = torch.compile(copy.deepcopy(layer), fullgraph=True, backend="aot_eager")
    x = draw(5, 6)
    for network in (layer, compiled):
        network(x).pow(3).sum().backward()
    for ours, theirs in zip(layer.parameters(), compiled.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert float((ours.grad - theirs.grad).abs().max()) <= 1e-12
    assert torch.allclose(layer(x), compiled(x), atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (6, 2, 2)])
def test_gradients_are_right_at_ties_and_away_from_orthonormal_parameters(method: str, shape: tuple[int, ...]) -> None:
    """A parameter with two tied singular values, against central differences of torch's own decomposition."""
    flat = draw(*shape).flatten(1)
    P, S, Qh = torch.linalg.svd(flat, full_matrices=False)
    S[1] = S[0]
    parameter = ((P * S) @ Qh).reshape(shape).requires_grad_()
    g, direction = draw(*shape, seed=1), draw(*shape, seed=2)

    def true(weight: Tensor) -> Tensor:
        P, _, Qh = torch.linalg.svd(weight.flatten(1), full_matrices=False)
        return (P @ Qh).reshape(shape)

    module = sf.nn.Orthogonal(method)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad((module(parameter) * g).sum(), parameter)
    h = 1e-5
    with torch.no_grad():
        difference = (true(parameter + h * direction) - true(parameter - h * direction)) / (2 * h)
    assert float((gradient * direction).sum()) == pytest.approx(float((difference * g).sum()), rel=1e-6, abs=1e-8)


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="unknown method 'product'; did you mean 'products'"):
        sf.nn.Orthogonal("product")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lower is 2"):
        sf.nn.Orthogonal("products", lower=2)
    with pytest.raises(ValueError, match=r"the weight has shape \(3,\): it must have at least two dimensions"):
        sf.nn.Orthogonal()(torch.ones(3))
    assert "lower=0.01" in repr(sf.nn.Orthogonal("products")) and repr(sf.nn.Orthogonal()) == "Orthogonal(exact)"
