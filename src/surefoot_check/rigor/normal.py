"""The normal distribution function and its density: of balls, and of floats by Taylor polynomials, which level ``fast`` uses.

The grid has the nodes c = k/64. For |t| ≤ 1/128, n the density and f the function or n itself,

    f(c + t) = Σ_{j ≤ 6} a_j tʲ + e,   a_j = f⁽ʲ⁾(c)/j!,   |e| ≤ sup |f⁽⁷⁾| |t|⁷/7!.

Derivatives: n' = -cn, n⁽ᵏ⁺¹⁾ = -(c n⁽ᵏ⁾ + k n⁽ᵏ⁻¹⁾); n is the Fourier transform of exp(-s²/2)/(2π), so that |n⁽ᵏ⁾| is at most
(1/π) ∫_0^∞ sᵏ exp(-s²/2) ds, which is 15/√(2π) for k = 6 and 48/π for k = 7. The a_j are FLINT's, rounded to floats by at most
δ_j. The node nearest to z is k/64 with k = rint(64z), and t = z - c is exact (Sterbenz, or k = 0). Horner's rule errs by at most
Σ_j γ_{2j+1} |a_j tʲ|, in single operations of numpy entry by entry. Beyond |z| = 9 stands f(±9), within f(-9) of f(z).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .approximation import Approximation
from .balls import ball, float_above
from .bounds import Array, finite, gamma, up
from .intervals import TINY, sum_up

FARTHEST = 9.0
"""Where the grid ends."""
DENSITY = 64
"""Nodes in a unit."""
DEGREE = 6
SUPREMA = {"normal_cdf": 5.9841343, "normal_density": 15.278875}
"""Of the seventh derivative, rounded up."""
PRECISION = 96
"""Bits of the balls that the coefficients come from."""


def normal_cdf(z: Any) -> Any:
    """Of a ball."""
    return (-z / type(z)(2).sqrt()).erfc() / 2


def normal_density(z: Any) -> Any:
    """Of a ball."""
    return (-z * z / 2).exp() / (2 * type(z).pi()).sqrt()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {"normal_cdf": normal_cdf, "normal_density": normal_density}


def normal(name: str, Z: Array) -> Approximation:
    """f(Z) for the function of that name, entry by entry, within 2e-16 each. ``NotFiniteError`` for NaN and infinities."""
    table = _table(name)
    z = np.clip(finite(Z, "Z", two_dimensional=False), -FARTHEST, FARTHEST)
    node = np.rint(DENSITY * z)
    t, place = z - node / DENSITY, node.astype(np.int64) + table.middle
    with np.errstate(under="ignore"):
        value = table.coefficients[DEGREE][place]
        for j in reversed(range(DEGREE)):
            value = value * t + table.coefficients[j][place]
    return Approximation(value, up(table.error * math.sqrt(Z.size), 2))


@dataclass(frozen=True)
class _Table:
    coefficients: Array
    """a_j (degrees, nodes)."""
    error: float
    """Of one value."""
    middle: int
    """The node 0."""


@cache
def _table(name: str) -> _Table:
    from flint import ctx

    middle, degrees = round(FARTHEST * DENSITY), range(DEGREE + 1)
    with ctx.workprec(PRECISION):
        exact = [_taylor(name, ball(k / DENSITY)) for k in range(-middle, middle + 1)]
        A = np.array([[float(a) for a in node] for node in exact]).T
        apart = [max(float_above(abs(node[j] - A[j, i])) for i, node in enumerate(exact)) for j in degrees]
        beyond = float_above(FUNCTIONS[name](ball(-FARTHEST)))
    t = 0.5 / DENSITY  # its powers are exact
    horner = (up(gamma(2 * j + 1) * float(np.abs(A[j]).max()) * t**j, 2) for j in degrees)
    rest = up(SUPREMA[name] * t ** (DEGREE + 1) / math.factorial(DEGREE + 1))
    return _Table(A, sum_up([*horner, *(apart[j] * t**j for j in degrees), rest, beyond, TINY]), middle)


def _taylor(name: str, c: Any) -> list[Any]:
    """The a_j at c."""
    density = normal_density(c)
    derivatives = [density, -c * density]
    for k in range(1, DEGREE):
        derivatives.append(-(c * derivatives[k] + k * derivatives[k - 1]))
    if name == "normal_cdf":
        derivatives = [normal_cdf(c), *derivatives[:-1]]
    return [x / math.factorial(j) for j, x in enumerate(derivatives)]
