"""EquilibriumLayer under what users do to it: interruptions, maps that raise, extreme sizes, odd tensors."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from draws import normal
from torch import Tensor, nn

import surefoot as sf


class Cell(nn.Module):
    """tanh(q z W/‖W‖ + x), which raises ``error`` at its call number ``at``."""

    def __init__(self, q: float = 0.5) -> None:
        super().__init__()
        self.W = nn.Parameter(normal(5, 5, seed=1))
        self.q, self.calls = q, 0
        self.at, self.error = 0, BaseException()

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return torch.tanh(self.q * z @ (self.W / torch.linalg.matrix_norm(self.W, 2)) + x)


X = normal(4, 5)


def gradient(layer: sf.nn.EquilibriumLayer, W: Tensor) -> Tensor:
    return torch.autograd.grad(layer(X).square().sum(), W)[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("out of memory")], ids=["interrupt", "error"])
def test_an_interrupted_solve_leaves_module_and_layer_as_they_were(error: BaseException) -> None:
    cell = Cell()
    W, layer = cell.W, sf.nn.EquilibriumLayer(cell)
    exact = gradient(layer, W)
    forward = cell.calls
    layer(X)
    assert cell.calls < 2 * forward  # so that the calls below fall into a forward and a backward
    for phase, at in (("forward", 4), ("backward", 1)):
        z = layer(X) if phase == "backward" else None
        cell.error, cell.at = error, cell.calls + at
        with pytest.raises(type(error)):
            layer(X) if z is None else torch.autograd.grad(z.square().sum(), W)
        assert dict(cell.named_parameters())["W"] is W and cell.W is W
        assert torch.equal(gradient(layer, W), exact)


def test_an_interrupted_solve_holds_no_lock() -> None:
    cell = Cell()
    layer = sf.nn.EquilibriumLayer(cell)
    cell.error, cell.at = KeyboardInterrupt(), 4
    with pytest.raises(KeyboardInterrupt):
        layer(X)
    shapes: list[torch.Size] = []
    thread = threading.Thread(target=lambda: shapes.append(layer(X).shape))
    thread.start()
    thread.join(60.0)
    assert shapes == [X.shape]


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-150, 1e150, 1e200, 1e300])
def test_sizes_whose_squares_leave_the_range(size: float) -> None:
    """Norms that underflow once made any z a fixed point."""
    x = size * (X + 3.0)
    layer = sf.nn.EquilibriumLayer(lambda z, x: 0.5 * z + x, contraction=0.5)
    error = torch.linalg.vector_norm((layer(x) - 2.0 * x) / size, dim=1)
    assert layer.info is not None
    assert (error <= layer.info.error_bound / size).all()
    assert float(error.max()) <= 1e-10


def test_a_sample_of_extreme_size_does_not_disturb_the_others() -> None:
    x = torch.cat([X, 1e-250 * X, 1e250 * X])
    z = sf.nn.EquilibriumLayer(lambda z, x: 0.5 * z + x)(x)
    torch.testing.assert_close(z, 2.0 * x, rtol=1e-9, atol=0.0)


def test_expanded_and_strided_inputs() -> None:
    cell = Cell()
    layer = sf.nn.EquilibriumLayer(cell)
    row = X[:1].clone().requires_grad_()
    (wide,) = torch.autograd.grad(layer(row.expand(4, 5)).sum(), row)
    (single,) = torch.autograd.grad(layer(row).sum(), row)
    torch.testing.assert_close(wide, 4.0 * single)
    assert torch.equal(layer(X.mT.contiguous().mT), layer(X))


def test_numbers_of_classes_as_input() -> None:
    """The state takes the dtype of the parameters."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.linear = nn.Embedding(10, 6), nn.Linear(6, 6)

        def forward(self, z: Tensor, words: Tensor) -> Tensor:
            return 0.5 * torch.tanh(self.linear(z) / self.linear.weight.norm()) + self.words(words).mean(1)

    cell = Words()
    z = sf.nn.EquilibriumLayer(cell, state_shape=6)(torch.arange(12).remainder(10).reshape(3, 4))
    z.sum().backward()
    assert z.shape == (3, 6) and z.dtype == torch.float32
    assert cell.words.weight.grad is not None


def half(z: Tensor, x: Tensor) -> Tensor:
    return 0.5 * z + x


@pytest.mark.parametrize("memory", [3, sf.nn.WarmStart(4)])
def test_a_memory_that_is_none_of_a_batch_is_refused(memory: object) -> None:
    with pytest.raises(TypeError, match=r"memory is .*; pass warm\[index\]"):
        sf.nn.EquilibriumLayer(half)(X, memory=memory)


def test_an_input_that_is_no_state_asks_for_the_shape() -> None:
    layer = sf.nn.EquilibriumLayer(lambda z, x: 0.5 * z + x["values"])
    inputs = {"values": X, "count": 3}
    with pytest.raises(TypeError, match=r"x\[0\]\['count'\] is an int, and z is .* pass state_shape"):
        layer(inputs)
    torch.testing.assert_close(layer(inputs, z0=torch.zeros_like(X)), 2.0 * X)


def test_a_map_that_drifts_away_shows_no_factor() -> None:
    info = sf.nn.EquilibriumLayer(lambda z, x: z + x).solve(X).info
    assert info.status is sf.nn.SolveStatus.NOT_CONTRACTING
    assert "no contraction factor was measured" in info.text and "nan" not in info.text


@pytest.mark.parametrize("seed", range(12))
def test_options_in_any_mixture_solve_and_differentiate_alike(seed: int) -> None:
    """Beside the unrolled map: bounds that are guaranteed hold, and gradients are its gradients."""
    choice = random.Random(seed)
    batch, q = choice.choice([(1,), (3,), (2, 2)]), choice.choice([0.05, 0.5, 0.9])
    activation = choice.choice([torch.tanh, torch.relu, lambda z: z])
    W = normal(5, 5, seed=seed)
    W = (q * W / torch.linalg.matrix_norm(W, 2)).requires_grad_()
    x = normal(*batch, 5, seed=seed + 1).requires_grad_()
    several = choice.random() < 0.5

    def alone(z: Tensor, x: Tensor, W: Tensor) -> Tensor:
        return activation(z @ W + x)

    def together(z: dict[str, Tensor], x: Tensor, W: Tensor) -> dict[str, Tensor]:
        return {"first": alone(z["first"], x, W), "second": q * torch.sin(z["second"])}  # side by side: the same factor

    f: Callable[..., Any] = together if several else alone
    start: Any = {"first": x.detach(), "second": x.detach()} if several else x.detach()
    layer = sf.nn.EquilibriumLayer(
        f,
        solver=choice.choice(["auto", "plain", "anderson"]),
        batch_dims=len(batch),
        contraction=q,
        tolerance=choice.choice([None, 1e-9]),
        backward_tolerance=1e-12,
    )
    arguments: dict[str, Any] = {"z0": start} if several or choice.random() < 0.5 else {}
    if choice.random() < 0.5:
        samples = torch.arange(x.shape[:-1].numel()).reshape(batch)
        warm = sf.nn.WarmStart(samples.numel())
        layer(x, W, memory=warm[samples], **arguments)
        arguments["memory"] = warm[samples]
    z, exact = layer(x, W, **arguments), start
    for _ in range(400):
        exact = f(exact, x, W)
    found, true = (torch.cat(list(s.values()), -1) if isinstance(s, dict) else s for s in (z, exact))
    assert layer.info is not None and layer.info.guaranteed
    rounding = 1e-14 * torch.linalg.vector_norm(true, dim=-1)  # of the unrolled map
    assert (torch.linalg.vector_norm(found - true, dim=-1) <= layer.info.error_bound + rounding).all()
    pairs = zip(*(torch.autograd.grad(s.pow(3).sum(), (x, W)) for s in (found, true)), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
