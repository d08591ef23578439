"""Theorem A: from these weights descent reaches an exact fit, whatever trained them.

Statement. Let J be Λ-Lipschitz on the ball of radius ρ around θ_0, σ_0 ≤ σ_n(J(θ_0)), r_0 ≥ ‖r(θ_0)‖, Λρ ≤ σ_0,
Q(x) = σ_0x - ½Λx², r_0 ≤ Q(ρ) and σ*² = σ_0² - 2Λr_0 > 0. At a state with D ≤ ρ (the distance to θ_0) and
V = ‖r‖ + Q(D) ≤ r_0, a step η of gradient descent with η‖J(θ)‖² ≤ 1 does not increase V and leaves
‖r⁺‖ ≤ ‖r‖(1 - ησ*²)/(1 + 2ηΛ‖r‖); such states lie within ρ* = 2r_0/(σ_0 + σ*). Any other step to such a state, with a gap at
most the guaranteed one, is as good: of it that is tested.
Reference: docs/theorems/feed-forward.md (Theorem A).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..numbers import Number, Quantities
from ..statement import Inequality
from .state import StateTheorem, size

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # ½‖r(θ_0)‖²
    "sigma_min_J": "lower",  # σ_n(J(θ_0)), the root of λ_min(JJᵀ)
    "norm_J": "upper",  # ‖J(θ_0)‖
    "lipschitz_J": "upper",  # Λ on the ball
    "kink_margin": "lower",  # least quotient of distance to a kink and change on the ball
    "newton_step": "upper",  # ‖J⁺r‖ at θ_0, for Theorem B
}
"""Every base quantity and the direction in which its published value must err."""


def of_full_rank(q: Quantities, enough: Callable[[Quantities], Inequality]) -> list[Inequality]:
    """What a fit of every target near the weights needs at all; ``enough``: that there are as many parameters as outputs."""
    return [enough(q), Inequality("the Jacobian has full row rank: sigma_min(J) > 0", q["sigma_min_J"], ">", 0.0)]


def within_the_ball(q: Quantities, what: str, least: Number) -> list[Inequality]:
    """Q increases on the ball and comes to a least value there, and no activation changes its piece."""
    bend, sigma, rho = q["lipschitz_J"], q["sigma_min_J"], q["ball"]
    found = [
        Inequality("the ball: Lambda rho <= sigma_min(J)", bend * rho, "<=", sigma),
        Inequality(f"the fit lies in the ball: {what} <= Q(rho)", least, "<=", rho * (sigma - 0.5 * bend * rho)),
    ]
    return [*found, *without_kinks(q)]


def without_kinks(q: Quantities) -> list[Inequality]:
    """No activation changes its piece on the ball."""
    if "kink_margin" not in q:
        return []
    return [Inequality("(5): no pre-activation reaches a kink in the ball: margin > 1", q["kink_margin"], ">", 1.0)]


class Local(StateTheorem):
    """Theorem A of one system."""

    statement = "An exact fit lies within the radius, and descent reaches it: |r'| <= (1 - eta sigma*^2) |r|."
    base = ("initial_gap", "sigma_min_J", "norm_J", "lipschitz_J", "kink_margin")
    state = "|r| + Q(D) <= r0"
    least, bend, start, kept = "sigma_min_J", "lipschitz_J", "r0", "sigma_star"

    enough: ClassVar[staticmethod[[Quantities], Inequality]]
    """That there are no more outputs, of all rows, than parameters; by the sizes of the network."""

    def fall(self, q: Quantities, gap: Number) -> Number:
        """1 - (1 - ησ*²)/(1 + 2ηΛ‖r‖)."""
        gain, more = q["eta"] * self.left(q), 2.0 * q["eta"] * q["lipschitz_J"] * size(gap)
        return (gain + more) / (1.0 + more)

    def derived(self, q: Quantities) -> dict[str, Number]:
        values = super().derived(q)
        if "radius" in values:
            values["norm_J_ball"] = q["norm_J"] + q["lipschitz_J"] * values["radius"]
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        found = of_full_rank(q, self.enough)
        if not all(condition.certain for condition in found):
            return found
        r0, sigma, bend = size(q["initial_gap"]), q["sigma_min_J"], q["lipschitz_J"]
        found.append(
            Inequality("the residual is small: 2 Lambda r0 < sigma_min(J)^2", 2.0 * bend * r0, "<", sigma * sigma)
        )
        return [*found, *within_the_ball(q, "r0", r0)]

    def floor(self, q: Quantities) -> Inequality:
        norm = self.derived(q)["norm_J_ball"]
        return Inequality("the floor step: eta |J|^2 <= 1", q["eta"] * norm * norm, "<=", 1.0)
