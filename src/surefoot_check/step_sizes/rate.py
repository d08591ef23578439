"""``step-sizes/rate``: linear convergence of least squares for any steps inside the range.

Statement. F_p(x) = ½‖M_p x - Y_p‖² with least value F_p* ≥ 0, 0 < lo ≤ hi ≤ 2, and for every p: hi β1_p < 2 beta_p, and the
smallest nonzero eigenvalue β0_p of M_p M_pᵀ is certified positive. For any P in [lo, hi]^d, at every iteration anew,
F_p(x⁺) - F_p* ≤ ϱ²(F_p(x) - F_p*) with ϱ = max{1 - lo c, hi s - 1}, c = min β0_p/beta_p, s = max β1_p/beta_p.
Reference: docs/theorems/step-sizes.md, Theorem 2 (no counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities
from ..statement import Inequality, Schedule, Theorem, one_rate
from . import constants as shared


class Rate(Theorem):
    """Contraction of the gap by ϱ²."""

    id = "step-sizes/rate"
    statement = (
        "For any relative steps in [lo, hi] inside (0, 2), the gap of least squares falls by max(1 - lo c, hi s - 1)^2."
    )
    reference = "surefoot, docs/theorems/step-sizes.md, Theorem 2"
    rule = shared.RULE
    base = ("initial_gap", "range_low", "range_high", "smoothness_ratio", "convexity_ratio")

    def derived(self, q: Quantities) -> dict[str, Number]:
        if not shared.smooth_kind(q).certain:
            return {}
        return {"reach": shared.reach(q), "decrease": shared.contraction_decrease(q)}

    def conditions(self, q: Quantities) -> list[Inequality]:
        kind = shared.smooth_kind(q)
        if not kind.certain:
            return [kind]
        return [
            kind,
            *shared.within_two_strictly(q),
            Inequality("the smallest nonzero eigenvalue is certified: c > 0", q["convexity_ratio"], ">", 0.0),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from one_rate(q, schedule, q["range_low"], shared.contraction_decrease(q))


THEOREM = Rate()
