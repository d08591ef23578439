"""Step-size rules of feed-forward networks."""

from __future__ import annotations

import math
from typing import Any

from .._core.certificate import Certificate
from .._core.steps import SHARED_RULES, BarzilaiBorwein, StepRule, restore_proposal, state_of
from .engine import Engine
from .planner import STATES


class Floor(StepRule):
    """The floor step of the certificate: 1/b² with b ≥ ‖J‖ where the run stays, 2/(M + m0) for a minimum. Armijo's rule while no
    certificate holds."""

    name = "floor"
    needs = frozenset({"safe_step"})
    certified_by = frozenset(STATES)

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        followed = certificate is not None and certificate.holds and self.certifies(certificate)
        self._certificate = certificate if followed else None

    def step(self, engine: Engine) -> float:
        if self._certificate is None:
            return engine.iterate.safe_step
        return self._certificate.quantities["eta"]


class CertifiedBB(Floor):
    """Barzilai-Borwein steps under the certificate; the default.

    A proposal is taken if it ends in the ball, with V at most what it is at the start and with a gap that the certificate
    guarantees for that iteration; it is shrunk by 0.7 otherwise, and at last replaced by the floor step.
    """

    name = "certified-bb"
    needs = BarzilaiBorwein.needs | {"trial", "distance_after"}
    SHRINK = 0.7

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        super().start(loss, certificate)
        self._proposal = BarzilaiBorwein()
        self._proposal.start(loss, certificate)
        self._taken = 0

    def step(self, engine: Engine) -> float:
        floor = super().step(engine)
        self._taken += 1
        eta = floor if self._certificate is None else self._accepted(engine, self._certificate, floor)
        self._proposal.taken(eta, engine.iterate.gradient_squared)
        return eta

    def _accepted(self, engine: Engine, certificate: Certificate, floor: float) -> float:
        iterate, q, goal = engine.iterate, certificate.quantities, certificate.bound(self._taken)
        theorem, eta = STATES[certificate.theorem], self._proposal.step(engine)
        while eta > floor and math.isfinite(eta):
            gap, distance = iterate.trial(eta), iterate.distance_after(eta)
            if gap <= goal and distance <= q["ball"] and theorem.potential(q, gap, distance) <= q[theorem.start]:
                return eta
            eta *= self.SHRINK
        return floor

    def state(self) -> dict[str, float]:
        return {"taken": float(self._taken), **state_of(self._proposal)}

    def restore(self, state: dict[str, float]) -> None:
        self._taken = int(state["taken"])
        restore_proposal(self._proposal, state)


RULES: dict[str, type[StepRule]] = {
    **{rule.name: rule for rule in (CertifiedBB, Floor)},
    **SHARED_RULES,
}
