"""What the theorems on learned step sizes share (docs/theorems/step-sizes.md).

N problems, steps x - (P/beta_p)⊙g with P anywhere in [lo, hi]^d, at every iteration anew. ``gap`` is the sum over the
problems; a constant of several problems is the worst of theirs.
"""

from __future__ import annotations

from ..numbers import Number, Quantities, smaller
from ..statement import Inequality

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # Σ_p (F_p(x_0) - F_p*)
    "range_low": "lower",  # lo
    "range_high": "upper",  # hi
    "smoothness_ratio": "upper",  # s = max_p β1_p/beta_p, β1_p a Lipschitz constant of ∇f_p
    "convexity_ratio": "lower",  # c = min_p β0_p/beta_p, β0_p the smallest nonzero eigenvalue of M_p M_pᵀ
    "loss_convexity_ratio": "lower",  # min_p μ_p/beta_p of the smooth part
    "penalty_convexity_ratio": "lower",  # min_p l2_p/beta_p
    "radius_energy": "upper",  # E = Σ_p beta_p R_p², R_p ≥ the distances of the iterates from a minimiser
}
"""Every base quantity and the direction in which its published value must err."""

RULE = "learned"
"""The step rule: whatever the network says, within the range."""


def reach(q: Quantities) -> Number:
    """hi·s: the largest step, relative to the smoothness."""
    return q["range_high"] * q["smoothness_ratio"]


def advance(q: Quantities, low: Number, high: Number) -> Number:
    """1 - ϱ = min{lo c, 2 - hi s, 1}, ϱ the factor of ‖Π(Mx - Y)‖ in a step with P in [low, high]."""
    return smaller(smaller(low * q["convexity_ratio"], 2.0 - high * q["smoothness_ratio"]), 1.0)


def contraction_decrease(q: Quantities) -> Number:
    """1 - ϱ² for the whole range, in the form that does not cancel."""
    part = advance(q, q["range_low"], q["range_high"])
    return part * (2.0 - part)


def smooth_kind(q: Quantities) -> Inequality:
    """The hypothesis of the theorems on gradient steps."""
    return Inequality("the problems are least squares: no proximal step", int(q["proximal"]), "<=", 0)


def proximal_kind(q: Quantities) -> Inequality:
    """The hypothesis of the theorems on proximal steps."""
    return Inequality("the problems have a penalty: proximal steps", int(q["proximal"]), ">=", 1)


def within_two(q: Quantities) -> list[Inequality]:
    """The range allows no step beyond 2/β1."""
    return [
        Inequality("the relative steps are not negative: lo >= 0", q["range_low"], ">=", 0.0),
        Inequality("the relative steps are at most 2: hi <= 2", q["range_high"], "<=", 2.0),
        Inequality("no step exceeds 2/smoothness: hi s <= 2", reach(q), "<=", 2.0),
    ]


def within_two_strictly(q: Quantities) -> list[Inequality]:
    """As ``within_two``, with a margin on both sides, which a rate needs."""
    return [
        Inequality("the relative steps are bounded away from 0: lo > 0", q["range_low"], ">", 0.0),
        Inequality("the relative steps are at most 2: hi <= 2", q["range_high"], "<=", 2.0),
        Inequality("every step stays below 2/smoothness: hi s < 2", reach(q), "<", 2.0),
    ]


def guarantee(q: Quantities) -> Number:
    """ω = min{1, 2 - hi s}: the part of the model decrease that a proximal step realises."""
    return smaller(1.0, 2.0 - reach(q))
