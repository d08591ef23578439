"""The activations that networks may have: values, derivatives, the constants of the theorems, and kinks.

Φ1 and Φ2 bound |φ'| and |φ''| over the real line, rounded up; "Activations" in docs/theorems/feed-forward.md has the proofs. Of a
piecewise linear activation Φ2 is 0 between its kinks, and the theorem asks that no pre-activation reaches one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.bounds import Array, Level, up
from ..rigor.functions import evaluated
from ..rigor.normal import normal_cdf

Settings = tuple[float, float]
"""The numbers of an activation that has any: β of a softplus, α of an ELU, the slope below 0 of a leaky ReLU, the two ends of a
hard tanh; else zeros."""
NONE: Settings = (0.0, 0.0)
"""Those of an activation that has none."""
Function = Callable[[Array, Settings, Level], Approximation]


@dataclass(frozen=True, kw_only=True)
class Activation:
    """One kind of activation, by the number that stands for it in a file.

    Attributes:
        code: that number.
        name: what people call it.
        settings: how many settings it has.
        slope: Φ1, given the settings.
        bend: Φ2, given the settings; of one side of a kink.
        value: φ(Z) with its error.
        derivative: φ'(Z) with its error; at a kink that of one side.
        exact: φ of a ball.
        kinks: where φ' jumps, given the settings, ascending.
        allowed: whether settings are those of an activation, beyond ascending kinks.
    """

    code: int
    name: str
    settings: int = 0
    slope: Callable[[Settings], float]
    bend: Callable[[Settings], float]
    value: Function
    derivative: Function
    exact: Callable[[Any, Settings], Any]
    kinks: Callable[[Settings], tuple[float, ...]] = lambda settings: ()
    allowed: Callable[[Settings], bool] = lambda settings: True

    def possible(self, settings: Settings) -> bool:
        """Whether these can be its settings."""
        kinks = self.kinks(settings)
        ascending = all(a < b for a, b in pairwise(kinks))
        return not any(settings[self.settings :]) and ascending and self.allowed(settings)


def _function(name: str) -> Function:
    return lambda Z, settings, level: evaluated(name, Z, level)


def tanh_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    """1 - tanh²."""
    t = evaluated("tanh", Z, level)
    return Approximation(np.ones_like(Z)) - t * t


def sigmoid_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    """ς(1 - ς)."""
    return evaluated("sigmoid", Z, level) * evaluated("sigmoid", -Z, level)


def _silu(Z: Array, settings: Settings, level: Level) -> Approximation:
    return Approximation(Z) * evaluated("sigmoid", Z, level)


def _silu_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    return evaluated("sigmoid", Z, level) + Approximation(Z) * sigmoid_slope(Z, settings, level)


def _gelu(Z: Array, settings: Settings, level: Level) -> Approximation:
    return Approximation(Z) * evaluated("normal_cdf", Z, level)


def _gelu_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    return evaluated("normal_cdf", Z, level) + Approximation(Z) * evaluated("normal_density", Z, level)


def stretched(name: str, slope: float, Z: Array, beta: float, level: Level) -> Approximation:
    """f(βZ) for the function of that name, whose slope has at most this magnitude."""
    scaled = Approximation(Z).times(beta)
    found = evaluated(name, scaled.value, level)
    return Approximation(found.value, up(found.error + slope * scaled.error, 2))


def _softplus(Z: Array, settings: Settings, level: Level) -> Approximation:
    found, beta = stretched("softplus", 1.0, Z, settings[0], level), settings[0]
    return Approximation.rounded(found.value / beta, up(found.error / beta), underflow=True)


def softplus_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    """ς(βz)."""
    return stretched("sigmoid", 0.25, Z, settings[0], level)


def _elu(Z: Array, settings: Settings, level: Level) -> Approximation:
    below = Approximation(np.full_like(Z, settings[0])) * evaluated("expm1", np.minimum(Z, 0.0), level)
    return Approximation(np.where(Z > 0.0, Z, below.value), below.error)


def _elu_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    below = Approximation(np.full_like(Z, settings[0])) * evaluated("exp", np.minimum(Z, 0.0), level)
    return Approximation(np.where(Z > 0.0, 1.0, below.value), below.error)


def _leaky(Z: Array, settings: Settings, level: Level) -> Approximation:
    below = Approximation(np.full_like(Z, settings[0])) * Approximation(np.minimum(Z, 0.0))
    return Approximation(np.where(Z > 0.0, Z, below.value), below.error)


def _leaky_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    return Approximation(np.where(Z > 0.0, 1.0, settings[0]))


def _clipped_slope(Z: Array, settings: Settings, level: Level) -> Approximation:
    return Approximation(np.where((settings[0] < Z) & (settings[1] > Z), 1.0, 0.0))


def always(number: float) -> Callable[[Settings], float]:
    """The number, whatever the settings."""
    return lambda settings: number


def _ball(x: float, like: Any) -> Any:
    return type(like)(x)


def _exact_softplus(z: Any) -> Any:
    return z.max(_ball(0.0, z)) + (-abs(z)).exp().log1p()


def _lower(a: Any, b: Any) -> Any:
    return -(-a).max(-b)


IDENTITY = Activation(
    code=0,
    name="identity",
    slope=always(1.0),
    bend=always(0.0),
    value=lambda Z, settings, level: Approximation(Z),
    derivative=lambda Z, settings, level: Approximation(np.ones_like(Z)),
    exact=lambda z, settings: z,
)
ACTIVATIONS: dict[int, Activation] = {
    activation.code: activation
    for activation in (
        IDENTITY,
        Activation(
            code=1,
            name="tanh",
            slope=always(1.0),
            bend=always(0.7698003589195011),
            value=_function("tanh"),
            derivative=tanh_slope,
            exact=lambda z, settings: z.tanh(),
        ),
        Activation(
            code=2,
            name="sigmoid",
            slope=always(0.25),
            bend=always(0.09622504486493764),
            value=_function("sigmoid"),
            derivative=sigmoid_slope,
            exact=lambda z, settings: 1 / (1 + (-z).exp()),
        ),
        Activation(
            code=3,
            name="softplus",
            settings=1,
            slope=always(1.0),
            bend=lambda settings: up(0.25 * settings[0]),
            value=_softplus,
            derivative=softplus_slope,
            exact=lambda z, settings: _exact_softplus(settings[0] * z) / settings[0],
            allowed=lambda settings: settings[0] > 0.0,
        ),
        Activation(
            code=4,
            name="SiLU",
            slope=always(1.0998393201288671),
            bend=always(0.5),
            value=_silu,
            derivative=_silu_slope,
            exact=lambda z, settings: z / (1 + (-z).exp()),
        ),
        Activation(
            code=5,
            name="GELU",
            slope=always(1.128904145185155),
            bend=always(0.797884560802866),
            value=_gelu,
            derivative=_gelu_slope,
            exact=lambda z, settings: z * normal_cdf(z),
        ),
        Activation(
            code=6,
            name="ELU",
            settings=1,
            slope=lambda settings: max(1.0, abs(settings[0])),
            bend=lambda settings: abs(settings[0]),
            value=_elu,
            derivative=_elu_slope,
            exact=lambda z, settings: z.max(_ball(0.0, z)) + settings[0] * _lower(z, _ball(0.0, z)).expm1(),
            kinks=lambda settings: () if settings[0] == 1.0 else (0.0,),
        ),
        Activation(
            code=7,
            name="ReLU",
            slope=always(1.0),
            bend=always(0.0),
            value=lambda Z, settings, level: Approximation(np.maximum(Z, 0.0)),
            derivative=lambda Z, settings, level: Approximation(np.where(Z > 0.0, 1.0, 0.0)),
            exact=lambda z, settings: z.max(_ball(0.0, z)),
            kinks=lambda settings: (0.0,),
        ),
        Activation(
            code=8,
            name="leaky ReLU",
            settings=1,
            slope=lambda settings: max(1.0, abs(settings[0])),
            bend=always(0.0),
            value=_leaky,
            derivative=_leaky_slope,
            exact=lambda z, settings: z.max(_ball(0.0, z)) + settings[0] * _lower(z, _ball(0.0, z)),
            kinks=lambda settings: (0.0,),
        ),
        Activation(
            code=9,
            name="hard tanh",
            settings=2,
            slope=always(1.0),
            bend=always(0.0),
            value=lambda Z, settings, level: Approximation(np.clip(Z, *settings)),
            derivative=_clipped_slope,
            exact=lambda z, settings: _lower(z.max(_ball(settings[0], z)), _ball(settings[1], z)),
            kinks=lambda settings: settings,
        ),
    )
}
"""By their codes, which are part of the file format: none is ever used for another activation."""
