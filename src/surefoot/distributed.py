"""Several processes on one job, started by ``torchrun``: ``run`` lets the other ranks do parts of a program's sums."""

from ._core.team import RankLostError
from ._core.team import together as run

__all__ = ["RankLostError", "run"]
