"""What the checker must read and bound of learned matrix inverses.

The problem is an interval [l, u] of σ²/c0 over the nonzero singular values σ of a matrix; the weights are the
coefficients C (K, L). The *gap* after k layers is max |e_k| over e_0 ∈ [1-u, 1-l], where e_{k+1} = φ_k(e_k) and φ_k(e)
= 1 - (1-e) Σ_l C_kl e^l. As each layer is a polynomial of one variable, intervals propagated layer by layer lose
nothing but what each range is enclosed too widely (docs/theorems/inverse.md, Theorem 2). Everything here is in ball
arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

from ..arrays import FormatError, numbers
from ..problems import Problem, one_of
from ..rigor.balls import ball, float_above, float_below
from ..rigor.bounds import FAST, Array, Level
from ..rigor.intervals import Interval as Enclosure
from .constants import MAX_LAYERS, RESIDUALS

FIXED: tuple[str, ...] = ("C",)
KIND = "spectrum"
MAX_TERMS = 64
LARGEST = 1e30
"""Largest magnitude of a coefficient and of the interval: ranges neither overflow nor take long."""
PRECISION = 128
"""Bits of the ball arithmetic."""
EXCESS = 1e-12
"""Each range is enclosed with at most this excess, relative to its largest magnitude …"""
NOISE = 2.0**-100
"""… or to the sum of the magnitudes of the polynomial's terms, below which the excess is rounding."""
MAX_BOXES = 2_000
"""Boxes for each layer; if that is too few, the ranges are wider than ``EXCESS`` says, and still enclose."""


class Spectrum(Problem):
    """All matrices whose nonzero squared singular values lie in c0 [lower, upper]: ``interval`` (2,)."""

    kind = KIND
    dimensions: ClassVar = {"interval": 1}
    largest: ClassVar = LARGEST

    def __init__(self, interval: Array, level: Level = FAST) -> None:
        if interval.shape != (2,) or not 0.0 < interval[0] < interval[1]:
            raise FormatError(f"interval is {interval}; it must be two numbers, positive and increasing")
        self.level, (self.lower, self.upper) = level, interval.tolist()


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Spectrum:
    """An interval."""
    return one_of((Spectrum,), kind, arrays, level, "learned inverses")


def read_weights(arrays: Mapping[str, Array], problem: Spectrum, name: str) -> dict[str, Array]:
    """C (K, L), float64, of the arrays of the file ``name``."""
    if name != "initial.safetensors":
        raise FormatError(f"{name}: a learned inverse has no checkpoints; nothing is claimed of any")
    C = numbers(arrays.get("C"), f"{name}: C", LARGEST, 2)
    if C.shape[0] > MAX_LAYERS or C.shape[1] > MAX_TERMS:
        raise FormatError(f"{name}: C has shape {C.shape}; at most {MAX_LAYERS} layers of {MAX_TERMS} terms are read")
    return {"C": C}


def sizes(problem: Spectrum, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Layers K and terms L."""
    layers, terms = weights["C"].shape
    return {"K": layers, "L": terms}


def gap_upper(problem: Spectrum, weights: Mapping[str, Array]) -> float:
    """Upper bound of the gap of X_0."""
    return _start(problem).gap()[1]


def gap_exact(problem: Spectrum, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of the gap of X_0 in ball arithmetic."""
    low, high = _start(problem).gap()
    return ball(low), ball(high)


def base_quantities(
    problem: Spectrum, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Enclosure]:
    """Enclosures of the quantities in ``constants.DIRECTIONS``, residuals up to that of the last layer: infinite from the layer
    on that has no finite bound."""
    from flint import ctx

    C = weights["C"]
    enclosures: dict[str, Enclosure] = {
        "lower": (problem.lower, problem.lower),
        "upper": (problem.upper, problem.upper),
    }
    before = ctx.prec
    ctx.prec = PRECISION
    try:
        enclosures["deviation"] = _largest(ball(c) - 1 for c in C.ravel().tolist())
        ranges = _start(problem)
        enclosures["initial_gap"] = ranges.gap()
        finite = True
        for name, row in zip(RESIDUALS, C, strict=False):
            if finite:
                ranges = _image(residual_polynomial(row), ranges)
                enclosures[name] = ranges.gap()
                finite = math.isfinite(enclosures[name][1])
            if not finite:
                enclosures[name] = (0.0, math.inf)
    finally:
        ctx.prec = before
    return enclosures


def residual_polynomial(row: Array) -> Any:
    """φ(e) = 1 - (1-e) Σ_l c_l e^l as an ``arb_poly``: its coefficients are 1 - c_0, c_{j-1} - c_j and c_{L-1}."""
    from flint import arb_poly

    c = [ball(float(value)) for value in row]
    return arb_poly([1 - c[0], *(before - after for before, after in pairwise(c)), c[-1]])


# -- ranges ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ranges:
    """Two intervals with exact ends: ``outer`` contains the values of e_k, and each point of ``inner`` is one of them."""

    outer: tuple[Any, Any]
    inner: tuple[Any, Any] | None

    def gap(self) -> Enclosure:
        """Enclosure of the largest magnitude of the values."""
        return 0.0 if self.inner is None else _largest(self.inner)[0], _largest(self.outer)[1]


def _largest(balls: Iterable[Any]) -> Enclosure:
    """Enclosure of the largest magnitude."""
    largest = reduce(lambda x, y: x.max(y), map(abs, balls))
    return max(0.0, float_below(largest)), float_above(largest)


def _start(problem: Spectrum) -> _Ranges:
    """[1-u, 1-l]."""
    low, high = 1 - ball(problem.upper), 1 - ball(problem.lower)
    inner = (low.upper(), high.lower())
    return _Ranges((low.lower(), high.upper()), inner if inner[0] <= inner[1] else None)


def _image(phi: Any, ranges: _Ranges) -> _Ranges:
    """The image of both intervals under a polynomial, by branch and bound on ``outer`` (docs, Proposition 3)."""
    low, high = ranges.outer
    search = _Search(phi, low, high)
    outer = search.run()
    if ranges.inner is None:
        return _Ranges(outer, None)
    # by continuity, everything between two values that are attained is attained
    first, last = ranges.inner
    points = [first, last, *(min(max(x, first), last) for x in (search.lowest_at, search.highest_at))]
    values = [phi(x) for x in points]
    inner = (min(v.upper() for v in values), max(v.lower() for v in values))
    return _Ranges(outer, inner if inner[0] <= inner[1] else None)


class _Search:
    """Least and largest value of a polynomial on [low, high], both at once."""

    def __init__(self, phi: Any, low: Any, high: Any) -> None:
        self._phi, self._boxes = phi, [(low, high)]
        reach = abs(low).max(abs(high)).upper()
        terms: Any = sum((abs(c) * reach**j for j, c in enumerate(phi.coeffs())), ball(0.0))
        self._noise = (terms * NOISE).upper()
        # bounds that the value at low certainly keeps, until a sampled value certainly passes them
        value = phi(low)
        self.lowest, self.lowest_at = value.lower(), low
        self.highest, self.highest_at = value.upper(), low
        self._try(high)

    def run(self) -> tuple[Any, Any]:
        """A lower bound of the least and an upper bound of the largest value, exact balls."""
        least, largest = self.lowest, self.highest
        count = 0
        while self._boxes:
            low, high = self._boxes.pop()
            middle = ((low + high) / 2).mid()
            self._try(middle)
            below, above = self._bounds(middle, (high - middle).max(middle - low).upper())
            if not (below.is_finite() and above.is_finite()):  # comparisons with NaN would pass over it
                return ball(-math.inf), ball(math.inf)
            excess = max(EXCESS * max(abs(self.lowest), abs(self.highest)), self._noise)
            count += 1
            fine = below >= self.lowest - excess and above <= self.highest + excess
            if fine or count > MAX_BOXES:
                least, largest = min(least, below), max(largest, above)
            else:
                self._boxes += [(low, middle), (middle, high)]
        return least.lower(), largest.upper()

    def _try(self, x: Any) -> None:
        """Keep x if the value there is the least or the largest so far, for certain."""
        value = self._phi(x)
        if value.upper() < self.lowest:
            self.lowest, self.lowest_at = value.upper(), x
        if value.lower() > self.highest:
            self.highest, self.highest_at = value.lower(), x

    def _bounds(self, centre: Any, radius: Any) -> tuple[Any, Any]:
        """Bounds of the values within ``radius`` of ``centre``: exact for the quadratic part of Taylor's formula, plus the
        magnitudes of the rest."""
        from flint import arb_poly

        a = self._phi(arb_poly([centre, 1])).coeffs() + [ball(0.0)] * 3
        rest = sum((abs(c) * radius**j for j, c in enumerate(a[3:], 3)), ball(0.0))
        least = -_quadratic(-a[0], -a[1], -a[2], radius) - rest
        largest = _quadratic(a[0], a[1], a[2], radius) + rest
        return least.lower(), largest.upper()


def _quadratic(a0: Any, a1: Any, a2: Any, h: Any) -> Any:
    """Upper bound of a0 + a1 t + a2 t² over |t| ≤ h."""
    if a2 < 0:
        if abs(a1) >= -2 * a2 * h:  # the vertex lies outside
            return a0 + abs(a1) * h + a2 * h * h
        return a0 - a1 * a1 / (4 * a2)  # the value at the vertex, wherever it is
    return a0 + abs(a1) * h + abs(a2) * h * h
