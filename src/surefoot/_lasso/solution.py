"""What the learned LASSO solver found."""

from __future__ import annotations

from dataclasses import dataclass

from .._learning.safeguarded_solution import SafeguardedSolution


@dataclass(frozen=True, repr=False)
class LassoSolution(SafeguardedSolution):
    """What ``LassoSolver.solve`` found."""
