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
    """The step schedule ``name`` for exactly ``horizon`` steps.

    ``bound(problems)`` is the proved bound of F - F* after the last step, known before the first.

    Args:
        name: "silver" for any problems (Altschuler and Parrilo, 2023); for least squares "OGM" (Kim and Fessler, 2016) and
            "subgame-perfect" (Grimmer, Shu and Wang, 2024), and "Chebyshev" where β0 > 0 is certified; "OptISTA" for LASSO and
            logistic regression (Jang, Das Gupta and Ryu, 2023).
        horizon: T, an integer ≥ 0.

    Raises:
        TypeError, ValueError: no such schedule, or another horizon.

    Example:
        >>> problems = sf.learned.LeastSquares.random(4, 20, 8)
        >>> for name in ("silver", "OGM"):
        ...     gaps = problems.gap(sf.learned.schedule(name, 31).solve(problems).solution)
        ...     print(name, bool((gaps <= sf.learned.schedule(name, 31).bound(problems)).all()))
        silver True
        OGM True
    """
    if name not in SCHEDULES:
        raise unknown("schedule", name, tuple(SCHEDULES))
    return SCHEDULES[name](horizon)
