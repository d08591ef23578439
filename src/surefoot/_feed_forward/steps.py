"""Step-size rules of feed-forward networks: those of theorems about states, and Newton's for training objectives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from surefoot_check.feed_forward import minimum

from .._core.engine import Weights
from .._core.near_a_fit.steps import CertifiedBB, Floor, GaussNewton, SimplifiedNewton, Turned
from .._core.steps import SHARED_RULES, StepRule
from .engine import Stationary, inner, parameters


class Newton(Turned):
    """Steps |H|⁻¹∇L, which leave saddles; halved until the objective falls (Armijo), or the gradient where rounding is all that
    moves the objective. A finish of a few steps.

    ``sf.descend`` raises ``TypeError`` where the loss is no training objective (``sf.TorchLoss``), and ``ValueError`` for more
    than 5,000 trained numbers.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.TorchLoss(torch.nn.MSELoss(), X, X.sum(1, keepdim=True).sin(), weight_decay=1e-2)
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)).double()
        >>> run = sf.descend(net, loss, steps=sf.steps.Newton())
        >>> run.iterations < 100, sf.certify(net, loss).holds  # a local minimum, and how far it is at most
        (True, True)
    """

    name = "newton"
    certified_by = frozenset({minimum.THEOREM.id})
    LARGEST = 5000
    ARMIJO = 1e-4
    STILL = 0.5

    def require(self, engine: Any, system: str, rules: Iterable[str]) -> None:
        super().require(engine, system, rules)
        if not isinstance(engine.iterate, Stationary):
            raise TypeError(
                f"steps={self.name!r} needs a training objective: pass sf.TorchLoss(criterion, X, targets, weight_decay); to an "
                f"exact fit of sf.SquaredLoss(X, Y) goes steps={GaussNewton.name!r}"
            )
        if parameters(engine) > self.LARGEST:
            raise ValueError(
                f"net has {parameters(engine)} trained numbers; Newton's method takes at most {self.LARGEST}"
            )

    def direction(self, engine: Any) -> Weights:
        return engine.iterate.newton

    def improves(self, iterate: Any, eta: float) -> bool:
        here, there, fall = iterate.value, iterate.after(eta), inner(iterate.direction, iterate.gradient)
        still = there.value <= here + 1e-12 * abs(here)
        if still and there.gradient_squared <= self.STILL * self.STILL * iterate.gradient_squared:
            return True
        return there.value <= here - self.ARMIJO * eta * fall and there.value < here * (1.0 - 1e-14)


RULES: dict[str, type[StepRule]] = {
    **{rule.name: rule for rule in (CertifiedBB, Floor, GaussNewton, SimplifiedNewton, Newton)},
    **SHARED_RULES,
}
