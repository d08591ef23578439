"""Step-size rules of deep linear ResNets."""

from __future__ import annotations

import math

from surefoot_check.linear_resnet import local
from surefoot_check.statement import SLACK

from .._core.certificate import Certificate
from .._core.losses import LinearMapLoss
from .._core.steps import SHARED_RULES, SafeguardedBB, StepRule
from .engine import SubspaceEngine


class Smooth(StepRule):
    """γ/K_t with K_t = Σz² + sqrt(2 gap_t) λ_max(M) of the certificate.

    Args:
        before: the step while no certificate holds, where nothing is guaranteed; by default that of Armijo's rule.

    Raises:
        ValueError: a step that is not positive and finite.

    Example:
        >>> X = torch.randn(20, 4, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X[:, :2])
        >>> net = sf.nn.LinearResNet.modified_identity(d=4, k=2, width=6, depth=3, alpha="sufficient", loss=loss)
        >>> run = sf.descend(net, loss, steps=sf.steps.Smooth())
        >>> run.certified, run.audit().holds
        (True, True)
    """

    name = "smooth"
    needs = frozenset({"safe_step"})
    certified_by = frozenset({local.THEOREM.id})

    def __init__(self, before: float | None = None) -> None:
        if before is not None and not 0.0 < before < math.inf:
            raise ValueError(f"before is {before!r}; the step must be a positive number")
        self.before = before

    def start(self, loss: LinearMapLoss, certificate: Certificate | None) -> None:
        self._certificate = certificate if certificate is not None and certificate.theorem == local.THEOREM.id else None

    def step(self, engine: SubspaceEngine) -> float:
        certificate = self._certificate
        if certificate is None or not certificate.holds:
            return engine.iterate.safe_step if self.before is None else self.before
        q = certificate.quantities
        return q["gamma"] / float(local.smoothness(q, engine.iterate.gap)) * (1.0 - SLACK)


class CertifiedBB(SafeguardedBB, Smooth):
    """Barzilai-Borwein steps under the certificate; the default.

    A proposal is taken if the gap falls by (1-γ/2) η ‖∇‖² at least (remark 4 of the theorem) and ends at most where γ/K_t or the
    certificate would have it; it is shrunk by 0.7 otherwise, and at last replaced by γ/K_t.
    """

    name = "certified-bb"

    def safe(self, engine: SubspaceEngine) -> float:
        return Smooth.step(self, engine)

    def admits(self, engine: SubspaceEngine, eta: float, safe: float) -> bool:
        iterate, certificate = engine.iterate, self._certificate
        gamma, goal = 1.0, math.inf
        if certificate is not None and certificate.holds:
            q = certificate.quantities
            gamma = q["gamma"]
            goal = max((1.0 - float(local.decrease(q, safe))) * iterate.gap, certificate.bound(self._taken))
        gap = iterate.trial(eta)
        return gap <= goal and gap <= iterate.gap - (1.0 - 0.5 * gamma) * eta * iterate.gradient_squared


RULES: dict[str, type[StepRule]] = {
    **{rule.name: rule for rule in (CertifiedBB, Smooth)},
    **SHARED_RULES,
}
