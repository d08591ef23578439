"""A hunt for networks with convolutions, pooling and residual blocks that violate what is stated of their Jacobian.

Looked at are JJᵀ, and the change of the Jacobian at the weights in directions in which it changes most, against Λ on a ball of
radius 0: its bound there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hunted import Count
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.measuring import stored
from surefoot._core.near_a_fit.pseudo_inverse import flat, parted
from surefoot._core.registry import system_of
from surefoot_check.feed_forward import SYSTEM
from surefoot_check.feed_forward.enclosures import Measured

F64 = torch.float64
ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    *(nn.Tanh, nn.GELU, nn.Sigmoid, nn.SiLU, nn.ReLU, nn.Identity),
    *(lambda: nn.Softplus(2.0), lambda: nn.LeakyReLU(0.3), lambda: nn.ELU(0.5)),
)
NEAR = 1e-9
"""Radius of the ball in which no kink may lie."""


def hunted(seed: int) -> Count:
    """One network, on one to three rows."""
    draw, count = np.random.default_rng(seed), Count(networks=1)
    net = _network(draw)
    with torch.no_grad():
        for parameter in net.parameters():
            scale = draw.uniform(0.5, 3.0) / np.sqrt(max(1, parameter[0].numel()))
            parameter.copy_(scale * torch.from_numpy(draw.standard_normal(tuple(parameter.shape))))
    size = net[0].unflattened_size  # pyright: ignore[reportAttributeAccessIssue]
    X = draw.uniform(0.3, 3.0) * torch.from_numpy(draw.standard_normal((int(draw.integers(1, 4)), int(np.prod(size)))))
    loss = sf.SquaredLoss(X, net(X).detach() + 1e-6)
    system: Any = system_of(net)
    try:
        problem = system.problem(net, loss)
    except ValueError as error:  # windows that go around more than once
        assert "use less padding" in str(error)
        return count
    weights = system.reduced(net, problem)
    at = Measured(*stored(SYSTEM, problem, weights))
    if any(found is not None for found in at.kink_margins(NEAR)) and at.kink_margin(NEAR)[0] <= 1.0:
        return count
    count.certified["windows"] += 1
    theta = flat(weights)

    def jacobian(vector: Tensor) -> Tensor:
        return torch.func.jacrev(lambda v: problem.residual(parted(v, weights)).reshape(-1))(vector)

    J = jacobian(theta).numpy()
    count.at_most("JJ^T", np.linalg.norm(at.gram.value - J @ J.T), at.gram.error, 1e-13 * np.linalg.norm(J) ** 2)
    u = torch.from_numpy(draw.standard_normal(len(theta)))
    count.at_most("lipschitz_J", _steepest(jacobian, theta, u), at.lipschitz(0.0), 1e-12)
    count.violations = [f"network {seed}: {violation}" for violation in count.violations]
    return count


def _steepest(jacobian: Callable[[Tensor], Tensor], theta: Tensor, u: Tensor) -> float:
    """The largest ‖dJ[u]‖ that is met by turning u towards the direction that dJ[u] takes most of."""
    found = 0.0
    for _ in range(8):
        u = u / torch.linalg.vector_norm(u)
        change = torch.func.jacrev(lambda vector, u=u: jacobian(vector) @ u)(theta)
        found = max(found, float(torch.linalg.matrix_norm(change, 2)))
        v = torch.linalg.svd(change, full_matrices=False)[2][0]
        u = u + v if float(u @ v) >= 0.0 else v - u
    return found


def _network(draw: np.random.Generator) -> nn.Sequential:
    """A few modules on small maps; what does not fit the maps is left out."""
    shape = (int(draw.integers(1, 3)), int(draw.integers(2, 6)), int(draw.integers(2, 6)))
    modules: list[nn.Module] = [nn.Unflatten(1, shape)]
    maps = torch.zeros(1, *shape, dtype=F64)
    for _ in range(int(draw.integers(1, 4))):
        module = _module(draw, maps.shape[1], len(modules) == 1).double()
        try:
            maps = module(maps).detach()
        except RuntimeError:
            continue
        modules += [module, _activation(draw)] if isinstance(module, nn.Conv2d) else [module]
    return nn.Sequential(*modules, nn.Flatten(), nn.Linear(maps.numel(), int(draw.integers(1, 3)))).double()


def _activation(draw: np.random.Generator) -> nn.Module:
    return ACTIVATIONS[int(draw.integers(len(ACTIVATIONS)))]()


def _module(draw: np.random.Generator, channels: int, first: bool) -> nn.Module:
    def two(low: int, high: int) -> tuple[int, int]:
        return int(draw.integers(low, high)), int(draw.integers(low, high))

    kind = int(draw.integers(6))
    if kind < 3:
        mode = ("zeros", "circular")[int(draw.integers(2))]
        of = {"stride": two(1, 3), "padding": two(0, 2), "padding_mode": mode, "bias": bool(draw.integers(2))}
        return nn.Conv2d(channels, int(draw.integers(1, 4)), two(1, 4), **of)
    if kind < 5:
        return (nn.MaxPool2d, nn.AvgPool2d)[kind - 3](two(1, 3), stride=two(1, 3))
    if first or int(draw.integers(2)):
        return sf.nn.Residual(nn.Conv2d(channels, channels, 3, padding=1), _activation(draw))
    return sf.nn.Residual(nn.Tanh(), nn.Conv2d(channels, channels, 1))
