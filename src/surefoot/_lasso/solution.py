"""What the learned LASSO solver found."""

from __future__ import annotations

from dataclasses import dataclass

from .._learning.safeguarded_solution import SafeguardedSolution


@dataclass(frozen=True, repr=False)
class LassoSolution(SafeguardedSolution):
    """What ``LassoSolver.solve`` found.

    Attributes:
        solution: x_T (N, d), in the dtype of the problems.
        objectives: F_p(x_t) (T+1, N) float64 as computed, never increasing.
        products: multiplications with M_p or M_pᵀ until F_p(x_t) was known (T+1, N) float64.
        bounds: F_p(x_t) - F_p* is at most this (T+1, N) float64, by what was proved of the steps alone: a worst case.
        gap: duality gap bounds (N,) float64 at the solution.
        proposals, accepted: how many were made in each problem (N,) int64, and how many of them were accepted.
        statuses: how each problem ended; ``status`` is that of all.
    """
