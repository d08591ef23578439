"""Step-size rules of implicit ReLU networks."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from .._core.certificate import Certificate
from .._core.near_a_fit.steps import CertifiedBB, Floor, GaussNewton, SimplifiedNewton
from .._core.steps import SHARED_RULES, StepRule, make
from .engine import DescentEngine


class CertifiedConstant(StepRule):
    """The step of the certificate; the default. Armijo's rule from Polyak's step while none holds that speaks of such steps.

    Example:
        >>> X = torch.nn.functional.normalize(torch.randn(4, 3, dtype=torch.float64))
        >>> y = X.sum(1)
        >>> net = sf.nn.ImplicitReLU.certifiable(X, y, width=12)
        >>> run = sf.descend(net, sf.SquaredLoss(X, y), steps=sf.steps.CertifiedConstant(), max_iterations=5)
        >>> run.certified, len({round(step / run.certificate.step_size, 6) for step in run.step_sizes})
        (True, 1)
    """

    name = "certified-constant"
    needs = frozenset({"safe_step"})
    certified_by = frozenset({"implicit/spectral", "implicit/measured", "implicit/gd"})

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        self._eta = None
        if certificate is not None and certificate.holds and self.certifies(certificate):
            self._eta = certificate.step_size

    def step(self, engine: DescentEngine[Any]) -> float:
        return engine.iterate.safe_step if self._eta is None else self._eta


class WellPosed(StepRule):
    """The steps of another rule, halved until γ‖A‖ stays below 1 - margin, so that the equilibrium is never lost.

    Args:
        steps: a rule, the name of one, or a number; ``certified-constant`` by default.
        margin: what must remain of 1 - γ‖A‖, between 0 and 1.

    Raises:
        TypeError, ValueError: no such rule, or a margin out of range.

    Example:
        >>> X = torch.nn.functional.normalize(torch.randn(4, 3, dtype=torch.float64))
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> start = lambda: sf.nn.ImplicitReLU.gaussian(inputs=3, width=10)
        >>> sf.descend(start(), loss, steps=10.0, max_iterations=5).status.value  # a step that loses the equilibrium
        'ill_posed'
        >>> sf.descend(start(), loss, steps=sf.steps.WellPosed(10.0), max_iterations=5).status.value
        'max_iterations'
    """

    name = "well-posed"

    def __init__(self, steps: StepRule | str | float | None = None, margin: float = 1e-2) -> None:
        if isinstance(margin, bool) or not isinstance(margin, Real) or not 0.0 < margin < 1.0:
            raise ValueError(f"margin is {margin!r}; it must lie strictly between 0 and 1")
        self.margin = float(margin)
        self.proposal = make(CertifiedConstant.name if steps is None else steps, None, RULES)
        self.needs = self.proposal.needs | {"gamma", "norm_after"}

    def certifies(self, certificate: Certificate) -> bool:
        return False  # a halved step is not the step of the theorem

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        self.proposal.start(loss, certificate)

    def step(self, engine: DescentEngine[Any]) -> float:
        iterate = engine.iterate
        eta = self.proposal.step(engine)
        while eta > 0.0 and math.isfinite(eta) and not iterate.gamma * iterate.norm_after(eta) <= 1.0 - self.margin:
            eta *= 0.5
        return eta

    def state(self) -> dict[str, float]:
        return self.proposal.state()

    def restore(self, state: dict[str, float]) -> None:
        self.proposal.restore(state)


RULES: dict[str, type[StepRule]] = {
    **{rule.name: rule for rule in (CertifiedConstant, WellPosed, CertifiedBB, Floor, GaussNewton, SimplifiedNewton)},
    **SHARED_RULES,
}
