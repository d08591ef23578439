"""``linear-resnet/local``: convergence certified at any iterate (the default theorem of deep linear ResNets).

Statement. Let z, M, μ be admissible on the joint Frobenius ball of radius ϱ around the weights (Lemma 3), γ in (0, 2), and
ϱ ≥ (2√2/(2-γ)) sqrt(gap_0/μ). Gradient descent from there with steps η_t ≤ γ/K_t, K_t = Σz² + sqrt(2 gap_t) λ_max(M), stays in
the ball and gap_{t+1} ≤ (1 - (2-γ) μ η_t) gap_t; so does every rule whose steps satisfy gap_{t+1} ≤ gap_t - (1-γ/2) η_t ‖∇‖².
Reference: docs/theorems/linear-resnet.md (Theorem of section 2 of the project; no counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, sqrt
from ..statement import Inequality, Schedule, Theorem, chain

BALL = "the path stays in the ball: 2 sqrt2/(2-gamma) sqrt(gap/mu) <= rho"


def smoothness(q: Quantities, gap: Number) -> Number:
    """K at a gap: Σz² + sqrt(2 gap) λ_max(M)."""
    return q["gauss_newton"] + sqrt(2.0 * gap) * q["bilinear"]


def decrease(q: Quantities, eta: Number) -> Number:
    """(2-γ) μ η."""
    return (2.0 - q["gamma"]) * q["pl_constant"] * eta


class Local(Theorem):
    """The along-the-trajectory theorem."""

    id = "linear-resnet/local"
    statement = (
        "From weights whose ball of radius rho contains the path, the gap falls by 1 - (2-gamma) mu eta_t a step."
    )
    reference = "surefoot, docs/theorems/linear-resnet.md"
    rule = "certified-bb"
    constant_steps = True
    base = ("initial_gap", "pl_constant", "gauss_newton", "bilinear")
    choices = ("radius", "gamma")

    def derived(self, q: Quantities) -> dict[str, Number]:
        values: dict[str, Number] = {"smoothness": smoothness(q, q["initial_gap"])}
        if q["pl_constant"] > 0.0:
            factor = 2.0 * sqrt(2.0 + 0.0 * q["initial_gap"]) / (2.0 - q["gamma"])
            values["required_radius"] = factor * sqrt(q["initial_gap"] / q["pl_constant"])
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        needed = self.derived(q).get("required_radius")
        conditions = [Inequality("no layer loses rank on the ball: mu > 0", q["pl_constant"], ">", 0.0)]
        if needed is not None:
            # γ > 1 asks for <. That is what is proved: needed carries the ball of √2, and at equality nothing is certain
            conditions.append(Inequality(BALL, needed, "<=", q["radius"]))
        return conditions

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        yield Inequality("gamma > 0", q["gamma"], ">", 0.0)
        yield Inequality("gamma < 2", q["gamma"], "<", 2.0)
        for index, segment in enumerate(schedule):
            where = f"segment {index}"
            step = segment.main_step
            yield Inequality(f"{where}: eta K <= gamma", step * smoothness(q, segment.level), "<=", q["gamma"])
            yield Inequality(f"{where}: the step achieves the decrease", decrease(q, step), ">=", segment.decrease)
            yield Inequality(f"{where}: one step", segment.other_step, "<=", 0.0)


THEOREM = Local()
