"""Newton's method for a training objective: the finish that brings a trained network to its minimum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from surefoot_check.feed_forward.hessian import Curvature
from surefoot_check.feed_forward.network import Objective

from .._core.certificate import SCALE, checkable
from .._core.validate import positive_integer
from .engine import Weights, gradient, inner
from .objective import NetworkObjective
from .system import FeedForwardSystem

LARGEST = 5000
"""Most parameters: the Hessian is decomposed in every step."""
FLAT = 1e-10
"""Eigenvalues below this share of the largest are lifted to it."""
SHORTEST = 2.0**-30
"""Of a step, relative to Newton's."""
ARMIJO = 1e-4
STILL = 0.5
"""Where the objective moves within its rounding, a step has to lower the gradient by this factor."""


def newton(net: nn.Sequential, loss: Any, steps: int = 50) -> list[float]:
    """Newton steps on a training objective, in place, until rounding ends them: a finish for ``feed-forward/minimum``.

    Each step goes along -|H|⁻¹∇L, the absolute value taken of the eigenvalues of the Hessian H, so that it leaves saddles; it is
    halved until the objective falls (Armijo). Near the minimum it is Newton's own, and stops once the gradient falls no more.

    Args:
        net: a ``torch.nn.Sequential`` of float64 weights that ``sf.certify`` takes, with at most 5,000 trained numbers.
        loss: ``sf.TorchLoss``.
        steps: at most.

    Returns:
        ‖∇L‖ in floats before every step and at the end.

    Raises:
        TypeError, ValueError: as ``sf.certify``; another loss; too many parameters.
    """
    steps, system = positive_integer("steps", steps), FeedForwardSystem()
    if not isinstance(net, nn.Sequential):
        raise TypeError(f"net is a {type(net).__name__}; sf.newton takes a torch.nn.Sequential")
    problem = system.problem(net, loss)
    if not isinstance(problem, NetworkObjective):
        raise TypeError(f"loss is a {type(loss).__name__}; sf.newton minimises a training objective: pass sf.TorchLoss")
    at = dict(system.engine(net, problem, "auto").weights())
    count = sum(weight.numel() for weight in at.values())
    if count > LARGEST:
        raise ValueError(f"net has {count} trained numbers; Newton's method takes at most {LARGEST}")
    slope = gradient(problem, at)
    norms = [inner(slope, slope) ** 0.5]
    for _ in range(steps):
        found = _step(problem, at, slope, _hessian(system, problem, at))
        if found is None:
            break
        at, slope = found
        norms.append(inner(slope, slope) ** 0.5)
    system.write(net, problem, at)
    return norms


def _hessian(system: FeedForwardSystem, problem: NetworkObjective, at: Mapping[str, Tensor]) -> Tensor:
    with checkable("the network or the data is", SCALE):
        stored, weights = system.stored_at(problem, at)
        assert isinstance(stored, Objective)
        return torch.from_numpy(Curvature(stored, weights).hessian.value)


def _step(problem: NetworkObjective, at: Weights, slope: Weights, H: Tensor) -> tuple[Weights, Weights] | None:
    """The next weights and their gradient; ``None`` where no step helps."""
    values, Q = torch.linalg.eigh(H)
    size = values.abs().clamp_min(FLAT * float(values.abs().max()))
    g = torch.cat([part.reshape(-1).cpu() for part in slope.values()])
    direction = _parts(Q @ ((Q.T @ g) / size), at)
    fall, value, norm = inner(direction, slope), float(problem.value(at)), inner(slope, slope)
    length = 1.0
    while length >= SHORTEST and fall > 0.0:
        there = {name: weight - length * direction[name] for name, weight in at.items()}
        after = float(problem.value(there))
        reached = gradient(problem, there)
        if inner(reached, reached) <= STILL * STILL * norm and after <= value + abs(value) * 1e-12:
            return there, reached
        if after <= value - ARMIJO * length * fall and after < value * (1.0 - 1e-14):
            return there, reached
        length *= 0.5
    return None


def _parts(flat: Tensor, like: Weights) -> Weights:
    parts = flat.split([weight.numel() for weight in like.values()])
    return {
        name: part.reshape(weight.shape).to(weight.device)
        for part, (name, weight) in zip(parts, like.items(), strict=True)
    }
