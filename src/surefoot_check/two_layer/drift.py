"""``two-layer/drift``: the drift budget (the default theorem of two-layer linear networks).

Statement. Let ℓ be K-smooth and μ-PL, and let α1 > 0 bound s-(0) through imbalance and margin. If every step keeps
the drift d_t = η²(‖G1‖² + ‖G2‖²) within κ(θα1 - Q_t)(1 - L_{t+1}/L_t), Q_t the drift spent, and lowers the gap at
least as much as the floor step does, then s-(t) ≥ (1-θ)α1 for all t and L_t is at most the schedule
L̂_{t+1} = (1 - v(L̂_t)) L̂_t, where v does not increase with its argument.
Reference: docs/theorems/two-layer-drift.md (Theorems II, 5 and III of the project; no counterpart in the paper).

Because v(L) does not increase with L, the rate at a level holds at every lower gap: a schedule of a few hundred
segments of constant rate is as valid as the recursion itself, and checks in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, smaller, sqrt
from ..statement import Inequality, Schedule, Theorem, chain
from . import constants as tl

KAPPA = 0.5
"""κ of the budget condition (T); ½ minimises the time spent under the cap."""
DECREASE = 0.5
"""c: floor steps lower the gap by at least c·η‖∇L‖²."""


class Level:
    """The constants k̂, l̂, û, ŝ, cap of Theorem 5 at a guaranteed gap L, in floats or balls."""

    def __init__(self, q: Quantities, gap: Number) -> None:
        K, mu = q["smoothness"], q["strong_convexity"]
        spendable = q["budget"] * q["alpha1"]
        self.sigma = (1.0 - q["budget"]) * q["alpha1"]
        if "optimum_sigma_max" in q:
            beta2 = tl.margin_above(q, tl.gap_radius(q, gap))
            s_plus = tl.sigma_max_squared_along(q, beta2, spendable)
            w = smaller(beta2, 0.5 * s_plus)
        else:  # path form (Theorem 6): the iterates stay within sqrt(2 L0/(μ s_*))/c of the start
            length = sqrt(2.0 * q["initial_gap"] / (mu * self.sigma)) / DECREASE
            root = sqrt(q["sigma_max_squared"]) + length
            s_plus = root * root
            w = 0.5 * s_plus
        r = sqrt(2.0 * K * gap)
        self.k = tl.sharp_coefficients(K, s_plus, r, r, w)
        self.lower, self.upper = mu * self.sigma, K * s_plus
        self.curvature = K * sqrt(K) * w * sqrt(2.0 * gap)
        self.cap = KAPPA * spendable / sqrt(q["initial_gap"] * gap)  # κ y_t / L_t ≥ this, by Theorem II with κ = ½

    def sharp_decrease(self, eta: Number) -> Number:
        """v(L) of Theorem 5 at the floor step η."""
        return 2.0 * self.lower * tl.sharp_gain(eta, self.k)

    def contraction_decrease(self, eta: Number) -> Number:
        """v_III(L) at the floor step η: 1 - f² = (1 - f)(1 + f)."""
        loss = eta * self.lower - eta * eta * self.curvature
        return loss * (2.0 - loss)

    def sharp_floor(self, where: str, eta: Number) -> Iterator[Inequality]:
        """That η is a floor step of Theorem I: h increases up to η, and the budget is kept."""
        k0, k1, k2 = self.k
        best = eta * (k0 + eta * (1.5 * k1 + eta * 2.0 * k2))
        yield Inequality(f"{where}: the gain increases up to the floor step", best, "<=", 1.0)
        spent = eta * (1.0 / self.cap + 0.5 * k0 + eta * (0.5 * k1 + eta * 0.5 * k2))
        yield Inequality(f"{where}: the floor step keeps the budget", spent, "<=", 1.0)

    def contraction_floor(self, where: str, eta: Number) -> Iterator[Inequality]:
        """That η is a floor step of Theorem III: f = 1 - η l̂ + η² ŝ decreases up to η, and the budget is kept."""
        yield Inequality(f"{where}: the floor step is at most 2/(l+u)", eta * (self.lower + self.upper), "<=", 2.0)
        bend = 2.0 * eta * self.curvature
        yield Inequality(f"{where}: the factor decreases up to the floor step", bend, "<=", self.lower)
        spent = 2.0 * self.upper * eta * eta
        yield Inequality(
            f"{where}: the floor step keeps the budget", spent, "<=", self.cap * self.contraction_decrease(eta)
        )


class Drift(Theorem):
    """Theorem II with the advance count of Theorem 5, and of Theorem III for quadratic losses."""

    id = "two-layer/drift"
    statement = (
        "Gradient descent whose steps keep the drift budget and do at least as well as the floor step keeps "
        "s-(t) >= (1 - budget) alpha1, and its gap stays under the schedule."
    )
    reference = "surefoot, docs/theorems/two-layer-drift.md"
    rule = "certified-bb"
    base = (
        "smoothness",
        "strong_convexity",
        "lambda_plus",
        "lambda_minus",
        "lambda_n",
        "lambda_m",
        "initial_gap",
        "optimum_sigma_min",
        "optimum_sigma_max",
        "sigma_max_squared",
    )
    choices = ("budget", "decrease")
    use_sharp = True

    def uses_contraction(self, q: Quantities) -> bool:
        """Theorem III applies to quadratic losses; in the path form every step must satisfy (S), which it does not give."""
        return bool(q["quadratic"]) and "optimum_sigma_max" in q

    def derived(self, q: Quantities) -> dict[str, Number]:
        values: dict[str, Number] = {}
        if q["strong_convexity"] > 0.0:
            radius = tl.gap_radius(q, q["initial_gap"])
            values["radius"] = radius
            values["beta1"] = tl.margin_below(q, radius)
            if "optimum_sigma_max" in q:
                values["beta2"] = tl.margin_above(q, radius)
                values["alpha2"] = tl.alpha2(q, values["beta2"])
        values["alpha1"] = tl.alpha1(q, values.get("beta1", 0.0))
        values["guaranteed_sigma"] = (1.0 - q["budget"]) * values["alpha1"]
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [
            Inequality("strong convexity (or PL constant): mu > 0", q["strong_convexity"], ">", 0.0),
            Inequality("imbalance and margin: alpha1 > 0", self.derived(q)["alpha1"], ">", 0.0),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        yield Inequality("0 < theta", q["budget"], ">", 0.0)
        yield Inequality("theta < 1", q["budget"], "<", 1.0)
        yield Inequality("c is at most the theorem's", q["decrease"], "<=", DECREASE)
        yield Inequality("c is at least the theorem's", q["decrease"], ">=", DECREASE)
        q = {**q, **self.derived(q)}
        for index, segment in enumerate(schedule):
            where = f"segment {index}"
            if not segment.level > 0.0:
                yield Inequality(f"{where}: at the optimum", segment.level, "<=", 0.0)
                continue
            level = Level(q, segment.level)
            eta, other = segment.main_step, segment.other_step
            if self.use_sharp and not (self.uses_contraction(q) and other > 0.0):
                floor, decrease = level.sharp_floor(where, eta), level.sharp_decrease(eta)
            else:
                eta, other = other, eta
                floor, decrease = level.contraction_floor(where, eta), level.contraction_decrease(eta)
            yield from floor
            yield Inequality(f"{where}: there is no step of the other kind", other, "<=", 0.0)
            yield Inequality(f"{where}: the floor step achieves the decrease", decrease, ">=", segment.decrease)


THEOREM = Drift()
