"""What a safeguarded solver found in a batch of problems."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .solve_status import SolveStatus, summary


@dataclass(frozen=True)
class SafeguardedSolution:
    """What such a solver returns of N problems.

    Attributes:
        solution: x_T (N, d), in the dtype of the problems.
        objectives: F_p(x_t) (T+1, N) float64 as computed, never increasing. A problem that is done stays where it is.
        products: multiplications with M_p or M_pᵀ until F_p(x_t) was known (T+1, N) float64; of one with a share of the entries
            that share.
        bounds: F_p(x_t) - F_p* is at most this (T+1, N) float64, by what was proved of the steps alone (Theorem 5): a worst
            case.
        gap: duality gap bounds (N,) float64 at the solution.
        proposals: how many were made in each problem (N,) int64.
        accepted: how many of them were accepted (N,) int64.
        statuses: how each problem ended.
    """

    solution: Tensor
    objectives: Tensor
    products: Tensor
    bounds: Tensor
    gap: Tensor
    proposals: Tensor
    accepted: Tensor
    statuses: tuple[SolveStatus, ...]

    @property
    def status(self) -> SolveStatus:
        """Of all problems; ``status.text`` says what it means."""
        return SolveStatus.of_all(self.statuses)

    @property
    def accepted_share(self) -> float:
        """Accepted proposals among all."""
        return float(self.accepted.sum() / self.proposals.sum().clamp(min=1))

    def __repr__(self) -> str:
        """What the run came to, in place of its tensors."""
        count, columns = self.solution.shape
        problems = f"{count} problem{'s' * (count != 1)} of {columns} columns"
        return (
            f"{type(self).__name__}({problems}, {summary(self.statuses)} after {len(self.objectives) - 1} iterations: "
            f"mean F {self.objectives[-1].mean():.6g}, duality gap at most {self.gap.max():.3g}, "
            f"{self.products[-1].mean():.4g} products a problem, {self.accepted_share:.1%} of the proposals accepted)"
        )

    def __str__(self) -> str:
        return f"{self!r}\n  {self.status.text}"
