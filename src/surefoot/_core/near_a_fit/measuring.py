"""What theorems near a fit are evaluated at: the base quantities at the weights, and on the least ball that will do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from surefoot_check.near_a_fit.exact_fit import ExactFit
from surefoot_check.near_a_fit.state import StateTheorem, size
from surefoot_check.rigor.intervals import Interval
from surefoot_check.statement import Theorem

from .planner import choose_ball


def on_the_least_ball(
    theorem: Theorem, enclosed: Callable[[Mapping[str, float]], dict[str, Interval]], bend: Callable[[float], float]
) -> tuple[dict[str, Interval], dict[str, float]]:
    """The enclosures, and the choice of the ball; none where there is no least singular value, or eigenvalue.

    Args:
        theorem: about a state, or the existence of a fit.
        enclosed: the enclosures with what is asked for: ``ball``, and whether there is a ``newton_step``.
        bend: Λ by radius, in floats.
    """
    asked = {"newton_step": math.nan} if isinstance(theorem, ExactFit) else {}  # that there is one is what counts
    found = enclosed(asked)
    least = found.get(theorem.least if isinstance(theorem, StateTheorem) else "sigma_min_J", (0.0, 0.0))[0]
    if not least > 0.0 or "initial_gap" not in found:
        return found, {}
    reached = least * found["newton_step"][1] if asked else size(found["initial_gap"][1])
    choices = {"ball": choose_ball(bend, least, reached)}
    return enclosed({**asked, **choices}), choices
