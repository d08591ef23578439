"""The floor steps of rules (R) and (R3): the least progress that the drift theorem counts on.

Used live by the certified rules and again by the audit, from the same measurements of an iterate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from surefoot_check.two_layer import constants as tl
from surefoot_check.two_layer.drift import DECREASE, KAPPA, Drift

from .._core.certificate import Certificate
from .._core.plans import PLANS
from . import planner


class Budget(NamedTuple):
    """What a certificate allows a run: the constants of rule (R)."""

    smoothness: float
    strong_convexity: float
    spendable: float
    """θ α1; infinite without a certificate (then only the descent of Theorem I is kept)."""
    guaranteed: float
    """s_* = (1-θ) α1."""
    sharp: bool
    contraction: bool
    path: bool = False
    """Whether s+ is bounded by the length of the path (no unique minimiser): then every step must satisfy (S)."""
    certificate: Certificate | None = None

    @classmethod
    def of(cls, certificate: Certificate | None, smoothness: float) -> Budget:
        """From a certificate of the drift family that holds; otherwise plain descent with the loss's K."""
        theorem = PLANS[certificate.theorem].theorem if certificate is not None else None
        if certificate is None or not certificate.holds or not isinstance(theorem, Drift):
            return cls(smoothness, 0.0, math.inf, 0.0, True, False)
        q = certificate.quantities
        return cls(
            q["smoothness"],
            q["strong_convexity"],
            q["budget"] * q["alpha1"],
            q["guaranteed_sigma"],
            theorem.use_sharp,
            theorem.uses_contraction({**q, "quadratic": certificate.problem["quadratic"]}),
            "optimum_sigma_max" not in q,
            certificate,
        )

    def guarantee(self, iteration: int) -> float:
        """The gap guaranteed for that iteration. A step that keeps it, without the progress of the floor step, loses
        nothing: (1 - v(L))L increases with L, so that the floor step is on the schedule again from there."""
        return self.certificate.bound(iteration) if self.certificate is not None else 0.0


class Floor(NamedTuple):
    """Floor steps (0: not in use) and the gap that the next iterate must not exceed."""

    sharp_step: float
    contraction_step: float
    goal: float


def floor(measured: Mapping[str, float], budget: Budget, spent: float) -> Floor:
    """Floor steps at an iterate with these measurements when ``spent`` of the budget is gone."""
    gap = measured["gap"]
    left = budget.spendable - spent
    if left <= 0.0 or gap <= 0.0:
        return Floor(0.0, 0.0, gap)
    cap = KAPPA * left / gap
    goal, sharp_step, contraction_step = gap, 0.0, 0.0
    if budget.sharp:
        k = (measured["k0"], measured["k1"], measured["k2"])
        if k[0] > 0.0:
            sharp_step = planner.sharp_floor(k, cap)
            goal = gap - tl.sharp_gain(sharp_step, k) * measured["gradient_squared"]
    if budget.contraction:
        lower = budget.strong_convexity * max(measured["sigma_min_squared"], budget.guaranteed)
        upper = budget.smoothness * measured["sigma_max_squared"]
        contraction_step = planner.contraction_floor(lower, upper, measured["curvature"], cap)
        factor = planner.contraction_factor(contraction_step, lower, upper, measured["curvature"])
        goal = min(goal, factor * factor * gap)
    return Floor(sharp_step, contraction_step, goal)


def keeps_budget(eta: float, measured: Mapping[str, float], budget: Budget, spent: float, next_gap: float) -> bool:
    """Condition (T): d_t ≤ κ (θα1 - Q_t)(1 - L_{t+1}/L_t); in the path form also (S): L_{t+1} ≤ L_t - c η ‖∇L‖²."""
    gap = measured["gap"]
    if math.isinf(budget.spendable):
        return next_gap <= gap
    if budget.path and next_gap > gap - DECREASE * eta * measured["gradient_squared"]:
        return False
    drift = eta * eta * measured["drift_per_step"]
    return next_gap < gap and drift <= KAPPA * (budget.spendable - spent) * (1.0 - next_gap / gap)
