"""Step-size rules."""

from ._core.near_a_fit.steps import GaussNewton, SimplifiedNewton
from ._core.registry import rule_names as names
from ._core.steps import Backtracking, BarzilaiBorwein, Constant, Polyak, StepRule
from ._feed_forward.steps import Newton
from ._implicit.steps import CertifiedConstant, WellPosed
from ._linear_resnet.steps import Smooth
from ._two_layer.steps import (
    Certified,
    CertifiedBB,
    Contraction,
    ExactLineSearch,
    Local,
    PaperRho,
    PaperRhoBar,
    Sharp,
    Xu2023,
)

__all__ = [
    "Backtracking",
    "BarzilaiBorwein",
    "Certified",
    "CertifiedBB",
    "CertifiedConstant",
    "Constant",
    "Contraction",
    "ExactLineSearch",
    "GaussNewton",
    "Local",
    "Newton",
    "PaperRho",
    "PaperRhoBar",
    "Polyak",
    "Sharp",
    "SimplifiedNewton",
    "Smooth",
    "StepRule",
    "WellPosed",
    "Xu2023",
    "names",
]
