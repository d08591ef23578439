"""How the solve of a fixed point ended, and what is known of its error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from ..._core.brief import brief


class SolveStatus(StrEnum):
    """How a solve ended; the status of a batch is the worst of its samples'."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    NOT_CONTRACTING = "not_contracting"
    NON_FINITE = "non_finite"
    TRUNCATED = "truncated"

    @property
    def text(self) -> str:
        """One line for people."""
        return {
            SolveStatus.CONVERGED: "converged",
            SolveStatus.MAX_ITERATIONS: "the tolerance was not reached",
            SolveStatus.NOT_CONTRACTING: "the map was not seen to contract",
            SolveStatus.NON_FINITE: "the map returned NaN or infinity",
            SolveStatus.TRUNCATED: "inexact by choice",
        }[self]


@dataclass(frozen=True)
class SolveInfo:
    """What a solve did. Tensors have the shape of the batch dimensions, and are float64 (bool for ``failed``).

    Where f has a batch norm in training mode, the batch is one sample, and they have no dimensions.

    Attributes:
        status: the worst of the samples'.
        iterations: evaluations of the map.
        residual: ‖g(z) − z‖ of each sample, at its last evaluation.
        error_bound: bound on the distance to the fixed point; ``inf`` where the map was not seen to contract.
        contraction: the factor q behind the bound: the given or proved one, else the largest estimate over the batch (NaN: none).
        guaranteed: whether q was given, or proved by ``contractive``. Then the bound is a guarantee (as far as q is right, and
            one evaluation rounds by no more than 4 eps ‖g(z)‖ or the level where the residual stagnated); else it is an estimate.
        rounding_limited: some bound exceeds the tolerance because the dtype resolves no more.
        failed: the samples that did not converge.
        solver: ``plain`` or ``anderson`` (in ``auto``, whether Anderson's method was needed).
        note: what else was found out about a failure.
    """

    status: SolveStatus
    iterations: int
    residual: Tensor
    error_bound: Tensor
    contraction: float
    guaranteed: bool
    rounding_limited: bool
    failed: Tensor
    solver: str
    note: str = ""

    __repr__ = brief

    @property
    def converged(self) -> bool:
        """Whether every sample converged."""
        return self.status is SolveStatus.CONVERGED

    @property
    def exact(self) -> bool:
        """False for a derivative that was asked to be cut short (``PhantomGradient``)."""
        return self.status is not SolveStatus.TRUNCATED

    @property
    def text(self) -> str:
        """One line for people."""
        parts = [self.status.text]
        count = int(self.failed.sum())
        if count:
            first = tuple(int(i) for i in self.failed.nonzero()[0])
            parts.append(f"{count} of {self.failed.numel()} samples failed, the first at index {first}")
        worst, bound = (float(t.max()) if t.numel() else 0.0 for t in (self.residual, self.error_bound))
        kind = "guaranteed" if self.guaranteed else "estimated"
        parts.append(f"{self.iterations} evaluations ({self.solver})")
        parts.append(f"largest residual {worst:.3g}, {kind} error at most {bound:.3g}")
        if math.isnan(self.contraction):
            parts.append("no contraction factor was measured")
        else:
            parts.append(f"{'' if self.guaranteed else 'estimated '}contraction factor {self.contraction:.4g}")
        if self.rounding_limited:
            parts.append("the tolerance is below what the rounding of the map allows")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)
