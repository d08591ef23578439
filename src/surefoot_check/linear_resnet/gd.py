"""``linear-resnet/gd``: global convergence of gradient descent from zero weights (Theorem 3.1 of the paper).

Statement. W = 0 and σ²_min(A) σ²_min(B)/(‖A‖‖B‖) ≥ 4 sqrt(2e³) ‖X‖ sqrt(gap_0)/σ_r²(X). With the step
η = 1/(2L‖A‖‖B‖‖X‖(sqrt(e L_0) + ½ e ‖A‖‖B‖‖X‖)), gap_t ≤ (1 - η L σ²_min(A)σ²_min(B)σ_r²(X)/e)^t gap_0.
L_0 is the initial loss; any upper bound of the gap in its place only makes the step smaller.
Reference: "On the Global Convergence of Training Deep Linear ResNets", Theorem 3.1; proof as
Corollary 1 in docs/theorems/linear-resnet.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, exp, sqrt
from ..statement import Inequality, Schedule, Theorem, one_rate


def _e(q: Quantities) -> Number:
    """Euler's number in the arithmetic of ``q``: a float, or a ball around it."""
    return exp(1.0 + 0.0 * q["initial_gap"])


def step(q: Quantities) -> Number:
    """η of the theorem."""
    e = _e(q)
    J = q["norm_A"] * q["norm_B"] * q["norm_X"]
    return 1.0 / (2.0 * q["depth"] * J * (sqrt(e * q["initial_loss"]) + 0.5 * e * J))


def decrease(q: Quantities, eta: Number) -> Number:
    """η L σ²_min(A) σ²_min(B) σ_r²(X) / e."""
    e = _e(q)
    lowest = q["sigma_min_A"] * q["sigma_min_B"] * q["sigma_min_X"]
    return eta * q["depth"] * lowest * lowest / e


class GradientDescent(Theorem):
    """Theorem 3.1 with its explicit constants."""

    id = "linear-resnet/gd"
    statement = (
        "From zero weights the theorem's constant step contracts the gap by 1 - eta L smin(A)^2 smin(B)^2 sr(X)^2 / e."
    )
    reference = "On the Global Convergence of Training Deep Linear ResNets, Theorem 3.1"
    rule = "constant"
    constant_steps = True
    base = (
        "initial_gap",
        "norm_A",
        "norm_B",
        "sigma_min_A",
        "sigma_min_B",
        "norm_X",
        "sigma_min_X",
        "weight_norm",
    )
    choices = ("initial_loss", "initial_step")

    def conditions(self, q: Quantities) -> list[Inequality]:
        e = _e(q)
        lowest = q["sigma_min_A"] * q["sigma_min_B"] * q["sigma_min_X"]
        left = lowest * lowest
        right = 4.0 * sqrt(2.0 * e * e * e) * q["norm_X"] * sqrt(q["initial_gap"]) * q["norm_A"] * q["norm_B"]
        return [
            Inequality("the weights start at zero: |W| <= 0", q["weight_norm"], "<=", 0.0),
            Inequality("A, B and X have full rank: smin(A) smin(B) sr(X) > 0", left, ">", 0.0),
            Inequality("smin(A)^2 smin(B)^2 sr(X)^2 >= 4 sqrt(2 e^3) |A| |B| |X| sqrt(gap)", left, ">=", right),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from one_rate(q, schedule, q["initial_step"], decrease(q, q["initial_step"]))
        yield Inequality("the initial loss is at least the gap", q["initial_loss"], ">=", q["initial_gap"])
        yield Inequality("eta > 0", q["initial_step"], ">", 0.0)
        yield Inequality("eta is at most the theorem's step", q["initial_step"], "<=", step(q))


THEOREM = GradientDescent()
