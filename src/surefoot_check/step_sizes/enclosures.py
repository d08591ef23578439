"""What the checker must read and bound of gradient and proximal gradient descent with learned step sizes.

The weights of a run are the iterate x (N, d), the constants beta (N,) that steps are measured in, and the range (2,) =
(lo, hi) of the relative steps P. A step is x_p - (P/beta_p)⊙g_p, or its proximal form, with any P in [lo, hi]^d: the
weights of the network that chooses P are no part of any claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..arrays import FormatError, numbers
from ..problems import one_of
from ..rigor.balls import ball
from ..rigor.bounds import FAST, Array, Level, down, up
from ..rigor.intervals import Interval, bounded, quotient_of, sum_up
from .batches import Batch, LassoBatch, LeastSquaresBatch, LogisticBatch, PenalisedBatch

FIXED: tuple[str, ...] = ("beta", "range")
SHAPES = {"x": 2, "beta": 1, "range": 1}
EXACT = ("range_low", "range_high")
"""Base quantities that are stored, not measured: to be published as they are."""
LARGEST = 1e40
BETAS = (1e-90, 1e90)
"""Admissible beta: ratios to it neither overflow nor vanish."""


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Batch:
    """A batch of problems."""
    return one_of((LeastSquaresBatch, LassoBatch, LogisticBatch), kind, arrays, level, "learned step sizes")


def read_weights(arrays: Mapping[str, Array], problem: Batch, name: str) -> dict[str, Array]:
    """x (N, d), beta (N,), range (2,), float64, of the arrays of the file ``name``."""
    largest = {"x": LARGEST, "beta": math.inf, "range": math.inf}
    weights = {key: numbers(arrays.get(key), f"{name}: {key}", largest[key], n) for key, n in SHAPES.items()}
    x, beta, interval = weights.values()
    if x.shape != (problem.count, problem.columns) or beta.shape != (problem.count,) or interval.shape != (2,):
        raise FormatError(f"{name}: x, beta and range do not fit each other or the problem")
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


def sizes(problem: Batch, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Problems N, rows b, columns d, and whether the steps are proximal."""
    return {"N": problem.count, "b": problem.rows, "d": problem.columns, "proximal": problem.proximal}


def gap_upper(problem: Batch, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of the sum of the problems' gaps."""
    return sum_up([problem.gap_bound(p, x) for p, x in enumerate(weights["x"])])


def gap_exact(problem: Batch, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the sum in ball arithmetic."""
    low, high = ball(0.0), ball(0.0)
    for p, x in enumerate(weights["x"]):
        least, most = problem.gap_balls(p, x)
        low, high = low + least, high + most
    return (low if low > 0 else None), high.upper()


def base_quantities(
    problem: Batch, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """Enclosures of the quantities in ``constants.DIRECTIONS`` that the kind of problem has, and that have a finite bound."""
    beta = [float(b) for b in weights["beta"]]
    low, high = (float(v) for v in weights["range"])
    enclosures: dict[str, Interval] = {
        "initial_gap": (0.0, gap_upper(problem, weights)),
        "range_low": (low, low),
        "range_high": (high, high),
        "smoothness_ratio": _extreme([quotient_of(s, b) for s, b in zip(problem.smoothness, beta, strict=True)], max),
    }
    if isinstance(problem, LeastSquaresBatch):
        # of a matrix without a nonzero entry there is nothing to contract
        some = [p for p in range(problem.count) if problem.M[p].any()] or range(problem.count)
        enclosures["convexity_ratio"] = _extreme([quotient_of(problem.smallest[p], beta[p]) for p in some], min)
    if isinstance(problem, PenalisedBatch):
        convexity = zip(problem.strong_convexity, problem.smoothness, beta, strict=True)  # lower bounds, at most β1
        enclosures["loss_convexity_ratio"] = _extreme(
            [quotient_of((mu, high), b) for mu, (_, high), b in convexity], min
        )
        penalty = [quotient_of((float(m), float(m)), b) for m, b in zip(problem.l2, beta, strict=True)]
        enclosures["penalty_convexity_ratio"] = _extreme(penalty, min)
        radii = [_radius(problem, p, x) for p, x in enumerate(weights["x"])]
        energies = [up(b * up(radius * radius), 2) for b, radius in zip(beta, radii, strict=True)]
        enclosures["radius_energy"] = (0.0, sum_up(energies))
    return bounded(enclosures)


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


def _extreme(values: list[Interval], choose: Any) -> Interval:
    """Enclosure of the largest or smallest of several numbers."""
    return choose(low for low, _ in values), choose(high for _, high in values)
