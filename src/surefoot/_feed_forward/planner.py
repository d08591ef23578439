"""What the theorems on feed-forward networks leave to choose, in floats: see ``_core.near_a_fit.planner``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from surefoot_check.feed_forward import exact_fit, local, minimum, sgd
from surefoot_check.feed_forward.enclosures import Measured
from surefoot_check.feed_forward.lipschitz import symmetric_bend
from surefoot_check.feed_forward.sharp import bend_matrix
from surefoot_check.numbers import Quantities
from surefoot_check.rigor.bounds import Array
from surefoot_check.statement import SLACK

from .._core import minibatch
from .._core.near_a_fit.planner import plans, schedule, stepping
from .._core.plans import Plan, chosen_step


def bends(at: Measured, radius: float) -> list[Array]:
    """Symmetric matrices, with a row for each layer, in floats: the largest eigenvalue of each is a bound of Λ."""
    matrices = [at.scale * np.array(symmetric_bend(at.bounds, radius))]
    if at.centre is not None:
        matrices.append(bend_matrix(at.centre, radius))
    return [S for S in matrices if np.isfinite(S).all()]


def lipschitz(at: Measured) -> Callable[[float], float]:
    """Λ by radius, in floats: the smaller of its two bounds, of which each is measured once."""
    return lambda radius: min((float(np.linalg.eigvalsh(S)[-1]) for S in bends(at, radius)), default=math.inf)


def floor_step_of_minimum(q: Quantities) -> dict[str, float]:
    """The ball of ``q`` and the floor step 2/(M + m0); 0 where the theorem does not hold."""
    norm = minimum.THEOREM.derived(q).get("norm_H_ball", 0.0)
    return stepping(q, 2.0 * (1.0 - SLACK) / (norm + q["lambda_min_H"]) if norm > 0.0 else 0.0)


PLANS = (
    *plans(local.THEOREM, exact_fit.THEOREM),
    Plan(minimum.THEOREM, partial(schedule, minimum.THEOREM), floor_step_of_minimum, largest=chosen_step),
    Plan(sgd.THEOREM, partial(minibatch.schedule, sgd.THEOREM), recertifiable=False),
)
"""In the order in which they are listed."""
