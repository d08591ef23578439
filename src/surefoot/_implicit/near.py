"""``implicit/local`` and ``implicit/exact-fit``: what they are evaluated at, and what helps where they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from surefoot_check.implicit import SYSTEM as CHECKED
from surefoot_check.implicit import enclosures, exact_fit, local
from surefoot_check.implicit.jacobian import Jacobian
from surefoot_check.implicit.quantities import enclosed
from surefoot_check.problems import Samples
from surefoot_check.statement import Theorem

from .._core.certificate import publish
from .._core.near_a_fit.measuring import on_the_least_ball
from .._core.near_a_fit.suggestions import near_already, nearer, past_the_kink, too_far
from .._core.system import Measured

NEAR_A_FIT = (local.THEOREM.id, exact_fit.THEOREM.id)
"""The theorems that hold at any iterate, however far the features have moved."""
ARGUMENTS = "γzA + φ", "xW"
"""Of the two relus."""


@dataclass(frozen=True, kw_only=True)
class MeasuredAt(Measured):
    """The same, with what it comes from, so that nothing is measured twice.

    Attributes:
        at: all that is known at the weights.
    """

    at: Jacobian


def measured_near(problem: Samples, weights: Mapping[str, Any], theorem: Theorem) -> MeasuredAt:
    """Of the Jacobian of all outputs at the weights, and its change on the least ball that will do."""
    return measured_at(Jacobian(problem, weights), theorem)


def measured_at(at: Jacobian, theorem: Theorem) -> MeasuredAt:
    """The same of what is known."""
    found, choices = on_the_least_ball(theorem, partial(enclosed, at), at.lipschitz)
    sizes = enclosures.sizes(at.at.problem, at.at.weights)
    return MeasuredAt(publish(found, CHECKED.directions), sizes, [choices], at=at)


def suggestion_near(
    theorem: Theorem, measured: MeasuredAt, failed: Sequence[str], quantities: Mapping[str, float]
) -> str:
    """What would make a theorem near a fit hold."""
    if any("parameters" in name for name in failed):
        return "there are fewer parameters than outputs on all samples: use a larger width, or fewer samples"
    if any("row rank" in name for name in failed):
        return f"no full row rank of the Jacobian of all outputs is certain: {_without_rank(measured.at)}"
    kinked = any("kink" in name for name in failed)
    zeros = (
        sum(int((margins == 0.0).sum()) for margins in measured.at.kink_margins(quantities["ball"])) if kinked else 0
    )
    if zeros:
        said = _on_kinks(zeros)
    elif kinked and not too_far(failed):
        said = _nearest_kink(measured.at, quantities["ball"])
    else:
        said = nearer(theorem, quantities)
    return said + near_already(exact_fit.THEOREM, theorem, partial(measured_at, measured.at))


def _without_rank(at: Jacobian) -> str:
    """Why, and what to do."""
    if not bool((at.at.Z.value > 0.0).any()):
        return "every unit is 0 on all samples; draw W anew, such as torch.randn(d, m) / m**0.5"
    zeros = sum(int((np.abs(part.value) <= part.error).sum()) for part in (at.at.argument, at.at.drive))
    if zeros:
        return _on_kinks(zeros)
    return "use a larger width, or fewer or less similar samples"


def _on_kinks(zeros: int) -> str:
    """Where no training moves them away."""
    return (
        f"{zeros} arguments of relu are 0 as far as rounding can tell, as at A = I those of units that are 0 on all "
        "samples are and remain, and a kink has no Jacobian; draw A at random, such as torch.randn(m, m) / (2 * m**0.5), "
        "and train"
    )


def _nearest_kink(at: Jacobian, ball: float) -> str:
    """Which argument of a relu is nearest to 0, beside its change on the ball."""
    margins = at.kink_margins(ball)
    which = int(np.argmin([float(margin.min()) for margin in margins]))
    row, unit = np.unravel_index(int(margins[which].argmin()), margins[which].shape)
    return past_the_kink(f"{ARGUMENTS[which]} of row {row}, unit {unit}", float(margins[which][row, unit]))
