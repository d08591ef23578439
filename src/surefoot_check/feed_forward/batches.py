"""Rigorous enclosures of what mini-batch descent near an exact fit rests on: the base quantities of ``feed-forward/sgd``.

K = JJᵀ at the weights gives the norms of all batches. On a ball of radius ρ they, the singular values of J and what a batch does
in the mean change by at most Λρ each. C_SJ are rows of J, so that it changes at most Λ times as much as the weights, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..minibatch import on_published_balls
from ..rigor.approximation import Approximation
from ..rigor.batch_norms import blocks_on_diagonal, largest_norm_square, second_moment
from ..rigor.bounds import Level, down, up
from ..rigor.intervals import Interval


@dataclass(frozen=True)
class Batches:
    """Batches of ``size`` samples, of which each has ``rows`` rows of J."""

    gram: Approximation
    """K."""
    singular_values: tuple[Interval, Interval]
    """The least and the largest of J."""
    lipschitz: Callable[[float], float]
    """Λ by radius."""
    rows: int
    size: int
    level: Level

    @cached_property
    def _norms(self) -> Interval:
        """Upper bounds of ‖C_SJ‖ for every S, and of √ω, at the weights."""
        K, largest = self.gram, self.singular_values[1][1]
        square, samples = up(largest * largest), len(K.value) // self.rows
        norm = largest_norm_square(K, self.rows, self.size, square, self.level)
        mean = second_moment(K, blocks_on_diagonal(K, self.rows), samples, self.size, square, self.level)
        return up(math.sqrt(norm)), up(math.sqrt(mean))

    def on_ball(self, radius: float) -> dict[str, Interval]:
        """Enclosures on the ball of this radius; ``sigma`` is the least singular value of J."""
        (least, most), (_, largest) = self.singular_values
        (norm, mean), bend = self._norms, self.lipschitz(radius)
        moved = up(bend * radius)
        mean = up(mean + moved)
        return {
            "norm_J_ball": (0.0, up(largest + moved)),
            "lipschitz_J": (0.0, bend),
            "lipschitz_batch": (0.0, bend),
            "norm_batch": (0.0, up(norm + moved)),
            "second_moment": (0.0, up(mean * mean)),
            "sigma": (max(0.0, down(least - moved)), most),
        }

    def base_quantities(self, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Those that depend on the published radii; none where there are no such balls."""
        return on_published_balls(quantities, self.on_ball)
