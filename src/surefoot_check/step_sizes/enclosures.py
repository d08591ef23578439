"""What the checker must read and bound of gradient and proximal gradient descent with learned step sizes.

The weights of a run are the iterate x (N, d), the constants beta (N,) that steps are measured in, and the range (2,) =
(lo, hi) of the relative steps P. A step is x_p - (P/beta_p)⊙g_p, or its proximal form, with any P in [lo, hi]^d: the
weights of the network that chooses P are no part of any claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import FormatError, within
from ..problems import Array, Interval, Problem, ball
from ..rigor.bounds import down, up
from .batches import Batch, LeastSquaresBatch, PenalisedBatch

FIXED: tuple[str, ...] = ("beta", "range")
"""Weights that no iteration changes."""
SHAPES = {"x": 2, "beta": 1, "range": 1}
EXACT = ("range_low", "range_high")
"""Base quantities that are stored, not measured: to be published as they are."""
LARGEST = 1e40
BETAS = (1e-90, 1e90)
"""Admissible beta: ratios to it neither overflow nor vanish."""


def read_weights(arrays: Mapping[str, Array], problem: Problem, name: str) -> dict[str, Array]:
    """x (N, d), beta (N,), range (2,), float64, of the arrays of the file ``name``."""
    if not isinstance(problem, Batch):
        raise FormatError(f"{name}: learned step sizes do not solve a problem of kind {problem.kind!r}")
    weights: dict[str, Array] = {}
    for key, dimensions in SHAPES.items():
        array = arrays.get(key)
        if array is None or array.dtype != np.float64 or array.ndim != dimensions or array.size == 0:
            raise FormatError(f"{name}: {key} is missing or malformed")
        if not np.isfinite(array).all():
            raise FormatError(f"{name}: {key} has entries that are not finite")
        weights[key] = array
    x, beta, interval = weights["x"], weights["beta"], weights["range"]
    if x.shape != (problem.count, problem.columns) or beta.shape != (problem.count,) or interval.shape != (2,):
        raise FormatError(f"{name}: x, beta and range do not fit each other or the problem")
    within(f"{name}: x", x, LARGEST)
    require_betas(f"{name}: beta", beta)
    if not 0.0 <= interval[0] <= interval[1]:
        raise FormatError(f"{name}: range is {interval[0]} .. {interval[1]}; it must be increasing and not negative")
    return weights


def require_betas(name: str, beta: Array) -> None:
    """``FormatError`` unless every entry is admissible."""
    if not ((beta >= BETAS[0]) & (beta <= BETAS[1])).all():
        raise FormatError(
            f"{name} has entries outside {BETAS[0]:.0e} .. {BETAS[1]:.0e}: they are {beta.min():.3g} .. {beta.max():.3g}"
        )


def sizes(problem: Problem, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Problems N, rows b, columns d, and whether the steps are proximal."""
    assert isinstance(problem, Batch)
    return {"N": problem.count, "b": problem.rows, "d": problem.columns, "proximal": problem.proximal}


def gap_upper(problem: Problem, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the sum of the problems' gaps."""
    assert isinstance(problem, Batch)
    return _sum_up([problem.gap_bound(p, x) for p, x in enumerate(weights["x"])])


def gap_exact(problem: Problem, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the sum in ball arithmetic."""
    assert isinstance(problem, Batch)
    low, high = ball(0.0), ball(0.0)
    for p, x in enumerate(weights["x"]):
        least, most = problem.gap_balls(p, x)
        low, high = low + least, high + most
    return (low if low > 0 else None), high.upper()


def base_quantities(
    problem: Problem, weights: Mapping[str, Array], quantities: Mapping[str, float] | None = None
) -> dict[str, Interval]:
    """Enclosures of the quantities in ``theorems.step_sizes.DIRECTIONS`` that the kind of problem has.

    A quantity without a finite bound is left out. ``quantities`` is not needed: nothing is defined on a published set.
    """
    assert isinstance(problem, Batch)
    beta = [float(b) for b in weights["beta"]]
    low, high = (float(v) for v in weights["range"])
    found: dict[str, Interval] = {
        "initial_gap": (0.0, gap_upper(problem, weights)),
        "range_low": (low, low),
        "range_high": (high, high),
        "smoothness_ratio": _extreme([_quotient(s, b) for s, b in zip(problem.smoothness, beta, strict=True)], max),
    }
    if isinstance(problem, LeastSquaresBatch):
        # of a matrix without a nonzero entry there is nothing to contract
        some = [p for p in range(problem.count) if problem.M[p].any()] or range(problem.count)
        found["convexity_ratio"] = _extreme([_quotient(problem.smallest[p], beta[p]) for p in some], min)
    if isinstance(problem, PenalisedBatch):
        convexity = zip(problem.strong_convexity, problem.smoothness, beta, strict=True)  # lower bounds, at most β1
        found["loss_convexity_ratio"] = _extreme([_quotient((mu, high), b) for mu, (_, high), b in convexity], min)
        penalty = [_quotient((float(m), float(m)), b) for m, b in zip(problem.l2, beta, strict=True)]
        found["penalty_convexity_ratio"] = _extreme(penalty, min)
        radii = [_radius(problem, p, x) for p, x in enumerate(weights["x"])]
        energies = [up(b * up(radius * radius), 2) for b, radius in zip(beta, radii, strict=True)]
        found["radius_energy"] = (0.0, _sum_up(energies))
    return {name: (a, b) for name, (a, b) in found.items() if math.isfinite(a) and math.isfinite(b)}


def _radius(problem: PenalisedBatch, p: int, x: Array) -> float:
    """Bound of the distance from a minimiser within {F_p ≤ F_p(x)}: (F(x)+F(ŵ))/lam, and sqrt(2 gap/μ)."""
    lam = float(problem.lam[p])
    mu = down(problem.strong_convexity[p] + float(problem.l2[p]))
    radius = math.inf
    if lam > 0.0:
        value = problem.objective(p, x)[1]
        radius = up((value + min(value, problem.objective(p, problem.optimum[p])[1])) / lam, 2)
    if mu > 0.0:
        radius = min(radius, up(math.sqrt(up(2.0 * problem.gap_bound(p, x) / mu)), 2))
    return radius


def _quotient(value: Interval, beta: float) -> Interval:
    return max(0.0, down(value[0] / beta)), up(value[1] / beta)


def _extreme(values: list[Interval], choose: Any) -> Interval:
    """Enclosure of the largest or smallest of several numbers."""
    return choose(low for low, _ in values), choose(high for _, high in values)


def _sum_up(values: list[float]) -> float:
    """Upper bound of a sum of numbers that are not negative."""
    return up(math.fsum(values)) if all(map(math.isfinite, values)) else math.inf
