"""``two-layer/sharp``: descent with the sharper smoothness along the gradient, for any K-smooth loss.

Statement. L(η) ≤ L - (η - η²K'(η)/2)‖∇L‖² for every η ≥ 0, K'(η) = K s+ + ‖g‖ + K s+ ‖g‖_F η + (K/2)‖W‖‖g‖‖g‖_F η².
No convexity, no optimal value, no rate: the gap never increases for steps with η K'(η) ≤ 2(1-c).
Reference: docs/theorems/two-layer-sharp.md (Theorem I of the project).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Quantities, sqrt
from ..statement import Inequality, Schedule, Theorem, one_rate
from . import constants as tl


class Sharp(Theorem):
    """Theorem I."""

    id = "two-layer/sharp"
    statement = "The gap falls by at least (eta - eta^2 K'(eta)/2) |grad L|^2 a step; it never increases."
    reference = "surefoot, docs/theorems/two-layer-sharp.md"
    rule = "sharp"
    base = ("smoothness", "initial_gap", "sigma_max_squared")
    choices = ("decrease", "initial_step")

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [Inequality("smoothness: K > 0", q["smoothness"], ">", 0.0)]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from one_rate(q, schedule, q["initial_step"], 0.0)
        r = sqrt(2.0 * q["smoothness"] * q["initial_gap"])
        k = tl.sharp_coefficients(q["smoothness"], q["sigma_max_squared"], r, r, 0.5 * q["sigma_max_squared"])
        eta, c = q["initial_step"], q["decrease"]
        yield Inequality("0 < c", c, ">", 0.0)
        yield Inequality("first step: eta0 is not negative", eta, ">=", 0.0)
        yield Inequality(
            "first step: eta0 K'(eta0) <= 2(1-c)", eta * (k[0] + eta * (k[1] + eta * k[2])), "<=", 2.0 * (1.0 - c)
        )


THEOREM = Sharp()
