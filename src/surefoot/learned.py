"""Learned solvers: batches of problems, training of step sizes and of LISTA, a learned LASSO solver, and the baselines."""

from ._step_sizes.compare import Comparison, compare
from ._step_sizes.learned_solver import LassoSolution, LassoSolver
from ._step_sizes.lista import train_lista, violations
from ._step_sizes.problems import Lasso, LeastSquares, Logistic, Problems
from ._step_sizes.training import TrainRun, TrainStatus, train
from ._step_sizes.unrolled import Solution

__all__ = [
    "Comparison",
    "Lasso",
    "LassoSolution",
    "LassoSolver",
    "LeastSquares",
    "Logistic",
    "Problems",
    "Solution",
    "TrainRun",
    "TrainStatus",
    "compare",
    "train",
    "train_lista",
    "violations",
]
