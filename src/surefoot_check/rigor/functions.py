"""Functions of the entries of a matrix, with bounds of their errors: numpy's at level ``fast``, FLINT's at level ``exact``.

Level ``fast`` trusts numpy's exp, expm1, log1p and tanh within 8 ulp. Of the normal distribution, which numpy has not, it uses
Taylor polynomials with FLINT's coefficients (``normal``), and trusts no function of numpy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .approximation import Approximation
from .balls import float_above
from .bounds import EXP_ERROR, FAST, UNIT_ROUNDOFF, Array, Level, frobenius_upper, up
from .intervals import TINY
from .normal import FUNCTIONS, normal

PRECISION = 96
"""Bits of the ball arithmetic."""


def _sigmoid(Z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-Z))


def _softplus(Z: Array) -> Array:
    return np.maximum(Z, 0.0) + np.log1p(np.exp(-np.abs(Z)))


NUMPY: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "exp": np.exp,
    "expm1": np.expm1,
}
"""By numpy, within ``RELATIVE`` of the value: of sigmoid an exponential, a sum and a quotient; of softplus, whose terms are not
negative, an exponential, a logarithm (which makes no relative error larger) and a sum."""
RELATIVE = 2.0 * EXP_ERROR + 4.0 * UNIT_ROUNDOFF


def _exact_softplus(z: Any) -> Any:
    return z.exp().log1p() if z < 0 else z + (-z).exp().log1p()


BALLS: dict[str, Callable[[Any], Any]] = {
    "tanh": lambda z: z.tanh(),
    "sigmoid": lambda z: 1 / (1 + (-z).exp()),
    "softplus": _exact_softplus,
    "exp": lambda z: z.exp(),
    "expm1": lambda z: z.expm1(),
    **FUNCTIONS,
}
"""The same of balls; the normal distribution beside them."""


def evaluated(name: str, Z: Array, level: Level) -> Approximation:
    """f(Z) for the function of that name, entry by entry. NaN where it overflows at level ``fast``.

    Raises:
        NotFiniteError: the normal distribution at level ``fast``, of entries that are not finite.
    """
    if level is not FAST:
        return _by_balls(BALLS[name], Z)
    if name in FUNCTIONS:
        return normal(name, Z)
    with np.errstate(over="ignore", under="ignore"):
        V = np.asarray(NUMPY[name](Z), dtype=np.float64)
    return Approximation(V, up(RELATIVE * frobenius_upper(V) + TINY * V.size, 2))


def _by_balls(function: Callable[[Any], Any], Z: Array) -> Approximation:
    from flint import arb, ctx

    V, square = np.empty(Z.size), arb(0)
    with ctx.workprec(PRECISION):  # the same for certifier and checker
        for index, z in enumerate(Z.ravel().tolist()):
            value = function(arb(z))
            V[index] = float(value)
            error = value - V[index]
            square += error * error
        return Approximation(V.reshape(Z.shape), float_above(square.abs_upper().sqrt()))
