"""Finishes of a training, without a certificate or a record: Newton's method for an objective, Gauss-Newton steps to a fit."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from .._core.losses import Loss
from .._core.validate import kind_of, positive_integer
from .engine import Engine
from .loss import NetworkLoss
from .steps import Newton, Turned
from .system import FeedForwardSystem


def newton(net: nn.Sequential, loss: Any, steps: int = 50) -> list[float]:
    """Newton steps on a training objective, in place, until rounding ends them: a finish for ``feed-forward/minimum``.

    They are those of ``sf.descend(net, loss, steps="newton", tolerance=0.0)``, which certifies before and records them.

    Args:
        net: a ``torch.nn.Sequential`` of float64 weights that ``sf.certify`` takes, with at most 5,000 trained numbers.
        loss: ``sf.TorchLoss``.
        steps: at most.

    Returns:
        ‖∇L‖ in floats before every step and at the end.

    Raises:
        TypeError, ValueError: as ``sf.certify``; another loss; too many parameters.
    """
    steps = positive_integer("steps", steps)
    if not isinstance(net, nn.Sequential):
        raise TypeError(f"net is {kind_of(net)}; sf.newton takes a torch.nn.Sequential")
    return finish(net, loss, Newton(), steps)


def finish(net: nn.Sequential, loss: Loss, rule: Turned, steps: int) -> list[float]:
    """Steps of a rule, in place, until none helps or the gap is 0.

    Returns:
        √(2 gap) before every step and at the end: the norm of the residual, or of the gradient of an objective.

    Raises:
        TypeError, ValueError: a network or loss for which the rule is not made.
    """
    system = FeedForwardSystem()
    problem = system.problem(net, loss)
    if isinstance(problem, NetworkLoss):
        problem.draws = None  # it goes on all rows
    engine = system.engine(net, problem, "auto")
    assert isinstance(engine, Engine)
    rule.require(engine, system.name, system.rules)
    rule.start(problem, None)
    norms = [math.sqrt(2.0 * engine.iterate.gap)]
    while len(norms) <= steps and norms[-1] > 0.0:
        eta = rule.step(engine)
        if eta == 0.0:
            break
        engine.move(eta)
        norms.append(math.sqrt(2.0 * engine.iterate.gap))
    system.write(net, problem, engine.weights())
    return norms
