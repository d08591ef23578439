"""What the theorems on learned matrix inverses share (docs/theorems/inverse.md).

A network of K layers X_{k+1} = X_k Σ_{l<L} C_kl (I - A X_k)^l starts from X_0 = Aᵀ/c0. Its problem is an interval
[lower, upper] of σ²/c0 over the nonzero singular values σ of A, and its *gap* after k layers is the largest ‖AA⁺ -
AX_k‖ of all such matrices. An iteration is a layer; after the last one nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..numbers import Number, Quantities, exp, log, sqrt
from ..statement import Inequality, Schedule, one_each

MAX_LAYERS = 64
RESIDUALS = tuple(f"residual[{k}]" for k in range(1, MAX_LAYERS + 1))
"""Names of the gaps after 1, 2, … layers."""

DIRECTIONS: dict[str, str] = {
    # the published interval lies inside the stored one, for which the residuals were bounded
    "lower": "upper",
    "upper": "lower",
    "initial_gap": "upper",  # max |1 - σ²/c0|
    "deviation": "upper",  # max |C - 1|
    **dict.fromkeys(RESIDUALS, "upper"),
}
"""Every base quantity and the direction in which its published value must err."""

CLAIMS = ("L1",)
"""There are no iterates to store: the claim is about all matrices of the interval."""
RULE = "layers"
"""The step rule: one layer after the other."""


def degree(q: Quantities) -> int:
    """L^K, the degree in σ²/c0 of the residual after the last layer."""
    return int(q["L"]) ** int(q["K"])


def best_possible(q: Quantities) -> Number:
    """1/T_N((u+l)/(u-l)), N = L^K: no coefficients have a smaller worst residual on [l, u] (docs, Proposition 4)."""
    outer, inner = sqrt(q["upper"]), sqrt(q["lower"])
    decay = exp(-degree(q) * log((outer + inner) / (outer - inner)))
    return 2.0 * decay / (1.0 + decay * decay)


def common(q: Quantities) -> dict[str, Number]:
    """The derived quantities of both theorems."""
    return {"degree": float(degree(q)), "best_possible": best_possible(q)}


def proper(q: Quantities) -> list[Inequality]:
    """The hypotheses on the interval."""
    return [
        Inequality("the interval is positive: lower > 0", q["lower"], ">", 0.0),
        Inequality("the interval has a length: lower < upper", q["lower"], "<", q["upper"]),
    ]


def of_layers(q: Quantities, schedule: Schedule, level: Callable[[int], Number]) -> Iterator[Inequality]:
    """The obligations of such a schedule: a segment for every layer without steps, and each level is at least the gap
    ``level(k)``."""
    yield from one_each(
        schedule,
        int(q["K"]),
        "layer",
        level=lambda k: q["initial_gap"] if k == 0 else level(k),
        step=lambda k: 0.0,
    )
