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
from ..rigor.bounds import Array, Level
from ..rigor.functions import BALLS, evaluated
from .activations import NONE, sigmoid_slope, tanh_slope


@dataclass(frozen=True)
class Smooth:
    """Of one activation.

    Attributes:
        third: Φ3.
        second: φ''(Z) with its error.
        slope: φ' of a ball.
    """

    third: float
    second: Callable[[Array, Level], Approximation]
    slope: Callable[[Any], Any]


def _tanh(Z: Array, level: Level) -> Approximation:
    return Approximation(np.full_like(Z, -2.0)) * evaluated("tanh", Z, level) * tanh_slope(Z, NONE, level)


def _below(Z: Array, level: Level) -> Approximation:
    """1 - 2ς(z)."""
    return evaluated("sigmoid", -Z, level) - evaluated("sigmoid", Z, level)


def _sigmoid(Z: Array, level: Level) -> Approximation:
    return sigmoid_slope(Z, NONE, level) * _below(Z, level)


def _silu(Z: Array, level: Level) -> Approximation:
    factor = Approximation(np.full_like(Z, 2.0)) + Approximation(Z) * _below(Z, level)
    return sigmoid_slope(Z, NONE, level) * factor


def _gelu(Z: Array, level: Level) -> Approximation:
    factor = Approximation(np.full_like(Z, 2.0)) - Approximation(Z) * Approximation(Z)
    return evaluated("normal_density", Z, level) * factor


def _ball_tanh_slope(z: Any) -> Any:
    t = z.tanh()
    return 1 - t * t


def _ball_silu_slope(z: Any) -> Any:
    s = BALLS["sigmoid"](z)
    return s * (1 + z * BALLS["sigmoid"](-z))


SMOOTH: dict[int, Smooth] = {
    0: Smooth(0.0, lambda Z, level: Approximation(np.zeros_like(Z)), lambda z: 1 + 0 * z),
    1: Smooth(2.0, _tanh, _ball_tanh_slope),
    2: Smooth(0.125, _sigmoid, lambda z: BALLS["sigmoid"](z) * BALLS["sigmoid"](-z)),
    3: Smooth(0.09622504486493764, lambda Z, level: sigmoid_slope(Z, NONE, level), BALLS["sigmoid"]),
    4: Smooth(0.3081815157964792, _silu, _ball_silu_slope),
    5: Smooth(0.7787696350557325, _gelu, lambda z: BALLS["normal_cdf"](z) + z * BALLS["normal_density"](z)),
}
"""By the codes of ``activations``."""
