"""Activations of feed-forward networks, their derivatives and bounds: "Activations" of docs/theorems/feed-forward.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

Settings = tuple[mpf, mpf]


@dataclass(frozen=True)
class Activation:
    """φ, φ', bounds of |φ'| and |φ''|, kinks, a bound of the third derivative, and φ'', of ELU a function above it."""

    value: Callable[[mpf, Settings], mpf]
    slope: Callable[[mpf, Settings], mpf]
    largest_slope: Callable[[Settings], mpf]
    largest_bend: Callable[[Settings], mpf]
    kinks: Callable[[Settings], tuple[mpf, ...]] = lambda s: ()
    largest_third: Callable[[Settings], mpf] | None = None
    bend: Callable[[mpf, Settings], mpf] = lambda z, s: mpf(0)


def _sigmoid(z: mpf) -> mpf:
    return 1 / (1 + mp.exp(-z))


def _density(z: mpf) -> mpf:
    return mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)


def _third_of_silu(z: mpf) -> mpf:
    """With t = tanh(z/2): φ'' = ς'(2 - zt) and ς'' = -tς'."""
    s, t = _sigmoid(z) * _sigmoid(-z), mp.tanh(z / 2)
    return -t * s * (2 - z * t) + s * (-t - z * (1 - t * t) / 2)


def _third_of_gelu(z: mpf) -> mpf:
    """In magnitude."""
    return abs(z**3 - 4 * z) * _density(z)


def _steepest_silu() -> mpf:
    """z at which SiLU is steepest: z tanh(z/2) = 2."""
    return mp.findroot(lambda z: z * mp.tanh(z / 2) - 2, mpf(2.4))


def _of(number: mpf) -> Callable[[Settings], mpf]:
    return lambda s: number


with mp.workdps(100):
    ACTIVATIONS = {
        0: Activation(lambda z, s: z, lambda z, s: mpf(1), _of(mpf(1)), _of(mpf(0)), largest_third=_of(mpf(0))),
        1: Activation(
            lambda z, s: mp.tanh(z),
            lambda z, s: 1 - mp.tanh(z) ** 2,
            _of(mpf(1)),
            _of(4 / (3 * mp.sqrt(3))),
            largest_third=_of(mpf(2)),
            bend=lambda z, s: -2 * mp.sinh(z) / mp.cosh(z) ** 3,
        ),
        2: Activation(
            lambda z, s: _sigmoid(z),
            lambda z, s: _sigmoid(z) * _sigmoid(-z),
            _of(mpf(1) / 4),
            _of(1 / (6 * mp.sqrt(3))),
            largest_third=_of(mpf(1) / 8),
            bend=lambda z, s: -mp.sinh(z / 2) / (4 * mp.cosh(z / 2) ** 3),
        ),
        3: Activation(
            lambda z, s: mp.log(1 + mp.exp(s[0] * z)) / s[0],
            lambda z, s: _sigmoid(s[0] * z),
            _of(mpf(1)),
            lambda s: s[0] / 4,
            largest_third=lambda s: s[0] ** 2 / (6 * mp.sqrt(3)),
            bend=lambda z, s: s[0] / (2 * mp.cosh(s[0] * z / 2)) ** 2,
        ),
        4: Activation(
            lambda z, s: z * _sigmoid(z),
            lambda z, s: _sigmoid(z) * (1 + z * _sigmoid(-z)),
            _of(mpf(1) / 2 + _steepest_silu() / 4),
            _of(mpf(1) / 2),
            largest_third=_of(abs(_third_of_silu(mp.findroot(lambda z: mp.diff(_third_of_silu, z), mpf(1.03))))),
            bend=lambda z, s: (2 - z * mp.tanh(z / 2)) / (2 * mp.cosh(z / 2)) ** 2,
        ),
        5: Activation(
            lambda z, s: z * mp.ncdf(z),
            lambda z, s: mp.ncdf(z) + z * _density(z),
            _of(mp.ncdf(mp.sqrt(2)) + mp.sqrt(2) * _density(mp.sqrt(2))),
            _of(2 * _density(mpf(0))),
            largest_third=_of(_third_of_gelu(mp.sqrt((7 - mp.sqrt(33)) / 2))),
            bend=lambda z, s: (2 - z * z) * _density(z),
        ),
        6: Activation(
            lambda z, s: z if z > 0 else s[0] * mp.expm1(z),
            lambda z, s: mpf(1) if z > 0 else s[0] * mp.exp(z),
            lambda s: max(mpf(1), abs(s[0])),
            lambda s: abs(s[0]),
            lambda s: () if s[0] == 1 else (mpf(0),),
            bend=lambda z, s: abs(s[0]) * (mp.exp(z) if z < 0 else max(1 - z, mpf(0))),
        ),
        7: Activation(
            lambda z, s: max(z, mpf(0)), lambda z, s: mpf(z > 0), _of(mpf(1)), _of(mpf(0)), lambda s: (mpf(0),)
        ),
        8: Activation(
            lambda z, s: z if z > 0 else s[0] * z,
            lambda z, s: mpf(1) if z > 0 else s[0],
            lambda s: max(mpf(1), abs(s[0])),
            _of(mpf(0)),
            lambda s: (mpf(0),),
        ),
        9: Activation(
            lambda z, s: min(max(z, s[0]), s[1]),
            lambda z, s: mpf(s[0] < z < s[1]),
            _of(mpf(1)),
            _of(mpf(0)),
            lambda s: s,
        ),
    }
"""By their codes in files."""
