"""``implicit/flow``: global convergence of the gradient flow from the paper's conditions (its Theorem 4.2).

Statement. With γ0 < 1, α² ≥ 4λ0 F R/(1-γ0) and α³ ≥ 8 Q λ3 F² R/(1-γ0)², the loss along the gradient flow is at most
exp(-α²t/2) times the initial one. The schedule counts units of time, not iterations: no run of gradient descent is a
flow, and no run directory is accepted by it. C1, C2, C3 > 0 are free.
Reference: "Gradient Descent Optimizes Infinite-Depth ReLU Implicit Networks with Linear Widths", Theorem 4.2; for
flows that stay at kinks see docs/theorems/implicit.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from surefoot_check.implicit import paper
from surefoot_check.numbers import Number, Quantities, exp
from surefoot_check.statement import Inequality, Schedule, Theorem, chain

FACTOR = 4.0


def hypotheses(q: Quantities) -> list[Inequality]:
    """(14) and (15)."""
    return paper.conditions(q, FACTOR, ("(14)", "(15)"))


class GradientFlow(Theorem):
    """Theorem 4.2."""

    id = "implicit/flow"
    statement = (
        "Under the paper's conditions the loss along the gradient flow is at most exp(-alpha^2 t / 2) of the first."
    )
    reference = "Gradient Descent Optimizes Infinite-Depth ReLU Implicit Networks with Linear Widths, Theorem 4.2"
    provable = False
    rule = "constant"
    positive_steps = False
    counts_time = True
    base = ("initial_gap", "gamma", "frobenius_X", "norm_A", "norm_W", "norm_b", "sigma_min_Z")
    choices = ("C1", "C2", "C3")

    def derived(self, q: Quantities) -> dict[str, Number]:
        return paper.derived(q)

    def conditions(self, q: Quantities) -> list[Inequality]:
        first = [
            Inequality("the features have full row rank: sigma_min(Z) > 0", q["sigma_min_Z"], ">", 0.0),
            *paper.well_posed(q),
        ]
        return [*first, *hypotheses(q)] if all(c.certain for c in first) else first

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        for segment in schedule:
            left = exp(-0.5 * q["sigma_min_Z"] * q["sigma_min_Z"])
            yield Inequality("the decrease is that of a unit of time", left, "<=", 1.0 - segment.decrease)
            yield Inequality("a flow has no step", segment.step, "<=", 0.0)


THEOREM = GradientFlow()
