"""Exact gradient descent on a linear network, enclosed: the arithmetic of the replay.

Exact descent Z ← Z - η∇L(Z) is enclosed by a centre, matrices of some hundred bits, and one radius e for all weights together:
‖Z - centre‖_F ≤ e. The step from the centre is evaluated in balls; their midpoints are the next centre, and their radii what
was rounded. The ball around the centre moves with it. With -b ≤ ∇²L ≤ g + b on the ball, g of the Gauss-Newton part and b of
the rest,

    e ← max(1 + ηb, η(g + b) - 1) e + Σ radii,        |L(Z) - L(centre)| ≤ ‖∇L(centre)‖ e + (g + b) e² / 2.

b is of the size of the residual and converges to zero with it, so that steps below 2/g hardly move e; balls carried
entry by entry would grow by a constant factor in each step. Longer steps, and saddles, do amplify errors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat

from .problems import LARGEST, LinearMapProblem
from .rigor.balls import ball
from .rigor.bounds import Array, frobenius_upper, up

FLOOR = 1e-6
"""The size that a defect is relative to is that of the weights or the map, plus this part of what is rounded on the way to it:
of the Gram matrix, for a map that almost cancels; of the identity, for residual layers that are almost zero."""
MOST_BITS = 1 << 14
"""Largest precision."""
SPARE_BITS = 24
"""Bits that the centre has below the radius."""


def entry_sum(M: Any) -> Any:
    """Sum of the entries; of balls around 0, one whose radius is the sum of theirs, and at least their norm."""
    rows, columns = M.nrows(), M.ncols()
    return (arb_mat(1, rows, [1] * rows) * M * arb_mat(columns, 1, [1] * columns))[0, 0]


def floats_of(M: Any) -> Array:
    """Midpoints in floats, each within an ulp."""
    return np.array([float(x) for x in M.entries()]).reshape(M.nrows(), M.ncols())


# -- networks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """At a centre: the gradient (balls), bounds of its norm and of the gap there; g and b on the ball around it."""

    gradient: list[Any]
    slope: Any
    low: Any
    high: Any
    gauss_newton: Any
    bend: Any


class Descent(ABC):
    """The centre, a list of matrices, and the radius of exact descent."""

    centre: list[Any]
    radius: Any
    scale: Any
    """Size of the numbers that are added up in the weights, at the start."""

    def __init__(self, problem: LinearMapProblem, weights: Mapping[str, Array], bits: int) -> None:
        self.problem, self.loss = problem, problem.exact_loss()

    @staticmethod
    @abstractmethod
    def multiplications(arrays: Mapping[str, Array], weights: Mapping[str, Array], steps: int, stored: int) -> int:
        """About how many there are in a replay of so many steps with so many stored weights."""

    @abstractmethod
    def look(self) -> Look:
        """What a step from here needs."""

    @abstractmethod
    def defects(self, weights: Mapping[str, Array]) -> list[tuple[str, Any, Any, Any, Any]]:
        """Of stored weights: by name, bounds of the distance from exact descent, and of the size that it is relative to."""

    def step(self, here: Look, eta: float) -> None:
        """Take a step of exact descent."""
        step = ball(eta)
        balls = [M - G * step for M, G in zip(self.centre, here.gradient, strict=True)]
        self.centre = [M.mid() for M in balls]
        rounded = sum((entry_sum(M - N) for M, N in zip(balls, self.centre, strict=True)), arb(0)).abs_upper()
        factor = (1 + step * here.bend).max(step * (here.gauss_newton + here.bend) - 1)
        self.radius = (factor * self.radius + rounded).upper()

    def enough_bits(self) -> int:
        """The precision beyond which the radius would hardly grow less."""
        if self.radius == 0:
            return MOST_BITS
        ratio = self.scale / self.radius
        return max(64, int(float(ratio.log()) / math.log(2.0)) + SPARE_BITS) if ratio > 1 else 64

    def gap(self, here: Look) -> tuple[Any, Any]:
        """Bounds of the gap of exact descent."""
        moved = here.slope * self.radius
        moved += (here.gauss_newton + here.bend) * self.radius * self.radius / 2
        return (here.low - moved).lower(), (here.high + moved).upper()

    def float_ball(self) -> tuple[list[Array], float]:
        """The centre in floats, and the radius of a ball around it that holds the one around the centre.

        Raises:
            OverflowError: errors are as large as the weights, or these too large for products in floats.
        """
        floats = [floats_of(M) for M in self.centre]
        if not (self.radius < self.scale and all((np.abs(M) <= LARGEST).all() for M in floats)):
            raise OverflowError("the weights exceed 1e50, or the errors the weights")
        rounding = 2.0**-52 * sum(map(frobenius_upper, floats)) + 1e-300
        return floats, up(float(self.radius) + rounding, 8 + len(floats))


def multiplications_of_loss(arrays: Mapping[str, Array]) -> int:
    """About how many there are in one gradient of the loss."""
    if "counts" in arrays:
        return 3 * arrays["counts"].size
    design = arrays["X"] if "X" in arrays else arrays["A"]
    outputs = 1 if "y" in arrays else arrays["optimum"].shape[1]
    each = 2 * design.size * outputs
    return each + 100 * len(design) * outputs if "labels" in arrays else each  # exponentials
