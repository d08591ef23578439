"""Step schedules without training, each with the rate that is proved of it; one file each."""

from __future__ import annotations

from ..._core.validate import unknown
from .chebyshev import Chebyshev
from .ogm import OGM
from .optista import OptISTA
from .schedule import Schedule
from .silver import Silver
from .subgame_perfect import SubgamePerfect

SCHEDULES: dict[str, type[Schedule]] = {kind.name: kind for kind in (Silver, OGM, SubgamePerfect, OptISTA, Chebyshev)}
"""By the name that tables have."""

__all__ = ["SCHEDULES", "Schedule", "schedule"]


def schedule(name: str, horizon: int) -> Schedule:
    """The step schedule ``name`` for exactly ``horizon`` steps, an integer ≥ 0.

    "silver" for any problems; "OGM" and "subgame-perfect" for least squares, "Chebyshev" where β0 > 0 is certified; "OptISTA" for
    LASSO and logistic regression. ``bound(problems)`` is the proved bound of F - F* after the last step, known before the first.

    Raises:
        TypeError, ValueError: no such schedule, or another horizon.
    """
    if name not in SCHEDULES:
        raise unknown("schedule", name, tuple(SCHEDULES))
    return SCHEDULES[name](horizon)
