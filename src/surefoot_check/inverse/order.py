"""``inverse/order``: with all coefficients 1 the residual is raised to the power L by every layer.

Statement. Let C = 1, L ≥ 1, and e_0 = ‖AA⁺ - AX_0‖ < 1. Then ‖AA⁺ - AX_k‖ = e_0^(L^k), for matrices of any shape and
rank. Over all matrices whose nonzero squared singular values lie in c0 [l, u], e_0 = max(|1-l|, |1-u|).
Reference: the paper's Lemma 1, which holds as an equality; docs/theorems/inverse.md, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, exp, log
from ..statement import SLACK, Inequality, Schedule, Theorem
from . import constants as shared

ROUNDING = 2.0**-50
SMALLEST = 1e-300
"""No published level lies below: smaller numbers lose their relative accuracy in floats."""


class Order(Theorem):
    """Convergence of order L."""

    id = "inverse/order"
    statement = "With all coefficients 1, ||AA+ - AX_k|| = e_0^(L^k) for e_0 = ||AA+ - AX_0|| < 1."
    reference = "Fast and Differentiable Matrix Inverse and Its Extension to SVD, Lemma 1"
    claims = shared.CLAIMS
    rule = shared.RULE
    positive_steps = False
    base = ("lower", "upper", "initial_gap", "deviation")
    choices = ()

    def parameters(self, q: Quantities) -> dict[str, float]:
        """Nothing is left to choose."""
        return {}

    def derived(self, q: Quantities) -> dict[str, Number]:
        return shared.common(q)

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [
            *shared.proper(q),
            Inequality("all coefficients are 1: max |C - 1| <= 0", q["deviation"], "<=", 0.0),
            Inequality("the start is closer than the zero matrix: e_0 < 1", q["initial_gap"], "<", 1.0),
        ]

    def schedule(self, q: Quantities) -> Schedule:
        return shared.layered(q, lambda k: _published(q, k))

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from shared.of_layers(q, schedule, lambda k: _level(q, k))


def _level(q: Quantities, k: int) -> Number:
    """e_0^(L^k)."""
    return exp(int(q["L"]) ** k * log(q["initial_gap"])) if q["initial_gap"] > 0.0 else 0.0 * q["initial_gap"]


def _published(q: Quantities, k: int) -> float:
    """The level with slack, and with what L^k times the rounding error of the logarithm can change."""
    rounding = float(int(q["L"]) ** k) * ROUNDING
    return max(min(float(_level(q, k)) * (1.0 + SLACK + rounding), float(q["initial_gap"])), SMALLEST)


THEOREM = Order()
