"""A theorem evaluated again along a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from surefoot_check.statement import SLACK

from .certificate import Certificate


@dataclass(frozen=True)
class Recertification:
    """The theorem evaluated again at iterate ``iteration`` of a run."""

    iteration: int
    certificate: Certificate

    def iterations_to(self, absolute_gap: float) -> float:
        """Total guaranteed iterations of the run to an absolute gap, counted from its start; ``inf`` to a gap of 0."""
        gap = self.certificate.initial_gap
        if gap <= absolute_gap:
            return self.iteration
        relative = absolute_gap / gap
        return self.iteration + self.certificate.iterations_to(relative) if relative > 0.0 else math.inf

    def bound(self, iteration: int) -> float:
        """Guaranteed upper bound on the gap at an iteration of the run, not before its own."""
        return self.certificate.bound(iteration - self.iteration)

    def promises_at_most(self, earlier: Recertification, floor: float) -> bool:
        """Whether the bound lies under that of an earlier one from here on, until that one guarantees a gap of ``floor``.

        Between the ends of segments both bounds are geometric, so that the ends decide.
        """
        end = earlier.iterations_to(floor)
        starts = {phase.iteration + s.start for phase in (self, earlier) for s in phase.certificate.schedule}
        compared = {t for t in starts | {t - 1 for t in starts} if self.iteration <= t <= end}
        if end < math.inf:
            compared.add(max(self.iteration, int(end)))
        elif self.certificate.schedule[-1].decrease < earlier.certificate.schedule[-1].decrease:
            return False
        return all(self.bound(t) <= (1.0 - SLACK) * earlier.bound(t) for t in compared)
