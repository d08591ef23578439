"""Estimators of scikit-learn: networks with a certificate of every fit."""

from ._estimators.base import UncertifiedWarning
from ._estimators.feed_forward import FeedForwardClassifier, FeedForwardRegressor
from ._estimators.implicit import ImplicitClassifier
from ._estimators.two_layer import TwoLayerClassifier, TwoLayerRegressor

__all__ = [
    "FeedForwardClassifier",
    "FeedForwardRegressor",
    "ImplicitClassifier",
    "TwoLayerClassifier",
    "TwoLayerRegressor",
    "UncertifiedWarning",
]
