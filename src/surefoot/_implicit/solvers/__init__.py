"""Solvers of the equilibrium; a new one is a class in a file of its own, added to ``SOLVERS``."""

from .anderson import Anderson
from .base import Solver
from .low_rank import LowRank
from .model import LowRankModel
from .newton import Newton
from .plain import Plain
from .problem import SolverMemory, SolverProblem
from .split import Split

SOLVERS: dict[str, type[Solver]] = {solver.name: solver for solver in (Plain, Anderson, Split, LowRank, Newton)}

__all__ = ["SOLVERS", "LowRank", "LowRankModel", "Solver", "SolverMemory", "SolverProblem"]
