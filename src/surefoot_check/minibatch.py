"""Mini-batch descent near an exact fit: what a theorem about it shares between kinds of networks.

Setting. Residual r, gap ½‖r‖², J = r' Λ-Lipschitz on the ball of radius ρ around the start. N samples with residuals C_i r,
Σ C_iᵀC_i = I; at each step B of them are drawn afresh, uniformly without replacement, G_S = Σ_{i in S} C_iᵀC_i, E G_S = pI,
p = B/N. Step θ⁺ = θ - η (N/B) Jᵀ G_S r; h = ηN/B. On the ball ‖J‖ ≤ b, and for every S ‖C_S J‖ ≤ β, C_S J is Λ_B-Lipschitz, and
E‖Jᵀ G_S v‖² ≤ pω‖v‖²; σ_q(J) ≥ σ_ρ there, ≥ σ_1 within ρ_1. A fit lies within R0 = 2d/(1 + √(1 - 2Λd/σ_0)), d ≥ ‖J⁺r‖ at the
start. With γ = hβ², α = 2 - γ, α' = 2 - hω, R = gR0, s = σ_1 - ½ΛR, φ = ΛR/σ_ρ < 1, ϑ² = 2/(1 + √(1 - φ²)) and
c = η s(α's - ΛR) > 0:

S. x > 0, ρ > R0(1 + 2g/(1-√x)), ρ_1 ≥ R0(1 + ϑg/(1-√x)), γ < 2, (1-c)^T ≤ xδ and hΛ_B²/(4α) T R0² ≤ 1 - g⁻². Then for t ≤ T,
whatever the batches, ‖θ_t - θ_0‖ ≤ (1+g)R0 and gap_t ≤ ½b²R²; and with probability 1 - δ, gap_t ≤ b²R0²/(2δ)·(1-c)^t for all
t. From step jT on c may be that of R = gR_j, ½b²R_j² the bound of step jT.
S'. x = 0, δ = δ_1 + δ_2, and 1 + 2gΛR/(α's - ΛR) ≤ δ_1g². Then with probability 1 - δ, gap_t ≤ b²R0²/(2δ_2)·(1-c)^t for all t.
Reference: docs/theorems/sgd.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from .numbers import Number, Quantities, larger, log1p, smaller, sqrt
from .numbers import log as ln
from .rigor.intervals import Interval
from .statement import Inequality, Schedule, Segment, Theorem, chain, starts_with

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # ½‖r‖² at the start
    "newton_step": "upper",  # d: ‖J⁺r‖ at the start
    "sigma_min_J": "lower",  # σ_0: the least of the q singular values of J at the start
    "lipschitz_fit": "upper",  # Λ on the ball of radius fit_ball
    "norm_J_ball": "upper",  # b: ‖J‖ on the ball
    "lipschitz_J": "upper",  # Λ on the ball
    "lipschitz_batch": "upper",  # Λ_B on the ball, of every batch
    "norm_batch": "upper",  # β: ‖C_S J‖ on the ball, of every batch
    "second_moment": "upper",  # ω on the ball
    "sigma_ball": "lower",  # σ_ρ: the least singular value of J on the ball
    "sigma_inner": "lower",  # σ_1: the same on the ball of radius inner_ball
}
"""Every base quantity and the direction in which its published value must err."""
RADII = ("fit_ball", "ball", "inner_ball")
"""The published radii that these quantities depend on; all but the first three also on ``batch``."""
UNSURE = 1.0 - 2.0**-53
"""The largest number below 1."""
MOST = 1.0 - 2.0**-20
"""c where it is larger: a bound then falls to almost nothing in a step."""
BEFORE = "the Jacobian has full row rank: sigma_min(J) > 0", "a fit is near: 2 Lambda d <= sigma_min(J)"
"""The conditions without which nothing else is evaluated."""


def on_published_balls(
    published: Mapping[str, float], on_ball: Callable[[float], dict[str, Interval]]
) -> dict[str, Interval]:
    """Enclosures of the base quantities that depend on the published radii; none where there are no such balls.

    Args:
        on_ball: those on the ball of a radius, ``sigma`` for the least singular value of J there.
    """
    radii = [published.get(name, math.nan) for name in RADII]
    if not all(0.0 <= radius < math.inf for radius in radii):
        return {}
    near, there, inner = map(on_ball, radii)
    of_ball, of_inner = there.pop("sigma"), inner["sigma"]
    return {**there, "lipschitz_fit": near["lipschitz_J"], "sigma_ball": of_ball, "sigma_inner": of_inner}


def whole(name: str, x: Number) -> Iterator[Inequality]:
    """The obligations of a published count."""
    yield Inequality(f"{name} is a whole number", x, "<=", float(math.floor(float(x))))
    yield Inequality(f"{name} is at least 1", x, ">=", 1.0)


class Minibatch(Theorem):
    """Theorems S (``fraction`` x > 0) and S' (x = 0) by the names of their quantities."""

    claims = ("L1",)
    samples: ClassVar[str] = "samples"
    """Name of the size N."""
    rule = "constant"
    base = tuple(DIRECTIONS)
    choices = ("batch", "eta", "delta", "stay_delta", "growth", "fraction", "epoch", *RADII)

    def probability(self, q: Quantities) -> Number:
        """1 - δ, which is never certainty, however small δ is."""
        return smaller(1.0 - q["delta"], UNSURE)

    def stays_surely(self, q: Quantities) -> bool:
        """Whether it is Theorem S, whose first ``epoch`` steps are bounded whatever the batches."""
        return bool(q["fraction"] > 0.0)

    def contraction(self, q: Quantities, reach: Number) -> Number:
        """c, where Λ times the radius that the iterates keep to is ``reach``."""
        least = self._least(q, reach)
        return smaller(q["eta"] * least * (self._alpha_mean(q) * least - reach), MOST)

    def derived(self, q: Quantities) -> dict[str, Number]:
        """Those of the statement that can be computed; the rest need a fit that is near, and its neighbourhood regular."""
        values: dict[str, Number] = {
            "batch_step": self._batch_step(q),
            "gamma_batch": self._batch_step(q) * q["norm_batch"] * q["norm_batch"],
            "alpha_mean": self._alpha_mean(q),
        }
        if not all(condition.certain for condition in self._of_start(q)):
            return values
        distance = self.distance(q)
        reach = q["lipschitz_J"] * q["growth"] * distance
        values |= {"distance": distance, "reach": reach, "strength": self._least(q, reach)}
        values["mean_decrease"] = self.contraction(q, reach)
        if self.stays_surely(q):
            values["sure_distance"] = (1.0 + q["growth"]) * distance
            values["sure_gap"] = 0.5 * (q["norm_J_ball"] * q["growth"] * distance) ** 2
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        found = self._of_start(q)
        if not all(condition.certain for condition in found):
            return found
        v = self.derived(q)
        reach, push = v["reach"], v["alpha_mean"] * v["strength"]
        found += [
            Inequality("a step in the mean is not too long: h omega < 2", 2.0 - v["alpha_mean"], "<", 2.0),
            Inequality("J keeps full rank around the fit: Lambda g R0 < sigma(rho)", reach, "<", q["sigma_ball"]),
            Inequality("a step in the mean approaches the fits: Lambda g R0 < alpha' s", reach, "<", push),
        ]
        if not all(condition.certain for condition in found):
            return found
        return [*found, *(self._epochs(q, v) if self.stays_surely(q) else self._one_ball(q, v))]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        yield from self._choices(q)
        yield from self._radii(q)
        for segment in schedule:
            yield from starts_with(segment, q["eta"])
        yield from self._of_schedule(q, schedule)

    # -- parts of the statement ------------------------------------------------------------------------------------------

    def _batch_step(self, q: Quantities) -> Number:
        """h."""
        return q["eta"] * q[self.samples] / q["batch"]

    def _alpha_mean(self, q: Quantities) -> Number:
        """α'."""
        return 2.0 - self._batch_step(q) * q["second_moment"]

    def _least(self, q: Quantities, reach: Number) -> Number:
        """s; the inner ball is a part of the ball, so that σ_1 is at least σ_ρ."""
        return larger(q["sigma_inner"], q["sigma_ball"]) - 0.5 * reach

    def _near(self, q: Quantities) -> Number:
        """2Λd."""
        return 2.0 * q["lipschitz_fit"] * q["newton_step"]

    def _of_start(self, q: Quantities) -> list[Inequality]:
        full, near = BEFORE
        return [
            Inequality(full, q["sigma_min_J"], ">", 0.0),
            Inequality(near, self._near(q), "<=", q["sigma_min_J"]),
        ]

    def _epochs(self, q: Quantities, v: Quantities) -> list[Inequality]:
        """Of Theorem S."""
        found = [Inequality("no batch steps too far: gamma = h |C_S J|^2 < 2", v["gamma_batch"], "<", 2.0)]
        if not found[0].certain:
            return found
        nu = v["batch_step"] * q["lipschitz_batch"] * q["lipschitz_batch"] / (4.0 * (2.0 - v["gamma_batch"]))
        drift = nu * q["epoch"] * v["distance"] * v["distance"]
        room = 1.0 - 1.0 / (q["growth"] * q["growth"])
        needed = ln(1.0 / (q["fraction"] * self._rate_delta(q)))
        fall = q["epoch"] * -log1p(-v["mean_decrease"])
        return [
            *found,
            Inequality("T steps drift little, whatever the batches: nu T R0^2 <= 1 - 1/g^2", drift, "<=", room),
            Inequality("T steps are enough for the next epoch: -T ln(1-c) >= ln(1/(x delta))", fall, ">=", needed),
        ]

    def _one_ball(self, q: Quantities, v: Quantities) -> list[Inequality]:
        """Of Theorem S'."""
        g, reach = q["growth"], v["reach"]
        left = 1.0 + 2.0 * g * reach / (v["alpha_mean"] * v["strength"] - reach)
        name = "the iterates stay near the fit: 1 + 2 g Lambda R/(alpha' s - Lambda R) <= delta1 g^2"
        return [Inequality(name, left, "<=", q["stay_delta"] * g * g)]

    def _rate_delta(self, q: Quantities) -> Number:
        """δ_2: δ in Theorem S."""
        return q["delta"] - q["stay_delta"]

    def _choices(self, q: Quantities) -> Iterator[Inequality]:
        yield from whole("the batch size", q["batch"])
        yield Inequality("a batch is no larger than the data", q["batch"], "<=", q[self.samples])
        yield from whole("T", q["epoch"])
        yield Inequality("eta > 0", q["eta"], ">", 0.0)
        yield Inequality("delta < 1", q["delta"], "<", 1.0)
        yield Inequality("delta1 >= 0", q["stay_delta"], ">=", 0.0)
        yield Inequality("delta1 < delta", q["stay_delta"], "<", q["delta"])
        yield Inequality("g >= 1", q["growth"], ">=", 1.0)
        yield Inequality("x >= 0", q["fraction"], ">=", 0.0)
        yield Inequality("x < 1", q["fraction"], "<", 1.0)

    def _radii(self, q: Quantities) -> Iterator[Inequality]:
        yield Inequality("the fit lies in its ball: R0 <= its radius", self.distance(q), "<=", q["fit_ball"])
        yield Inequality("the ball is large enough", q["ball"], ">", self.least_ball(q))
        yield Inequality("the ball of nearest fits is large enough", q["inner_ball"], ">=", self.least_inner_ball(q))

    def distance(self, q: Quantities) -> Number:
        """R0, where a fit is near."""
        return 2.0 * q["newton_step"] / (1.0 + sqrt(1.0 - self._near(q) / q["sigma_min_J"]))

    def least_ball(self, q: Quantities) -> Number:
        """What ``ball`` must exceed."""
        return self.distance(q) * (1.0 + 2.0 * self._path(q))

    def least_inner_ball(self, q: Quantities) -> Number:
        """What ``inner_ball`` must reach, where J keeps full rank around the fit."""
        phi = q["lipschitz_J"] * q["growth"] * self.distance(q) / q["sigma_ball"]
        turn = sqrt(2.0 / (1.0 + sqrt(1.0 - phi * phi)))
        return self.distance(q) * (1.0 + turn * self._path(q))

    def _path(self, q: Quantities) -> Number:
        """Bound of Σ gR_j/R0."""
        return q["growth"] / (1.0 - sqrt(q["fraction"]))

    def _of_schedule(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        """Step 0 alone, then the bound of step 1 and after it, then epochs, each with the rate of its first bound."""
        first, *rest = schedule
        c, size = self.derived(q)["mean_decrease"], self.first_level(q)
        yield Inequality("the first segment is the start alone", 2 if first.count is None else first.count, "<=", 1)
        for index, segment in enumerate(rest, 1):
            if index == 1:
                yield Inequality("segment 1: level is at least the theorem's", segment.level, ">=", size * (1.0 - c))
            elif self.stays_surely(q):
                name = f"segment {index}: starts with an epoch"
                yield Inequality(name, int(segment.start) % int(float(q["epoch"])), "<=", 0)
            most = c if index == 1 else self.later_contraction(q, segment)
            yield Inequality(f"segment {index}: the decrease is the theorem's", segment.decrease, "<=", most)

    def first_level(self, q: Quantities) -> Number:
        """b²R0²/(2δ_2)."""
        size = q["norm_J_ball"] * self.distance(q)
        return size * size / (2.0 * self._rate_delta(q))

    def later_contraction(self, q: Quantities, segment: Segment) -> Number:
        """c of an epoch of Theorem S that starts with this segment; of S' the one that there is."""
        radius = self.distance(q)
        if self.stays_surely(q):
            radius = smaller(radius, sqrt(2.0 * segment.level) / q["norm_J_ball"])
        return self.contraction(q, q["lipschitz_J"] * q["growth"] * radius)
