"""What is proved of one layer, from the stored iterate before it to the one after it (docs/theorems/layers.md).

From x, y_i(P) = prox_{(P/β)h_i}(x_i - (P/β)∇_i f(x)) for P in a grid; a layer of weights w in simplices, one for each sector,
goes to x_i⁺ = Σ_j w_{s(i),j} y_i(P_j). F(x⁺) is convex in w. For any u and any z with |z_i| ≤ λ, h(x) ≥ ⟨z, x⟩ + (μ_h/2)‖x‖²
and the convexity of the rest give, with c = ∇f(u) + μ_h u + z, for every layer of these sectors

    F(u) - F(x⁺) ≤ Σ_i (λ|u_i| - z_i u_i) + Σ_s max_j Σ_{i in s} c_i (u_i - y_i(P_j)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..rigor.bounds import UNIT_ROUNDOFF, Array, array_up, gamma, up
from ..rigor.intervals import TINY, Interval
from .entrywise import Enclosed
from .problems import Problems

PRODUCER = 8.0
"""An iterate is the layer's output where it differs by at most so many times the a-priori error of computing it in floats."""


@dataclass(frozen=True)
class Point:
    """An iterate (N, d) with what is computed of it once: its image under M, ∇f there, and its objective."""

    x: Array
    image: Enclosed
    gradient: Enclosed
    objective: Interval


@dataclass(frozen=True)
class Layer:
    """One layer, and what is proved of it."""

    after: Point
    constants: list[Interval]
    """Objectives after the constant steps of the grid."""
    gap: float
    """At least F(x⁺) - the least objective after any layer of these sectors."""
    rounding: float
    """By how much the objective differs on the box of what float64 rounds the layer's output to, at most."""
    distance: float
    """At least the largest magnitude of an entry of x⁺ less the layer's output."""
    as_computed: bool
    """Whether all entries are the layer's output as far as float64 allows."""


def point(problems: Problems, x: Array) -> Point:
    """The first iterate."""
    at = Enclosed.exactly(x[:, :, None])
    image = problems.image(at)
    return Point(x, image, problems.gradient(image), problems.objectives(at, image)[0])


def layer(
    problems: Problems,
    rough: Problems,
    before: Point,
    x: Array,
    grid: Array,
    weights: Array,
    sectors: NDArray[np.int64],
    z: Array | None,
) -> Layer:
    """What is proved of the layer ``weights`` (K, m) from ``before`` to ``x`` (N, d); ``rough`` is the batch at level fast."""
    steps = problems.steps(before.x[:, :, None], before.gradient, grid)
    points = Enclosed(*(np.concatenate(pair, axis=2) for pair in _with(steps, Enclosed.exactly(x[:, :, None]))))
    images = problems.image(points)
    objectives = problems.objectives(points, images)
    image = images.last()
    after = Point(x, image, problems.gradient(image), objectives[-1])
    output = _mixed(steps, weights[sectors])
    in_floats = output
    if rough.level is not problems.level:
        gradient = rough.gradient(rough.image(Enclosed.exactly(before.x[:, :, None])))
        in_floats = _mixed(rough.steps(before.x[:, :, None], gradient, grid), weights[sectors])
    allowed = PRODUCER * (in_floats.radius + UNIT_ROUNDOFF * (np.abs(before.x) + np.abs(x)))
    distance = array_up(np.abs(x - output.value) * (1.0 + UNIT_ROUNDOFF) + output.radius, 3)
    box = Enclosed(x[:, :, None], allowed[:, :, None])
    least, most = rough.objectives(box, rough.image(box))[0]
    return Layer(
        after=after,
        constants=objectives[:-1],
        gap=_gap(problems, after, steps, sectors, len(weights), z),
        rounding=up(most - least),
        distance=float(distance.max()),
        as_computed=bool((np.abs(x - output.value) <= allowed + output.radius).all()),
    )


def _with(first: Enclosed, second: Enclosed) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    return (first.value, second.value), (first.radius, second.radius)


def _mixed(steps: Enclosed, weights: Array) -> Enclosed:
    """Σ_j w_j y_j of weights (N, d, m) that are not negative."""
    terms = steps.value.shape[2]
    size = (weights * np.abs(steps.value)).sum(axis=2)
    radius = (weights * steps.radius).sum(axis=2) + gamma(terms + 1) * size
    return Enclosed((weights * steps.value).sum(axis=2), array_up(radius + TINY, 2 * terms + 6))


def _gap(
    problems: Problems, after: Point, steps: Enclosed, sectors: NDArray[np.int64], count: int, z: Array | None
) -> float:
    """The bound in the module's docstring."""
    u, m = after.x[:, :, None], steps.value.shape[2]
    slope = after.gradient
    if problems.l2.any():
        slope = slope + Enclosed.exactly(problems.l2[:, None, None]) * Enclosed.exactly(u)
    least = 0.0
    if z is not None:
        slope = slope + Enclosed.exactly(z[:, :, None])
        size = problems.lam[:, None] * np.abs(after.x)
        least = _sum_above(size - z * after.x, 3.0 * UNIT_ROUNDOFF * (size + np.abs(z * after.x)) + TINY)
    terms = slope * (Enclosed.exactly(u) - steps)
    # entry (s, j) of a table is the sum over sector s of the terms with P_j
    places = (sectors[:, :, None] * m + np.arange(m)).ravel()

    def table(values: Array) -> Array:
        return np.bincount(places, values.ravel(), count * m).astype(np.float64).reshape(count, m)

    added = int(np.bincount(sectors.ravel()).max())
    radius = table(terms.radius) + gamma(added) * table(np.abs(terms.value))
    highest = array_up(table(terms.value) + array_up(radius, 2 * added + 4), 1).max(axis=1)
    return up(math.fsum([least, *highest]))


def _sum_above(values: Array, errors: Array) -> float:
    """Upper bound of the sum of numbers known up to errors, themselves computed by few operations."""
    return up(math.fsum(np.concatenate([values.ravel(), array_up(errors, 6).ravel()])))
