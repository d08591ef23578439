"""Learned solvers: batches of problems, training of step sizes and of LISTA, a learned LASSO solver, and the baselines."""

from ._holdout.certificate import HoldoutCertificate
from ._holdout.certify import certify_holdout, problems_needed
from ._holdout.shift import ShiftTest
from ._lasso.analytic_weights import AnalyticWeights, analytic_weights
from ._lasso.learned_solver import LassoSolution, LassoSolver
from ._lasso.lista_training import train_lista
from ._lasso.violations import violations
from ._layers.run import LayersRun
from ._layers.training import train_layers
from ._learning.run import TrainRun, TrainStatus
from ._logistic.solver import LogisticSolution, LogisticSolver
from ._problems import Lasso, LeastSquares, Logistic, Problems
from ._step_sizes.compare import Comparison, compare
from ._step_sizes.schedules import Schedule, schedule
from ._step_sizes.training import train
from ._step_sizes.unrolled import Solution

__all__ = [
    "AnalyticWeights",
    "Comparison",
    "HoldoutCertificate",
    "Lasso",
    "LassoSolution",
    "LassoSolver",
    "LayersRun",
    "LeastSquares",
    "Logistic",
    "LogisticSolution",
    "LogisticSolver",
    "Problems",
    "Schedule",
    "ShiftTest",
    "Solution",
    "TrainRun",
    "TrainStatus",
    "analytic_weights",
    "certify_holdout",
    "compare",
    "problems_needed",
    "schedule",
    "train",
    "train_layers",
    "train_lista",
    "violations",
]
