"""Which step lengths a nonmonotone Barzilai–Borwein search tries and accepts (Wen and Yin, 2013, algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

DECREASE = 1e-4
"""Share of the linear decrease that is asked for."""
FORGETTING = 0.85
"""Weight of the past in the reference value of Zhang and Hager (2004): 0 is a monotone search."""
SHORTEN = 0.3
TRIALS = 40
"""Step lengths tried before the search gives up: the last is 1e-21 times the first."""


@dataclass
class NonmonotoneSearch:
    """The reference value, a weighted mean of the accepted values, and the number of accepted steps.

    Args:
        reference: f at the start.
        unit: rounding unit of the values; differences below a few units of the reference are noise and accepted.
    """

    reference: float
    unit: float
    weight: float = 1.0
    accepted: int = 0

    def first_trial(self, ss: float, sy: float, yy: float, fallback: float) -> float:
        """The Barzilai–Borwein length: ⟨s,s⟩/|⟨s,y⟩| and |⟨s,y⟩|/⟨y,y⟩ in turn, s and y the last changes of point and gradient.

        ``fallback`` where there was no step yet, or the quotient does not exist.
        """
        numerator, denominator = (ss, abs(sy)) if self.accepted % 2 == 0 else (abs(sy), yy)
        if self.accepted == 0 or not (0.0 < numerator < math.inf and 0.0 < denominator < math.inf):
            return fallback
        return numerator / denominator

    def accepts(self, value: float, length: float, slope: float) -> bool:
        """Whether a trial of this length is finite and low enough; ``slope`` is the rate of decrease at length 0."""
        return math.isfinite(value) and value <= self.reference + self._noise - DECREASE * length * slope

    def below(self, value: float, other: float) -> bool:
        """Whether ``value`` is lower by more than rounding."""
        return value < other - self._noise

    @property
    def _noise(self) -> float:
        return 4.0 * self.unit * abs(self.reference)

    def accept(self, value: float) -> None:
        """Take the trial's value into the reference."""
        weight = FORGETTING * self.weight + 1.0
        self.reference = (FORGETTING * self.weight * self.reference + value) / weight
        self.weight = weight
        self.accepted += 1
