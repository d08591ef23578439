"""``inverse/interval``: the worst residual of given coefficients over an interval of singular values (the default of
learned inverses).

Statement. Let 0 < l < u and let residual[k] ≥ max |e_k| over I_0 = [1-u, 1-l], where e_0 is the variable and e_{k+1} =
φ_k(e_k), φ_k(e) = 1 - (1-e) Σ_{l<L} C_kl e^l. For every matrix A, of any shape and rank, whose nonzero squared singular
values lie in c0 [l, u], ‖AA⁺ - AX_k‖ ≤ residual[k] and ‖X_k - A⁺‖ ≤ residual[k]/sqrt(c0 l).
Reference: docs/theorems/inverse.md, Theorem 2 (no counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities
from ..statement import Inequality, Schedule, Theorem
from . import constants as shared


class Interval(Theorem):
    """Worst residual after each layer."""

    id = "inverse/interval"
    statement = (
        "For every matrix whose nonzero squared singular values lie in c0 [l, u], the residual ||AA+ - AX_k|| is at most the "
        "largest |e_k| over the interval."
    )
    reference = "surefoot, docs/theorems/inverse.md, Theorem 2"
    claims = shared.CLAIMS
    rule = shared.RULE
    positive_steps = False
    base = ("lower", "upper", "initial_gap", *shared.RESIDUALS)

    def derived(self, q: Quantities) -> dict[str, Number]:
        return shared.common(q)

    def conditions(self, q: Quantities) -> list[Inequality]:
        last = int(q["K"])
        return [
            *shared.proper(q),
            Inequality(f"layer {last} leaves less than the zero matrix does: residual < 1", level(q, last), "<", 1.0),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from shared.of_layers(q, schedule, lambda k: level(q, k))


def level(q: Quantities, k: int) -> Number:
    """The published residual after layer k."""
    return q[shared.RESIDUALS[k - 1]]


THEOREM = Interval()
