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
from ..rigor.bounds import Array, Level, up
from ..rigor.functions import BALLS, evaluated
from .activations import Function, Settings, of, sigmoid_slope, softplus_slope, stretched, tanh_slope


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
    0: Smooth(of(0.0), lambda Z, settings, level: Approximation(np.zeros_like(Z)), lambda z, settings: 1 + 0 * z),
    1: Smooth(of(2.0), _tanh, _ball_tanh_slope),
    2: Smooth(of(0.125), _sigmoid, lambda z, settings: BALLS["sigmoid"](z) * BALLS["sigmoid"](-z)),
    3: Smooth(_third_of_softplus, _softplus, lambda z, settings: BALLS["sigmoid"](settings[0] * z)),
    4: Smooth(of(0.3081815157964792), _silu, _ball_silu_slope),
    5: Smooth(
        of(0.7787696350557325),
        _gelu,
        lambda z, settings: BALLS["normal_cdf"](z) + z * BALLS["normal_density"](z),
    ),
}
"""By the codes of ``activations``."""
