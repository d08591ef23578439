"""Theorem B: an exact fit lies near these weights, also where descent to it is not guaranteed.

Statement. Let J be Λ-Lipschitz on the ball of radius ρ around θ_0, σ_0 ≤ σ_n(J(θ_0)), δ ≥ ‖J_0⁺r_0‖, h = Λδ/σ_0 < ½ and
ρ ≥ ρ* = 2δ/(1 + √(1-2h)). Some θ* with f(θ*) = Y has ‖θ* - θ_0‖ ≤ ρ*, the simplified Newton iteration
θ_{k+1} = θ_k - J_0⁺r_k stays within ρ* and converges to such a point, and ‖r_{k+1}‖ ≤ q‖r_k‖ with q = 1 - √(1-2h).
Reference: docs/theorems/feed-forward.md (Theorem B).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..numbers import Number, Quantities, larger, sqrt
from ..statement import Inequality, Schedule, Theorem, one_rate
from . import local
from .state import size

FASTEST = 0.1
"""Least factor of the residual that is claimed of a step: less would soon be below rounding, where runs in floats end."""


class ExactFit(Theorem):
    """Theorem B of one system."""

    statement = (
        "An exact fit lies within the radius; Newton's iteration with the first Jacobian reaches it: |r'| <= q |r|."
    )
    locates = True
    rule = "simplified-newton"
    base = ("initial_gap", "sigma_min_J", "newton_step", "lipschitz_J", "kink_margin")
    choices = ("ball",)
    enough: ClassVar[staticmethod[[Quantities], Inequality]]
    """That there are no more outputs, of all rows, than parameters; by the sizes of the network."""

    def derived(self, q: Quantities) -> dict[str, Number]:
        """r_0; q and ρ* where there are any."""
        values: dict[str, Number] = {"r0": size(q["initial_gap"])}
        if "newton_step" not in q or "lipschitz_J" not in q or not q["sigma_min_J"] > 0.0:
            return values
        twice = 2.0 * q["lipschitz_J"] * q["newton_step"] / q["sigma_min_J"]
        if not twice < 1.0:
            return values
        parts = 1.0 + sqrt(1.0 - twice)
        return {**values, "contraction": twice / parts, "radius": 2.0 * q["newton_step"] / parts}

    def conditions(self, q: Quantities) -> list[Inequality]:
        found = local.of_full_rank(q, self.enough)
        if not all(condition.certain for condition in found):
            return found
        sigma, bend, step = q["sigma_min_J"], q["lipschitz_J"], q["newton_step"]
        found.append(
            Inequality("the Newton step is small: 2 Lambda delta < sigma_min(J)", 2.0 * bend * step, "<", sigma)
        )
        return [*found, *local.within_the_ball(q, "sigma_min(J) delta", sigma * step)]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield Inequality("the ball is not negative", q["ball"], ">=", 0.0)
        yield from one_rate(q, schedule, 1.0, self.decrease(q))

    def decrease(self, q: Quantities) -> Number:
        """Of the gap in every step."""
        factor = larger(self.derived(q)["contraction"], FASTEST)
        return 1.0 - factor * factor
