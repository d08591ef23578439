"""Optimisation over matrices with orthonormal columns."""

from ._orthogonal.optimizers import CayleyAdam, CayleySGD
from ._orthogonal.stiefel import StiefelResult, StiefelStatus, StiefelTrace, minimize_stiefel

__all__ = ["CayleyAdam", "CayleySGD", "StiefelResult", "StiefelStatus", "StiefelTrace", "minimize_stiefel"]
