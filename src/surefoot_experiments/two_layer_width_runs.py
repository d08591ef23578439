"""Runs of the experiments on width and imbalance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.linalg import matrix_norm

from surefoot._core.certificate import Certificate
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


DELTA = 0.1
"""The δ at which bounds that hold with probability 1 - δ are evaluated."""


def lemma_f5(width: int, p: float, n: int, m: int) -> tuple[float, float]:
    """What Lemma F.5 says of α1, from below, and of ‖W1W2ᵀ‖_F, from above, for weights N(0, h^(-2p))."""
    B = math.sqrt(m + n) + 0.5 * math.log(2.0 / DELTA)
    return 2.0 * (math.sqrt(width) - B) ** 2 * width ** (-2.0 * p), 2.0 * math.sqrt(m) * B * width ** (0.5 - 2.0 * p)


def theorem_f1(width: int, p: float, instance: Instance) -> float:
    """The right side of (131) before its order is taken: a lower bound of α1/α2."""
    n, m = instance.loss.shape
    optimum, spread = instance.loss.optimum, math.sqrt(instance.loss.smoothness / instance.loss.strong_convexity)
    alpha1, product = lemma_f5(width, p, n, m)
    B = math.sqrt(m + n) + 0.5 * math.log(2.0 / DELTA)
    rest = 2.0 * float(matrix_norm(optimum, 2)) + 2.0 * spread * (float(matrix_norm(optimum)) + product)
    return alpha1 / (2.0 * (math.sqrt(width) + B) ** 2 * width ** (-2.0 * p) + rest)


def _against_lemmas(width: int, p: float, instance: Instance, certificate: Certificate) -> dict[str, float]:
    """One draw beside Lemmas 3.2 and F.5, Theorem F.1, and the hypotheses of Table 3."""
    q = certificate.quantities
    alpha1, product = lemma_f5(width, p, *instance.loss.shape)
    unit = width ** (1.0 - 2.0 * p)
    s_plus = sum(squared_extremes(W)[1] for W in (instance.W1, instance.W2))
    return {
        "alpha1": q["alpha1"] / unit,
        "lemma": alpha1 / unit,
        "product": float(matrix_norm(instance.W1 @ instance.W2.T)) / product,
        "ratio": conditioning(certificate),
        "theorem": theorem_f1(width, p, instance),
        "margin": q["optimum_sigma_min"] - math.sqrt(q["smoothness"] / q["strong_convexity"]) * q["initial_distance"],
        "imbalance": max(q["lambda_plus"], q["lambda_minus"]) / s_plus,
    }


def conditioned(width: int, exponents: Sequence[float], n: int, seed: int, repeat: int) -> dict[str, Any]:
    """κ(T_0), α1/α2 and what the lemmas say of one repeat, by exponent."""
    generator = repeat_generator(seed, repeat)
    X = orthogonal(n, generator)
    target = X @ gaussian(n, n, generator) + gaussian(n, n, generator)
    loss = SquaredLoss(X, math.sqrt(0.1) * target)
    W1, W2 = gaussian(n, width, generator), gaussian(n, width, generator)
    instances = [Instance(width**-p * W1, width**-p * W2, loss) for p in exponents]
    certificates = [instance.certify(CORRECTED) for instance in instances]
    return {
        "kappas": [condition_number(instance) for instance in instances],
        "ratios": [conditioning(certificate) for certificate in certificates],
        "lemmas": [
            _against_lemmas(width, p, instance, certificate)
            for p, instance, certificate in zip(exponents, instances, certificates, strict=True)
        ],
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
