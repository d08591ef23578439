"""Finishes of a training, without a certificate or a record."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from ..registry import descendable_of
from .steps import Turned


def finish(net: nn.Module, loss: Any, rule: Turned, steps: int) -> list[float]:
    """Steps of a rule, in place, until none helps or the gap is 0.

    Returns:
        √(2 gap) before every step and at the end: the norm of the residual, or of the gradient of an objective.

    Raises:
        TypeError, ValueError: a network or loss for which the rule is not made.
    """
    system = descendable_of(net)
    problem = system.problem(net, loss)
    engine = system.engine(net, problem, "auto")
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
