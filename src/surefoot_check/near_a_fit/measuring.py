"""What the two theorems rest on, from the residual at the weights and the Gram matrix of its Jacobian."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

from ..rigor.approximation import Approximation, least_solution
from ..rigor.bounds import Level, up
from ..rigor.gram import symmetric_extremes
from ..rigor.intervals import Interval, bounded, root_down


class NearAFit(ABC):
    """Each part is measured once, when it is needed."""

    level: Level

    @cached_property
    @abstractmethod
    def residual(self) -> Approximation:
        """r (rows, outputs)."""

    @cached_property
    @abstractmethod
    def gram(self) -> Approximation:
        """JJᵀ (n, n), exactly symmetric, output by output of one row after the other."""

    @abstractmethod
    def lipschitz(self, radius: float) -> float:
        """Upper bound of Λ on the ball of this radius; infinite where there is none."""

    @abstractmethod
    def on_ball(self, radius: float) -> dict[str, Interval]:
        """Enclosures of the base quantities of the ball."""

    @property
    def gap(self) -> float:
        """Upper bound of ½‖r‖²."""
        norm = self.residual.norm()
        return up(0.5 * norm * norm, 2)

    @cached_property
    def singular_values(self) -> tuple[Interval, Interval]:
        """Enclosures of σ_n(J), 0 where J has more rows than columns, and of ‖J‖."""
        least, largest = symmetric_extremes(self.gram.value, self.level, self.gram.error)
        roots = ((root_down(low), up(math.sqrt(max(0.0, high)))) for low, high in (least, largest))
        return next(roots), next(roots)

    @cached_property
    def newton_step(self) -> float:
        """Upper bound of ‖J⁺r‖; infinite where there is none."""
        column = Approximation(self.residual.value.reshape(-1, 1), self.residual.error)
        return least_solution(self.gram, column, self.singular_values[0][0], self.level)

    def base_quantities(self, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Enclosures of the base quantities; those of the ball where ``quantities`` has its radius, ``ball``, and ``newton_step``
        where it has one."""
        least, largest = self.singular_values
        found: dict[str, Interval] = {"initial_gap": (0.0, self.gap), "sigma_min_J": least, "norm_J": largest}
        if "newton_step" in quantities:
            found["newton_step"] = 0.0, self.newton_step
        radius = quantities.get("ball", math.nan)
        if radius >= 0.0:
            found |= self.on_ball(radius)
        return bounded(found)
