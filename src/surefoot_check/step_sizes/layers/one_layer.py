"""What is proved of one layer, from the stored iterate before it to the one after it (docs/theorems/layers.md).

From x, y_i(P) = prox_{(P/β)h_i}(x_i - (P/β)∇_i f(x)) for P in a grid; a layer of weights w in simplices, one for each sector,
goes to x_i⁺ = Σ_j w_{s(i),j} y_i(P_j). What it lowers is J = g + h, g convex and smooth: F, or of least squares the objective
after more steps of given lengths. For any point u and c = ∇g(u), the layer of one grid point in each sector that goes to y has
J(y) ≥ g(u) + ⟨c, y - u⟩ + h(y), and so

    J(u) - J(y) ≤ Σ_s max_j Σ_{i in s} [c_i (u_i - y_i(P_j)) + h_i(u_i) - h_i(y_i(P_j))].

Of least squares h = 0, and the same is true of any convex combinations of the grid points, as y is linear in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...rigor.bounds import UNIT_ROUNDOFF, Array, array_up, gamma, up
from ...rigor.intervals import TINY, Interval
from .entrywise import Enclosed
from .problems import Problems

PRODUCER = 8.0
"""An iterate is the layer's output where it differs by at most so many times the a-priori error of computing it in floats."""


@dataclass(frozen=True)
class Point:
    """An iterate x (N, d) with what is computed of it once."""

    x: Array
    gradient: Enclosed
    """∇f (N, d, 1)."""
    objective: Interval
    """Of ΣF_p."""
    value: Interval
    """Of J."""


@dataclass(frozen=True)
class Proved:
    """What is proved of a layer."""

    after: Point
    constant: float
    """At least J after the best of the steps of the grid, each for all coordinates."""
    gap: float
    """At least J after it less J after the layer of any one grid point in each sector."""
    rounding: float
    """At least the width of the range of F over what float64 may round the layer's output to."""
    value_rounding: float
    """The same of J."""
    distance: float
    """At least the largest magnitude of an entry of x⁺ less the layer's output."""
    as_computed: bool
    """Whether all entries are the layer's output as far as float64 allows."""
    rough: Enclosed
    """∇f before it, enclosed at level fast: the radius is the a-priori error of float64."""


def first_point(problems: Problems, x: Array, schedule: Array) -> Point:
    """The first iterate, before the steps of the schedule."""
    at = Enclosed.exactly(x[:, :, None])
    residual = problems.residual(at)
    objective = problems.objectives(at, residual)[0]
    value = problems.squares(problems.carried(residual, schedule))[0] if len(schedule) else objective
    return Point(x, problems.gradient(residual), objective, value)


def prove(
    problems: Problems,
    rough: Problems,
    before: Point,
    x: Array,
    grid: Array,
    weights: Array,
    sectors: NDArray[np.integer],
    rest: Array,
) -> Proved:
    """What is proved of the layer ``weights`` (K, m) from ``before`` to ``x`` (N, d).

    Args:
        rough: the problems at level fast.
        sectors: (N, d).
        rest: the steps P (n, 1) of the schedule that follow, of J; none where J is F.
    """
    steps = problems.steps(before.x[:, :, None], before.gradient, grid)
    output = in_floats = _mixed(steps, weights[sectors])
    as_rough = before.gradient
    if rough.level is not problems.level:
        as_rough = rough.gradient(rough.residual(Enclosed.exactly(before.x[:, :, None])))
        in_floats = _mixed(rough.steps(before.x[:, :, None], as_rough, grid), weights[sectors])
    allowed = PRODUCER * (in_floats.radius + UNIT_ROUNDOFF * (np.abs(before.x) + np.abs(x)))
    points = steps.beside(Enclosed(x[:, :, None], allowed[:, :, None])).beside(Enclosed.exactly(x[:, :, None]))
    residuals = problems.residual(points)
    residual = residuals.column(-1)
    gradient, values = problems.gradient(residual), problems.objectives(points, residuals)
    slope, (*_, (lowest, highest), objective) = gradient, values
    if len(rest):
        carried = problems.carried(residuals, rest)
        # the operator of the steps that follow is symmetric
        slope, values = problems.pulled(problems.carried(carried.column(-1), rest)), problems.squares(carried)
    *constants, (least, most), value = values
    after = Point(x, gradient, objective, value)
    return Proved(
        after=after,
        constant=min(high for _, high in constants),
        gap=_gap(problems, x[:, :, None], slope, steps, sectors, len(weights)),
        rounding=up(highest - lowest),
        value_rounding=up(most - least),
        distance=float(array_up(np.abs(x - output.value) + output.radius, 3).max()),
        as_computed=bool((np.abs(x - output.value) <= allowed + output.radius).all()),
        rough=as_rough,
    )


def _mixed(steps: Enclosed, weights: Array) -> Enclosed:
    """Σ_j w_j y_j of weights (N, d, m) that are not negative."""
    terms = steps.value.shape[2]
    size = (weights * np.abs(steps.value)).sum(axis=2)
    radius = (weights * steps.radius).sum(axis=2) + gamma(terms + 1) * size
    return Enclosed((weights * steps.value).sum(axis=2), array_up(radius + TINY, 2 * terms + 6))


def _gap(
    problems: Problems, u: Array, slope: Enclosed, steps: Enclosed, sectors: NDArray[np.integer], count: int
) -> float:
    """The bound in the module's docstring."""
    at, m = Enclosed.exactly(u), steps.value.shape[2]
    terms = slope * (at - steps)
    if problems.batch.proximal:
        terms = terms + (problems.penalties(at) - problems.penalties(steps))
    # entry (s, j) of a table is the sum over sector s of the terms with P_j
    places = (sectors[:, :, None].astype(np.int64) * m + np.arange(m)).ravel()

    def table(values: Array) -> Array:
        return np.bincount(places, values.ravel(), count * m).astype(np.float64).reshape(count, m)

    added = int(np.bincount(sectors.ravel()).max())
    errors = table(terms.radius) + gamma(added) * table(np.abs(terms.value))
    highest = array_up(table(terms.value) + array_up(errors, 2 * added + 4), 1).max(axis=1)
    return up(math.fsum(highest))
