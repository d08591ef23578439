"""Rules of what acts entry by entry."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from surefoot_check.feed_forward.activations import ACTIVATIONS

from ..._core.refusals import NotCertifiable
from .call import Call, Rule


def sloped(slope: Callable[..., float], *names: str) -> Rule:
    """An activation of this largest slope, given these of its arguments behind the first."""

    def rule(call: Call) -> Tensor:
        z = call.first
        given = [call.get(place, key) for place, key in enumerate(names, 1)]
        if any(isinstance(item, Tensor) for item in given):
            raise NotCertifiable(f"{call.name} has a tensor as a setting; pass a number")
        factor = slope(*[item for item in given if item is not None])
        call.keep(z, factor)
        return call.constants(z) * factor

    return rule


def activation(code: int) -> Callable[..., float]:
    """The largest slope of an activation of the checker's table, given its settings."""

    def slope(*settings: float) -> float:
        first, second = (*map(float, settings), 0.0, 0.0)[:2]
        return ACTIVATIONS[code].slope((first, second))

    return slope


def number(value: float) -> Callable[..., float]:
    """The same slope for every dtype and setting."""
    return lambda *_: value


def gelu(approximate: str = "none") -> float:
    """The largest slope of the exact GELU; of its approximation none is proved."""
    if approximate != "none":
        raise NotCertifiable(f"GELU with approximate={approximate!r} has no proved constant; use approximate='none'")
    return activation(5)()


def softplus(call: Call) -> Tensor:
    """1, where the threshold of torch's form is no jump beyond rounding."""
    z, threshold = call.first, float(call.get(2, "threshold", 20.0))
    # above the threshold torch returns z: a jump of at most exp(−threshold)/β, beside a value of threshold/β
    if math.exp(-threshold) > threshold * torch.finfo(z.dtype).eps / 2:
        raise NotCertifiable(
            f"{call.name} jumps by {math.exp(-threshold):.0e} at threshold={threshold:g}, which is more than rounding; pass "
            "threshold=40"
        )
    return call.constants(z)


def prelu(call: Call) -> Tensor:
    """The largest slope, of which that of the positive side is 1."""
    slope = call.weight(call.get(1, "weight"))
    return call.constants(call.first) * slope.abs().amax().clamp(min=1.0)


def clamp(call: Call) -> Tensor:
    """Limits that may move: entry by entry the largest change of the three."""
    return call.stacked([*call.args, *call.kwargs.values()])


def dropout(call: Call) -> Tensor:
    """What is kept is divided by its share; the mask is held during a solve."""
    z, p = call.first, float(call.get(1, "p", 0.5))
    training = call.get(2, "training", True)
    factor = 1.0 / (1.0 - p) if training and p < 1.0 else 1.0
    call.keep(z, factor)
    return call.constants(z) * factor
