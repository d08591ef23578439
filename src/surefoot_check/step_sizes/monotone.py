"""``step-sizes/monotone``: the objective never increases, whatever the network (the default of learned step sizes).

Statement. f_p is β1_p-smooth, 0 ≤ lo ≤ hi ≤ 2 and hi β1_p ≤ 2 beta_p for every p. For any P in [lo, hi]^d, at every
iteration anew, x⁺ = x - (P/beta_p)⊙g has f(x⁺) ≤ f(x) - (1/beta_p) Σ P_i(1 - P_iβ1_p/(2beta_p))g_i² ≤ f(x).
Reference: docs/theorems/step-sizes.md, Theorem 1 (no counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities
from ..statement import Inequality, Schedule, Theorem, one_rate
from . import constants as shared


class Monotone(Theorem):
    """Descent for steps in the range."""

    id = "step-sizes/monotone"
    statement = "For any relative steps in [lo, hi], hi <= 2, the objective never increases, whatever the network."
    reference = "surefoot, docs/theorems/step-sizes.md, Theorem 1"
    rule = shared.RULE
    positive_steps = False
    base = ("initial_gap", "range_low", "range_high", "smoothness_ratio")

    def derived(self, q: Quantities) -> dict[str, Number]:
        return {"reach": shared.reach(q)}

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [shared.smooth_kind(q), *shared.within_two(q)]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from one_rate(q, schedule, q["range_low"], 0.0)


THEOREM = Monotone()
