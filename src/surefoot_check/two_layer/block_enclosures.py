"""What Theorem B and Corollary D need of concrete arrays: the state of any weights, in the units of ``path.Start``, and what a
repeated block from a state guarantees.

With Z = [W1; W2], ZZᵀ = [P C; Cᵀ N] in blocks and s² given, w = C/s² and R1 = P/s² - I - ½wwᵀ, R2 = N/s² - I - ½wᵀw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..problems import Squared
from ..rigor.approximation import Approximation
from ..rigor.bounds import UNIT_ROUNDOFF, Array, difference_with_error, down, frobenius_upper, minus_multiple, up
from ..rigor.gram import norm_bounds
from .blocks import Cycle, Problem, State, cycle
from .path import LONGEST, Start


def state_of(problem: Squared, weights: Mapping[str, Array], scale: float, start: Start) -> State:
    """The state of any weights in units of s² = ``scale``, with nothing known of how descent came there: G1 = G2 = 0."""
    level, (n, _) = problem.level, problem.shape
    G, error = level.signed_gram(np.concatenate([weights["W1"], weights["W2"]]))
    C = np.ascontiguousarray(G[:n, n:])
    linear_map = Approximation(C, error)
    moved = up(2.0 * frobenius_upper(C) * error + error * error, 4)  # of CCᵀ and of CᵀC

    def remainder(block: Array, factor: Array) -> float:
        """Upper bound of the norm of R1 or R2, from P or N, and C or Cᵀ."""
        square, square_error = level.signed_gram(factor)
        half = square * (0.5 / scale)
        apart = minus_multiple(block, scale)
        difference, rounding = difference_with_error(apart, half)
        slip = UNIT_ROUNDOFF * (frobenius_upper(apart) + 2.0 * frobenius_upper(half)) + 1e-300 * half.size
        total = frobenius_upper(difference) + rounding + slip + error + (square_error + moved) * (0.5 / scale)
        return up(total / scale, 16)

    gap = problem.gap_upper(linear_map)
    return State.of(
        residual=up(math.sqrt(up(gap / down(start.gap_unit, 8))), 2),
        distance=up(problem.distance(linear_map)[1] / scale),
        size=up(up(norm_bounds(C, level)[1] + error) / scale),
        remainder1=remainder(np.ascontiguousarray(G[:n, :n]), C),
        remainder2=remainder(np.ascontiguousarray(G[n:, n:]), np.ascontiguousarray(C.T)),
        gram=0.0,
    )


def problem_of(problem: Squared, scale: float, start: Start) -> Problem:
    """Its constants in the units of ``start``."""
    unit = start.step_unit / (2.0 * scale)  # a power of two
    return Problem(
        strong_convexity=max(0.0, down(problem.strong_convexity()[0] / unit)),
        smoothness=up(problem.smoothness()[1] / unit),
        optimum=up(problem.optimum_singular_values()[1][1] / scale),
    )


def repeated(problem: Squared, scale: float, start: Start, state: State | None, steps: Array) -> Cycle | None:
    """The steps η (T,) for ever from this state."""
    tau = steps * start.step_unit
    if state is None or not (tau <= LONGEST).all():
        return None
    constants = problem_of(problem, scale, start)
    return cycle(constants, state, tau) if constants.strong_convexity > 0.0 else None
