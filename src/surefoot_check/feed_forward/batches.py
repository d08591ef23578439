"""Rigorous enclosures of what mini-batch descent near an exact fit rests on: the base quantities of ``feed-forward/sgd``.

K = JJᵀ at the weights gives the norms of all batches. On a ball of radius ρ they, the singular values of J and what a batch does
in the mean change by at most Λρ each. C_SJ are rows of J, so that it changes at most Λ times as much as the weights, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ..rigor.batch_norms import blocks_on_diagonal, largest_norm_square, second_moment
from ..rigor.bounds import down, up
from ..rigor.intervals import Interval

if TYPE_CHECKING:
    from .enclosures import Measured

RADII = ("fit_ball", "ball", "inner_ball")


class Batches:
    """Batches of so many of the rows of X, which all differ: equal ones are merged in J."""

    def __init__(self, at: Measured, size: int) -> None:
        self._at, self._size = at, size

    @cached_property
    def _norms(self) -> Interval:
        """Upper bounds of ‖C_SJ‖ for every S, and of √ω, at the weights."""
        at, size = self._at, self._size
        K, rows, level, largest = at.gram, at.problem.Y.shape[1], at.problem.level, at.singular_values[1][1]
        square = up(largest * largest)
        norm = largest_norm_square(K, rows, size, square, level)
        mean = second_moment(K, blocks_on_diagonal(K, rows), len(at.problem.X), size, square, level)
        return up(math.sqrt(norm)), up(math.sqrt(mean))

    def on_ball(self, radius: float) -> dict[str, Interval]:
        """Enclosures on the ball of this radius; ``sigma`` is the least singular value of J."""
        (least, most), (_, largest) = self._at.singular_values
        (norm, mean), bend = self._norms, self._at.lipschitz(radius)
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


def of_batches(at: Measured, quantities: Mapping[str, float]) -> dict[str, Interval]:
    """Enclosures of those that depend on the published ``batch`` and ``RADII``; none where they are impossible."""
    size, radii = quantities["batch"], [quantities.get(name, math.nan) for name in RADII]
    possible = at.problem.groups.all_differ and 1.0 <= size <= len(at.problem.X) and size == math.floor(size)
    if not possible or not all(radius >= 0.0 for radius in radii):
        return {}
    near, there, inner = map(Batches(at, int(size)).on_ball, radii)
    of_ball, of_inner = there.pop("sigma"), inner["sigma"]
    return {**there, "lipschitz_fit": near["lipschitz_J"], "sigma_ball": of_ball, "sigma_inner": of_inner}
