"""``linear-resnet/sgd`` and ``linear-resnet/sgd-interpolation``: Theorems 3.6 and 3.8 of the paper with explicit constants.

Minibatches of size B without replacement, gradients scaled by n/B, zero initial weights. The constants are those of the
paper's appendix. Its proofs apply a one-sided Azuma inequality to increments that are bounded on one side only; a repair
that keeps the constants (T an integer, and T ≥ 2δ in 3.8) is in docs/theorems/linear-resnet.md. Theorem 3.8 asks for an optimal
value of 0, which rounded data never has; its corollary there claims the same down to 17 L*. The conclusions are probabilities
over the minibatches, so that no certificate of them is ever accepted by the checker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from surefoot_check.statement import Inequality

SGD = "linear-resnet/sgd"
INTERPOLATION = "linear-resnet/sgd-interpolation"
CONSTANT = 96.0
"""The appendix prints both 54 and 96 for Theorem 3.8, both valid; its last display uses 96."""

FLOOR = 17.0
"""Multiple of the optimal value below which Theorem 3.8 is not continued."""

Values = Mapping[str, float]


def interpolation(q: Values) -> Inequality:
    """What Theorem 3.8 needs of L* = ``optimal_value``: that some of the way down from ``initial_loss`` is covered."""
    return Inequality("17 L* <= L0; the bound ends at 17 L*", FLOOR * q["optimal_value"], "<=", q["initial_loss"])


def linear_bound(q: Values, factor: float, t: int) -> float:
    """The bound of the corollary to Theorem 3.8 on the lowest loss of the iterates up to t ≤ T: max(2 L0 factor^t, 17 L*)."""
    return max(2.0 * q["initial_loss"] * factor**t, FLOOR * q["optimal_value"])


def condition(theorem: str, q: Values) -> Inequality:
    """The hypothesis on A and B; ``q`` holds norms, ``samples`` n, ``batch`` B, ``initial_loss`` L0; for 3.6 ``target`` ε."""
    left = (q["sigma_min_A"] * q["sigma_min_B"]) ** 2 / (q["norm_A"] * q["norm_B"])
    shared = q["samples"] * q["norm_X"] * math.sqrt(2.0 * q["initial_loss"]) / (q["batch"] * q["sigma_min_X"] ** 2)
    if theorem == SGD:
        right = math.sqrt(8.0 * math.e**3) * math.log(3.0 * q["initial_loss"] / q["target"]) * shared
    else:
        right = 4.0 * math.sqrt(2.0 * math.e**3) * shared
    return Inequality("smin(A)^2 smin(B)^2 / (|A| |B|) is large enough", left, ">=", right)


def step(theorem: str, q: Values, iterations: float) -> float:
    """η for T = ``iterations``; ``q`` has also ``delta``, ``depth``; in 3.6 ``optimal_value`` L* and ``row_norm`` ‖X‖_{2,∞}."""
    lowest = (q["sigma_min_A"] * q["sigma_min_B"] * q["sigma_min_X"]) ** 2
    product = (q["norm_A"] * q["norm_B"]) ** 4
    logarithm = math.log(iterations / q["delta"])
    if theorem == INTERPOLATION:
        size = q["samples"] ** 2 * product * q["norm_X"] ** 4 * logarithm
        return math.log(2.0) * q["batch"] ** 2 * lowest / (CONSTANT * math.e**3 * q["depth"] * size)
    target = q["target"] / 3.0
    noise = q["row_norm"] ** 2 * q["optimal_value"]
    drift = 3.0 * q["samples"] * q["norm_X"] ** 2 * logarithm * math.log(q["initial_loss"] / target)
    smaller = min(target / noise if noise > 0.0 else math.inf, math.log(2.0) ** 2 * q["batch"] / drift)
    return q["batch"] * lowest / (6.0 * math.e**3 * q["depth"] * q["samples"] * product * q["norm_X"] ** 2) * smaller


def rate(q: Values, eta: float) -> float:
    """1 - factor: η L σ²_min(A) σ²_min(B) σ_r²(X) / e."""
    return eta * q["depth"] * (q["sigma_min_A"] * q["sigma_min_B"] * q["sigma_min_X"]) ** 2 / math.e


def fixed_point(q: Values) -> tuple[int, float]:
    """T and η of Theorem 3.6, defined through each other: T = log((L0 - L*)/ε')/(rate of η), η at most ``step``.

    T is the first whole number, from below, for which ``step`` allows the η of that equation. It is found because the T that
    ``step`` asks for grows with log T only. A larger η with this T would leave the ball of the proof.
    """
    total = math.log(3.0 * (q["initial_loss"] - q["optimal_value"]) / q["target"])
    iterations = 10
    while True:
        needed = math.ceil(total / rate(q, step(SGD, q, iterations)))
        if needed <= iterations:
            return iterations, total / (rate(q, 1.0) * iterations)
        iterations = needed
