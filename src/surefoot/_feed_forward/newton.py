"""Newton's method for a training objective, as a finish without a certificate or a record."""

from __future__ import annotations

from typing import Any

from torch import nn

from .._core.validate import positive_integer
from .steps import Newton
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
    steps, system, rule = positive_integer("steps", steps), FeedForwardSystem(), Newton()
    if not isinstance(net, nn.Sequential):
        raise TypeError(f"net is a {type(net).__name__}; sf.newton takes a torch.nn.Sequential")
    problem = system.problem(net, loss)
    engine = system.engine(net, problem, "auto")
    rule.require(engine, system.name, system.rules)
    rule.start(problem, None)
    norms = [engine.iterate.gradient_squared**0.5]
    for _ in range(steps):
        eta = rule.step(engine)
        if eta == 0.0:
            break
        engine.move(eta)
        norms.append(engine.iterate.gradient_squared**0.5)
    system.write(net, problem, engine.weights())
    return norms
