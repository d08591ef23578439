"""Runs of the experiments on width and imbalance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from surefoot._core.losses import SquaredLoss
from surefoot._two_layer.iterate import squared_extremes

from .draws import repeat_generator
from .two_layer_instances import (
    CORRECTED,
    DRIFT,
    Instance,
    conditioning,
    gaussian,
    orthogonal,
)

RELATIVE = 1e-12
"""Relative gap at which the runs of figure 4 end."""


def condition_number(instance: Instance) -> float:
    """κ(T_0) = σ_max(T_0)/σ_min(T_0) = sqrt(s+/s-)."""
    low, high = zip(*(squared_extremes(W) for W in (instance.W1, instance.W2)), strict=True)
    return math.sqrt(sum(high) / sum(low))


def conditioned(width: int, exponents: Sequence[float], n: int, seed: int, repeat: int) -> dict[str, list[float]]:
    """κ(T_0) and α1/α2 of one repeat by exponent."""
    generator = repeat_generator(seed, repeat)
    X = orthogonal(n, generator)
    target = X @ gaussian(n, n, generator) + gaussian(n, n, generator)
    loss = SquaredLoss(X, math.sqrt(0.1) * target)
    W1, W2 = gaussian(n, width, generator), gaussian(n, width, generator)
    instances = [Instance(width**-p * W1, width**-p * W2, loss) for p in exponents]
    return {
        "kappas": [condition_number(instance) for instance in instances],
        "ratios": [conditioning(instance.certify(CORRECTED)) for instance in instances],
    }


RULES = {"paper-rho": CORRECTED, "exact-line-search": DRIFT, "certified-bb": DRIFT}


PLAIN = "plain gradient descent"


def plain_descent(instance: Instance) -> list[float]:
    """Gaps of gradient descent on W itself with step 1/K from W1(0) W2(0)ᵀ, to the relative gap of figure 4."""
    loss, W = instance.loss, instance.W1 @ instance.W2.T
    gaps = [loss.gap(W)]
    while gaps[-1] > RELATIVE * gaps[0]:
        W = W - loss.gradient(W) / loss.smoothness
        gaps.append(loss.gap(W))
    return gaps
