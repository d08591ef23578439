"""What a theorem is evaluated at: the base quantities at the weights, and on the least ball that will do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from surefoot_check.feed_forward import SYSTEM as CHECKED
from surefoot_check.feed_forward import exact_fit, minimum, network
from surefoot_check.feed_forward.enclosures import Measured as OfFit
from surefoot_check.feed_forward.hessian import Curvature
from surefoot_check.feed_forward.quantities import enclosed
from surefoot_check.near_a_fit.state import size
from surefoot_check.statement import Theorem

from .._core.certificate import evaluate, publish
from .._core.near_a_fit.planner import choose_ball
from .._core.system import Measured
from . import planner


@dataclass(frozen=True, kw_only=True)
class MeasuredAt(Measured):
    """The same, with what it comes from, so that nothing is measured twice.

    Attributes:
        at: all that is known at the weights.
    """

    at: OfFit | Curvature

    def holds(self, theorem: Theorem) -> bool:
        """Whether another theorem on the same kind of problem holds at the same weights."""
        there = measured_at(self.at, theorem)
        if theorem is exact_fit.THEOREM and "newton_step" not in there.published:
            return False
        return all(c.certain for c in evaluate(theorem, {**there.published, **there.choices[0], **there.sizes})[1])


def measured_at(at: OfFit | Curvature, theorem: Theorem) -> MeasuredAt:
    """Of the Jacobian or the Hessian, and its change on a ball."""
    bend = at.lipschitz if isinstance(at, Curvature) else planner.lipschitz(at)
    asked = {"newton_step": math.nan} if theorem is exact_fit.THEOREM else {}  # that there is one is what counts
    found, choices = enclosed(at, asked), {}
    least = found.get("lambda_min_H" if theorem is minimum.THEOREM else "sigma_min_J", (0.0, 0.0))[0]
    if least > 0.0 and "initial_gap" in found:
        reached = least * found["newton_step"][1] if asked else size(found["initial_gap"][1])
        choices = {"ball": choose_ball(bend, least, reached)}
        found = enclosed(at, {**asked, **choices})
    sizes = network.sizes(at.problem, at.weights)
    return MeasuredAt(publish(found, CHECKED.directions), sizes, [choices], at=at)
