"""What a theorem is evaluated at: the base quantities at the weights, and on the least ball that will do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from surefoot_check.feed_forward import SYSTEM as CHECKED
from surefoot_check.feed_forward import network
from surefoot_check.feed_forward.enclosures import Measured as OfFit
from surefoot_check.feed_forward.hessian import Curvature
from surefoot_check.feed_forward.quantities import enclosed
from surefoot_check.statement import Theorem

from .._core.certificate import publish
from .._core.near_a_fit.measuring import on_the_least_ball
from .._core.system import Measured
from . import planner


@dataclass(frozen=True, kw_only=True)
class MeasuredAt(Measured):
    """The same, with what it comes from, so that nothing is measured twice.

    Attributes:
        at: all that is known at the weights.
    """

    at: OfFit | Curvature


def measured_at(at: OfFit | Curvature, theorem: Theorem) -> MeasuredAt:
    """Of the Jacobian or the Hessian, and its change on a ball."""
    bend = at.lipschitz if isinstance(at, Curvature) else planner.lipschitz(at)
    found, choices = on_the_least_ball(theorem, partial(enclosed, at), bend)
    sizes = network.sizes(at.problem, at.weights)
    return MeasuredAt(publish(found, CHECKED.directions), sizes, [choices], at=at)
