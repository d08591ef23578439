"""``inverse/order``: with all coefficients 1 the residual is raised to the power L by every layer.

Statement. Let C = 1, L ≥ 1, and e_0 = ‖AA⁺ - AX_0‖ < 1. Then ‖AA⁺ - AX_k‖ = e_0^(L^k), for matrices of any shape and
rank. Over all matrices whose nonzero squared singular values lie in c0 [l, u], e_0 = max(|1-l|, |1-u|).
Reference: the paper's Lemma 1, which holds as an equality; docs/theorems/inverse.md, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, exp, log
from ..statement import Inequality, Schedule, Theorem
from . import constants as shared


class Order(Theorem):
    """Convergence of order L."""

    id = "inverse/order"
    statement = "With all coefficients 1, ||AA+ - AX_k|| = e_0^(L^k) for e_0 = ||AA+ - AX_0|| < 1."
    reference = "Fast and Differentiable Matrix Inverse and Its Extension to SVD, Lemma 1"
    claims = shared.CLAIMS
    rule = shared.RULE
    positive_steps = False
    base = ("lower", "upper", "initial_gap", "deviation")

    def derived(self, q: Quantities) -> dict[str, Number]:
        return shared.common(q)

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [
            *shared.proper(q),
            Inequality("all coefficients are 1: max |C - 1| <= 0", q["deviation"], "<=", 0.0),
            Inequality("the start is closer than the zero matrix: e_0 < 1", q["initial_gap"], "<", 1.0),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from shared.of_layers(q, schedule, lambda k: level(q, k))


def level(q: Quantities, k: int) -> Number:
    """e_0^(L^k)."""
    return exp(int(q["L"]) ** k * log(q["initial_gap"])) if q["initial_gap"] > 0.0 else 0.0


THEOREM = Order()
