"""``feed-forward/minimum``: a strict local minimum of the training objective lies near these weights, and descent reaches it.

Statement. Let H = ∇²L be Λ-Lipschitz on the ball of radius ρ around θ_0, m_0 ≤ λ_min(H(θ_0)), g_0 ≥ ‖∇L(θ_0)‖, Λρ ≤ m_0,
P(x) = m_0x - ½Λx², g_0 ≤ P(ρ) and m*² = m_0² - 2Λg_0 > 0. At a state with D ≤ ρ (the distance to θ_0) and
V = ‖∇L‖ + P(D) ≤ g_0, a step η of gradient descent with η(M + m_0) ≤ 2, M ≥ ‖H‖ within ρ*, does not increase V and leaves
‖∇L⁺‖ ≤ ‖∇L‖(1 - η√(m*² + 2Λ‖∇L⁺‖)); such states lie within ρ* = 2g_0/(m_0 + m*), where L is strongly convex with m*, so that
L - L* ≤ ‖∇L‖²/(2m*). Gaps of this theorem are ½‖∇L‖², as L* is not known. Where L is a
cross-entropy without decay, all this is up to what shifts all outputs of a row alike, which L does not see.
Reference: docs/theorems/feed-forward.md (Theorem C).
"""

from __future__ import annotations

from ..near_a_fit.state import StateTheorem, size
from ..numbers import Number, Quantities, sqrt
from ..statement import Inequality

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # ½‖∇L(θ_0)‖²
    "lambda_min_H": "lower",  # λ_min(H(θ_0)), or 0 where that is negative
    "norm_H": "upper",  # ‖H(θ_0)‖
    "lipschitz_H": "upper",  # Λ on the ball
}
"""Every base quantity and the direction in which its published value must err."""


class Minimum(StateTheorem):
    """Theorem C."""

    id = "feed-forward/minimum"
    statement = (
        "A local minimum, strict up to shifts of all outputs that change no loss, lies within the radius, and descent reaches "
        "it: |grad'| <= (1 - eta m*) |grad|."
    )
    reference = "surefoot, docs/theorems/feed-forward.md, Theorem C"
    base = ("initial_gap", "lambda_min_H", "norm_H", "lipschitz_H")
    state = "|grad| + P(D) <= g0"
    least, bend, start, kept = "lambda_min_H", "lipschitz_H", "g0", "m_star"

    def fall(self, q: Quantities, gap: Number) -> Number:
        """η√(m*² + 2Λ‖∇L⁺‖)."""
        return q["eta"] * sqrt(self.left(q) + 2.0 * q["lipschitz_H"] * size(gap))

    def derived(self, q: Quantities) -> dict[str, Number]:
        values = super().derived(q)
        if "radius" in values:
            values["norm_H_ball"] = q["norm_H"] + q["lipschitz_H"] * values["radius"]
            values["loss_gap"] = q["initial_gap"] / values["m_star"]
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        found = [Inequality("the Hessian is positive definite: lambda_min(H) > 0", q["lambda_min_H"], ">", 0.0)]
        if not found[0].certain:
            return found
        g0, least, bend = size(q["initial_gap"]), q["lambda_min_H"], q["lipschitz_H"]
        found.append(
            Inequality("the gradient is small: 2 Lambda g0 < lambda_min(H)^2", 2.0 * bend * g0, "<", least * least)
        )
        found.append(Inequality("the ball: Lambda rho <= lambda_min(H)", bend * q["ball"], "<=", least))
        found.append(Inequality("the minimum lies in the ball: g0 <= P(rho)", g0, "<=", self.reach(q, q["ball"])))
        return found

    def floor(self, q: Quantities) -> Inequality:
        norm = self.derived(q)["norm_H_ball"]
        return Inequality("the floor step: eta (M + m0) <= 2", q["eta"] * (norm + q["lambda_min_H"]), "<=", 2.0)


THEOREM = Minimum()
