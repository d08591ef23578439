"""Learned step sizes: batches of problems, and training of ``sf.nn.StepSizeNet`` on them."""

from ._step_sizes.problems import Lasso, LeastSquares, Logistic, Problems
from ._step_sizes.training import TrainRun, TrainStatus, train
from ._step_sizes.unrolled import Solution

__all__ = ["Lasso", "LeastSquares", "Logistic", "Problems", "Solution", "TrainRun", "TrainStatus", "train"]
