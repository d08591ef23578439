"""Finishes of a training, without a certificate or a record: Newton's method for an objective, Gauss-Newton steps to a fit."""

from __future__ import annotations

from typing import Any

from torch import nn

from .._core.losses import Loss
from .._core.near_a_fit.finish import finish as finished
from .._core.near_a_fit.steps import Turned
from .._core.validate import kind_of, positive_integer
from .loss import NetworkLoss
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

    Example:
        >>> X, labels = torch.randn(20, 3).double(), torch.arange(20) % 2
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2)).double()
        >>> loss = sf.TorchLoss(torch.nn.CrossEntropyLoss(), X, labels, weight_decay=0.1)
        >>> sf.newton(net, loss)[-1] < 1e-12, sf.certify(net, loss).radius < 1e-9
        (True, True)
    """
    steps = positive_integer("steps", steps)
    if not isinstance(net, nn.Sequential):
        raise TypeError(f"net is {kind_of(net)}; sf.newton takes a torch.nn.Sequential")
    return finish(net, loss, Newton(), steps)


def finish(net: nn.Sequential, loss: Loss, rule: Turned, steps: int) -> list[float]:
    """See ``_core.near_a_fit.finish.finish``; it goes on all rows."""
    problem = FeedForwardSystem().problem(net, loss)
    if isinstance(problem, NetworkLoss):
        problem.draws = None
    return finished(net, problem, rule, steps)
