"""``two-layer/contraction``: the drift budget with the exact contraction of the squared loss alone.

Statement. For a quadratic loss and every η ≥ 0, sqrt(L_{t+1}) ≤ [max(|1-ημs-|, |1-ηKs+|) + η²‖XC‖_F/‖X(W-W*)‖_F] sqrt(L_t).
With the floor step of that bound under the drift budget the gap follows the schedule of its v_III.
Reference: docs/theorems/two-layer-contraction.md (Theorem III of the project).
"""

from __future__ import annotations

from ..numbers import Quantities
from ..statement import Inequality
from .drift import Drift


class Contraction(Drift):
    """Theorem III with its advance count."""

    id = "two-layer/contraction"
    statement = "For a quadratic loss, sqrt(gap) contracts by max(|1-eta mu s-|, |1-eta K s+|) + eta^2 |XC|/|X(W-W*)|."
    reference = "surefoot, docs/theorems/two-layer-contraction.md"
    rule = "contraction"
    use_sharp = False

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [
            Inequality("quadratic loss with a unique minimiser", 1.0 if self.uses_contraction(q) else 0.0, ">", 0.0),
            *super().conditions(q),
        ]


THEOREM = Contraction()
