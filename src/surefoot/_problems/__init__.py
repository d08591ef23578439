"""Batches of problems of equal size: least squares, LASSO and logistic regression, with their draws."""

from .batch import Problems
from .lasso import Lasso
from .least_squares import LeastSquares
from .logistic import Logistic

__all__ = ["Lasso", "LeastSquares", "Logistic", "Problems"]
