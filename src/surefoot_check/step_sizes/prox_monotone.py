"""``step-sizes/prox-monotone``: the penalised objective never increases, whatever the network.

Statement. F = f + h, f_p β1_p-smooth, h separable and convex, hi ≤ 2 and hi β1_p ≤ 2 beta_p. For any P in [lo, hi]^d the
proximal step in which step and threshold have the same factor P, x⁺_i = prox_{(P_i/beta_p)h_i}(x_i - (P_i/beta_p)g_i), has
F(x⁺) ≤ F(x) - Σ (beta_p/P_i - β1_p/2) d_i² ≤ F(x), d = x⁺ - x.
Reference: docs/theorems/step-sizes.md, Theorem 3 (no counterpart in the paper).
"""

from __future__ import annotations

from ..numbers import Quantities
from ..statement import Inequality
from . import constants as shared
from .monotone import Monotone


class ProximalMonotone(Monotone):
    """Descent for proximal steps in the range; its schedule is that of gradient steps."""

    id = "step-sizes/prox-monotone"
    statement = "For any relative steps in [lo, hi], hi <= 2, that scale step and threshold alike, the objective never increases."
    reference = "surefoot, docs/theorems/step-sizes.md, Theorem 3"

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [shared.proximal_kind(q), *shared.within_two(q)]


THEOREM = ProximalMonotone()
