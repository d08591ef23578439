"""``implicit/gd``: global convergence of gradient descent from the paper's conditions (its Theorem 4.4).

Statement. With γ0 < 1, α² ≥ 8λ0 F R/(1-γ0), α³ ≥ 16 Q λ3 F² R/(1-γ0)², α² ≥ 16 Q λ3² F²/(1-γ0)² and η < min{4/α²,
2(1-γ0)² Q λ3² / ((Qλ3² + λ1²)² F²)}, the loss falls by 1 - ηα²/4 a step. (The second bound of η is the printed one
with its powers multiplied out.) C1, C2, C3 > 0 are free; they are chosen for the largest step.
Reference: "Gradient Descent Optimizes Infinite-Depth ReLU Implicit Networks with Linear Widths", Theorem 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, smaller
from ..statement import Inequality, Schedule, Theorem, one_rate
from . import paper

FACTOR = 8.0


def hypotheses(q: Quantities) -> list[Inequality]:
    """(17), (18) and (19)."""
    values = paper.constants(q)
    F, slope = q["frobenius_X"], 1.0 - values.g0
    right = 16.0 * values.Q * values.l3 * values.l3 * F * F / (slope * slope)
    square = q["sigma_min_Z"] * q["sigma_min_Z"]
    last = Inequality("(19): 16 Q l3^2 |X|_F^2/(1-g0)^2 <= alpha^2", right, "<=", square)
    return [*paper.conditions(q, FACTOR, ("(17)", "(18)")), last]


def largest_step(q: Quantities) -> Number:
    """The bound of (20)."""
    values = paper.constants(q)
    slope, total = 1.0 - values.g0, values.Q * values.l3 * values.l3 + values.l1 * values.l1
    F, alpha = q["frobenius_X"], q["sigma_min_Z"]
    second = 2.0 * slope * slope * values.Q * values.l3 * values.l3 / (total * total * F * F)
    return smaller(4.0 / (alpha * alpha), second)


class GradientDescent(Theorem):
    """Theorem 4.4."""

    id = "implicit/gd"
    statement = "Under the paper's conditions a constant step makes the loss fall by 1 - eta alpha^2 / 4."
    reference = "Gradient Descent Optimizes Infinite-Depth ReLU Implicit Networks with Linear Widths, Theorem 4.4"
    rule = "certified-constant"
    constant_steps = True
    base = ("initial_gap", "gamma", "frobenius_X", "norm_A", "norm_W", "norm_b", "sigma_min_Z")
    choices = ("C1", "C2", "C3", "eta")

    def derived(self, q: Quantities) -> dict[str, Number]:
        return paper.derived(q)

    def conditions(self, q: Quantities) -> list[Inequality]:
        first = [
            Inequality("the features have full row rank: sigma_min(Z) > 0", q["sigma_min_Z"], ">", 0.0),
            Inequality("there are inputs: |X|_F > 0", q["frobenius_X"], ">", 0.0),
            *paper.well_posed(q),
        ]
        if not all(c.certain for c in first):
            return first
        return [*first, *hypotheses(q), Inequality("(20): eta is below its bound", q["eta"], "<", largest_step(q))]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from one_rate(q, schedule, q["eta"], q["eta"] * q["sigma_min_Z"] * q["sigma_min_Z"] / 4.0)
        yield Inequality("eta > 0", q["eta"], ">", 0.0)


THEOREM = GradientDescent()
