"""What the theorem on minima asks of an activation beyond ``activations``: φ'' with its error, Φ3, and φ' of a ball.

Φ3 bounds |φ'''| over the real line, rounded up; "Activations" in docs/theorems/feed-forward.md has the proofs. Activations whose
φ'' jumps, or φ', are not here: minima of regularised networks with kinks lie on kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.bounds import Array, Level, array_up, up
from ..rigor.functions import BALLS, evaluated
from .activations import Activation, Function, Settings, always, sigmoid_slope, softplus_slope, stretched, tanh_slope


@dataclass(frozen=True)
class Smooth:
    """Of one activation.

    Attributes:
        third: Φ3, given the settings.
        second: φ''(Z) with its error, given the settings.
        slope: φ' of a ball, given the settings.
    """

    third: Callable[[Settings], float]
    second: Function
    slope: Callable[[Any, Settings], Any]


def _tanh(Z: Array, settings: Settings, level: Level) -> Approximation:
    return Approximation(np.full_like(Z, -2.0)) * evaluated("tanh", Z, level) * tanh_slope(Z, settings, level)


def _below(Z: Array, level: Level) -> Approximation:
    """1 - 2ς(z)."""
    return evaluated("sigmoid", -Z, level) - evaluated("sigmoid", Z, level)


def _sigmoid(Z: Array, settings: Settings, level: Level) -> Approximation:
    return sigmoid_slope(Z, settings, level) * _below(Z, level)


def _softplus(Z: Array, settings: Settings, level: Level) -> Approximation:
    """βς(βz)(1 - ς(βz))."""
    beta = settings[0]
    above = softplus_slope(Z, settings, level) * stretched("sigmoid", 0.25, -Z, beta, level)
    return above.times(beta)


def _third_of_softplus(settings: Settings) -> float:
    return up(settings[0] * settings[0] * 0.09622504486493764, 2)


def _silu(Z: Array, settings: Settings, level: Level) -> Approximation:
    factor = Approximation(np.full_like(Z, 2.0)) + Approximation(Z) * _below(Z, level)
    return sigmoid_slope(Z, settings, level) * factor


def _gelu(Z: Array, settings: Settings, level: Level) -> Approximation:
    factor = Approximation(np.full_like(Z, 2.0)) - Approximation(Z) * Approximation(Z)
    return evaluated("normal_density", Z, level) * factor


def _ball_tanh_slope(z: Any, settings: Settings) -> Any:
    t = z.tanh()
    return 1 - t * t


def _ball_silu_slope(z: Any, settings: Settings) -> Any:
    s = BALLS["sigmoid"](z)
    return s * (1 + z * BALLS["sigmoid"](-z))


SMOOTH: dict[int, Smooth] = {
    0: Smooth(always(0.0), lambda Z, settings, level: Approximation(np.zeros_like(Z)), lambda z, settings: 1 + 0 * z),
    1: Smooth(always(2.0), _tanh, _ball_tanh_slope),
    2: Smooth(always(0.125), _sigmoid, lambda z, settings: BALLS["sigmoid"](z) * BALLS["sigmoid"](-z)),
    3: Smooth(_third_of_softplus, _softplus, lambda z, settings: BALLS["sigmoid"](settings[0] * z)),
    4: Smooth(always(0.3081815157964792), _silu, _ball_silu_slope),
    5: Smooth(
        always(0.7787696350557325),
        _gelu,
        lambda z, settings: BALLS["normal_cdf"](z) + z * BALLS["normal_density"](z),
    ),
}
"""By the codes of ``activations``."""


def _above_elu(Z: Array, level: Level) -> Approximation:
    """exp(z) below 0, and 1 - z down to 0 above."""
    below = evaluated("exp", np.minimum(Z, 0.0), level)
    return below - Approximation(np.clip(Z, 0.0, 1.0))


def bends(activation: Activation, settings: Settings, z: Approximation, level: Level) -> tuple[Array, float]:
    """Upper bounds of |φ''(z)|, and a Lipschitz constant of what they bound; 0 where φ'' is, between kinks.

    Of an activation with a third derivative that is Φ3. φ'' of ELU is α exp(z) below 0 and 0 above, where it jumps: α times a
    function above it with slopes of at most 1, Φ2 = α.
    """
    bend, smooth = activation.bend(settings), SMOOTH.get(activation.code)
    if bend == 0.0:
        return np.zeros_like(z.value), 0.0
    if smooth is None:
        found, third = _above_elu(z.value, level).times(bend), bend
    else:
        found, third = smooth.second(z.value, settings, level), smooth.third(settings)
    return array_up(np.abs(found.value) + up(found.error + third * z.error, 2), 1), third
