"""Minibatch stochastic gradient descent, with the theorems that speak of it."""

from ._linear_resnet.sgd import SGDGuarantee, SGDRun
from ._linear_resnet.sgd import certify_sgd as certify
from ._linear_resnet.sgd import descend_sgd as descend
from ._linear_resnet.width import WidthEstimate, width_estimates

__all__ = ["SGDGuarantee", "SGDRun", "WidthEstimate", "certify", "descend", "width_estimates"]
