"""The problem batches."""

from .batch import Problems
from .lasso import Lasso
from .least_squares import LeastSquares
from .logistic import Logistic

__all__ = ["Lasso", "LeastSquares", "Logistic", "Problems"]
