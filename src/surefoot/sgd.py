"""Minibatch stochastic gradient descent, with the theorems that speak of it."""

from ._linear_resnet.sgd import SGDGuarantee, SGDRun
from ._linear_resnet.sgd import certify_sgd as certify
from ._linear_resnet.sgd import descend_sgd as descend

__all__ = ["SGDGuarantee", "SGDRun", "certify", "descend"]
