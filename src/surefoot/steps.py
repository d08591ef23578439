"""Step-size rules."""

from ._core.steps import StepRule
from ._two_layer.steps import (
    Backtracking,
    BarzilaiBorwein,
    Certified,
    CertifiedBB,
    Constant,
    Contraction,
    ExactLineSearch,
    Local,
    PaperRho,
    PaperRhoBar,
    Polyak,
    Sharp,
    Xu2023,
    names,
)

__all__ = [
    "Backtracking",
    "BarzilaiBorwein",
    "Certified",
    "CertifiedBB",
    "Constant",
    "Contraction",
    "ExactLineSearch",
    "Local",
    "PaperRho",
    "PaperRhoBar",
    "Polyak",
    "Sharp",
    "StepRule",
    "Xu2023",
    "names",
]
