"""Several processes on one job, started by ``torchrun``: ``run`` gives a program the other ranks as helpers."""

from ._core.team import RankLostError
from ._core.team import together as run

__all__ = ["RankLostError", "run"]
