"""``two-layer/corrected``: the linear-rate theorem of the paper (Theorem 3.2 / E.1) with the corrected α1.

Statement. Let α1 > 0, 0 < c < 1 < d, e = exp(η0^c), μ̄ = μ[α1 + 2α2(1 - e)], K̄_0 = r0 + 6K²β2L0η0² + K e α2(1 + 3 r0 η0),
r0 = sqrt(2KL0), ρ̄ = 1 - 2μ̄η0 + μ̄K̄_0η0², Δ = (1+η0^d)ρ̄. If η0 K̄_0 < 1 and 4KL0η0² < (1 - 1/e)(1 - Δ), then steps
η0 ≤ η_t ≤ min((1+η0^d)^(t/2) η0, root of ηK_t(η) = 1) give L_t ≤ ρ̄^t L0 for all t.
Reference: docs/theorems/two-layer-corrected.md; differs from the paper in α1 (n ≠ m, erratum E.3), exp(η^c) throughout, and
in stating the two conditions at η0 itself in place of roots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

from ..numbers import Number, Quantities, exp, expm1, log1p, power, smaller, sqrt
from ..statement import Inequality, Schedule, Segment, Theorem, chain, starts_with
from . import constants as tl

C_EXPONENT, D_EXPONENT = 0.5, 1.01
"""c and d of the paper's experiments."""
LEAST_GROWTH = 2.0**-53
"""Least η0^c, by which the imbalance may grow."""
SAFETY = 0.999
"""η0 is this share of η_max (the paper leaves it open)."""
ROOT_ACCURACY = 1e-6
"""Relative error granted to the published roots e1 and e2; bisection leaves some 1e-15."""


def barred(q: Quantities, eta: Number) -> dict[str, Number]:
    """μ̄, K̄_0, x = 1 - ρ̄ and y = 1 - Δ at η; 1 - Δ as x - η^d(1-x), which does not cancel."""
    K, mu, gap = q["smoothness"], q["strong_convexity"], q["initial_gap"]
    r0 = sqrt(2.0 * K * gap)
    growth = exp(power(eta, q["c"]))
    mu_bar = mu * (q["alpha1"] - 2.0 * q["alpha2"] * expm1(power(eta, q["c"])))
    k_bar = r0 + 6.0 * K * K * q["beta2"] * gap * eta * eta + K * growth * q["alpha2"] * (1.0 + 3.0 * r0 * eta)
    x = 2.0 * mu_bar * eta - mu_bar * k_bar * eta * eta
    return {"mu_bar": mu_bar, "k_bar": k_bar, "rate_loss": x, "delta_loss": x - power(eta, q["d"]) * (1.0 - x)}


def step_cap(q: Quantities, t: int) -> float:
    """(1+η0^d)^(t/2) η0, the longest step that the theorem allows at iteration t (floats; cut off before it overflows)."""
    eta = q["initial_step"]
    return math.exp(min(0.5 * t * math.log1p(eta ** q["d"]), 700.0)) * eta


def smoothness_ahead(q: Quantities, t: int) -> float:
    """K̄_t, the bound of K_t that is known before training (floats); K̄_0 is that of ``barred`` at η0."""
    K, gap, eta = q["smoothness"], q["initial_gap"], q["initial_step"]
    rho_t, delta_t = q["rho_bar"] ** t, q["delta"] ** t
    return (
        math.sqrt(2.0 * K * gap * rho_t)
        + 6.0 * K * K * q["beta2"] * gap * eta * eta * delta_t
        + K * math.exp(eta ** q["c"]) * q["alpha2"] * (1.0 + 3.0 * math.sqrt(2.0 * K * gap * delta_t) * eta)
    )


def k_bar_root(q: Quantities) -> float:
    """e1: the root of η K̄_0(η) = 1, by bisection in log η (floats)."""
    return _first_crossing(lambda eta: eta * barred(q, eta)["k_bar"] - 1.0, _positive_bracket(q))


def budget_root(q: Quantities, below: float) -> float:
    """e2: the smallest positive root of 4KL0η² = (1-exp(-η^c))(1-Δ), scanning up from 0 to e3 = ``below`` (floats).

    Near 0 the left side is O(η²) and the right one of order η^(1+c); with d near 1 the first crossing can be absurdly small,
    and the scan is therefore geometric, 32 points a decade down to 1e-140.
    """

    def excess(eta: float) -> float:
        right = -math.expm1(-(eta ** float(q["c"]))) * barred(q, eta)["delta_loss"]
        return 4.0 * q["smoothness"] * q["initial_gap"] * eta * eta - right

    return _first_crossing(excess, below)


def _positive_rate_limit(q: Quantities) -> Number:
    """e3: where μ̄ reaches 0, log(1 + α1/(2α2))^(1/c)."""
    return power(log1p(q["alpha1"] / (2.0 * q["alpha2"])), 1.0 / q["c"])


def _limits(q: Quantities) -> Iterator[Inequality]:
    """The published roots are roots up to their accuracy, or e2 the end e3 of its range, and η0 is below all limits."""
    e1, e2, at = q["e1"], q["e2"], barred(q, q["e2"])
    yield Inequality("e1 solves eta K_bar0 = 1 from below", e1 * barred(q, e1)["k_bar"], "<=", 1.0 + ROOT_ACCURACY)
    yield Inequality("e1 solves eta K_bar0 = 1 from above", e1 * barred(q, e1)["k_bar"], ">=", 1.0 - ROOT_ACCURACY)
    left = 4.0 * q["smoothness"] * q["initial_gap"] * e2 * e2
    kept = -expm1(-power(e2, q["c"]))
    right = kept * at["delta_loss"]
    # 1 - Δ is a difference of terms of this size, and cancels where e2 is close to 2/K̄_0, or to (2μ̄)^(1/(d-1))
    error = ROOT_ACCURACY * (left + kept * (2.0 * at["mu_bar"] * e2 + power(e2, q["d"])))
    yield Inequality("e2 lies in its range", e2 * (1.0 - ROOT_ACCURACY), "<=", q["e3"])  # beyond, mu_bar is negative
    yield Inequality("e2 keeps the imbalance close", left - error, "<=", right)
    if not e2 >= q["e3"] * (1.0 - ROOT_ACCURACY):
        yield Inequality("e2 is where it no longer stays close", left + error, ">=", right)
    yield Inequality("the first step is at most eta_max", q["initial_step"], "<=", q["eta_max"])


def _positive_bracket(q: Quantities) -> float:
    """A point where η K̄_0(η) > 1: K̄_0 ≥ K α2."""
    return 1.0 / (q["smoothness"] * q["alpha2"])


def _first_crossing(excess: Callable[[float], float], high: float) -> float:
    """Smallest zero of a function that is negative near 0 and positive at ``high``: scan down, then bisect in log η."""
    ratio = 10.0 ** (1.0 / 32.0)
    low, first = high, 0.0
    while low > 1e-140:  # below, η² underflows
        low /= ratio
        if excess(low) < 0.0:
            if first == 0.0:
                first = low
        elif first > 0.0:  # positive again below a negative stretch: the first crossing is lower
            first, high = 0.0, low
    if first == 0.0:
        return 0.0
    low = first
    high = first * ratio
    for _ in range(100):
        middle = math.sqrt(low * high)
        if middle in (low, high):
            break
        low, high = (middle, high) if excess(middle) < 0.0 else (low, middle)
    return low


class Corrected(Theorem):
    """Theorem 8 of the proofs: the paper's Theorem 3.2 with the corrected α1."""

    id = "two-layer/corrected"
    statement = "Steps between eta0 and min((1+eta0^d)^(t/2) eta0, 1/K_t) contract the gap by rho_bar each."
    reference = (
        "A Local Polyak-Lojasiewicz and Descent Lemma of Gradient Descent for Overparametrized Linear Models, "
        "Theorems 3.2 and E.1, with the alpha1 of docs/errata.md"
    )
    rule = "paper-rho"
    base = (
        "smoothness",
        "strong_convexity",
        "lambda_plus",
        "lambda_minus",
        "lambda_n",
        "lambda_m",
        "initial_gap",
        "initial_distance",
        "optimum_sigma_min",
        "optimum_sigma_max",
    )
    choices = ("c", "d", "initial_step", "e1", "e2")
    _alpha1: ClassVar = staticmethod(tl.alpha1)

    def parameters(self, q: Quantities) -> dict[str, float]:
        """c, d, the roots e1 and e2, and η0 = 0.999 η_max, η_max = min(e1, e2, e3)."""
        values = {"c": C_EXPONENT, "d": D_EXPONENT, **{k: q[k] for k in ("c", "d") if k in q}, "initial_step": 0.0}
        if not (q["strong_convexity"] > 0.0 and "initial_distance" in q and q["initial_gap"] > 0.0):
            return values
        q = {**q, **values}
        q.update(self.derived(q))
        if q["alpha1"] > 0.0:
            e3 = _positive_rate_limit(q)
            values["e1"] = k_bar_root(q)
            values["e2"] = budget_root(q, e3)
            eta = SAFETY * min(values["e1"], values["e2"], e3)
            # else exp(η^c) is 1 in floats: such a step, of 1e-32 and less, is none
            values["initial_step"] = eta if eta ** q["c"] >= LEAST_GROWTH else 0.0
        return values

    def derived(self, q: Quantities) -> dict[str, Number]:
        if not ("initial_distance" in q and q["strong_convexity"] > 0.0):
            return {}
        radius = tl.distance_radius(q)
        beta1, beta2 = tl.margin_below(q, radius), tl.margin_above(q, radius)
        values: dict[str, Number] = {
            "radius": radius,
            "beta1": beta1,
            "beta2": beta2,
            "alpha1": self._alpha1(q, beta1),
            "alpha2": tl.alpha2(q, beta2),
        }
        eta = q.get("initial_step", 0.0)
        if eta > 0.0:
            at = barred({**q, **values}, eta)
            values |= {"mu_bar": at["mu_bar"], "K_bar0": at["k_bar"], "rho_bar": 1.0 - at["rate_loss"]}
            values["delta"] = 1.0 - at["delta_loss"]
        if "e1" in q and "e2" in q:
            values["e3"] = _positive_rate_limit({**q, **values})
            values["eta_max"] = smaller(smaller(q["e1"], q["e2"]), values["e3"])
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        q = {**q, **self.derived(q)}
        conditions = [
            Inequality("strong convexity: mu > 0", q["strong_convexity"], ">", 0.0),
            Inequality("imbalance and margin: alpha1 > 0", q.get("alpha1", 0.0), ">", 0.0),
        ]
        eta = q["initial_step"]
        if "alpha1" not in q:  # no unique minimiser
            return conditions
        if not eta > 0.0:
            return [*conditions, Inequality("first step: eta0 > 0", eta, ">", 0.0)]
        at = barred(q, eta)
        left = 4.0 * q["smoothness"] * q["initial_gap"] * eta * eta
        return [
            *conditions,
            Inequality("step below 1/K_bar: eta0 K_bar0 < 1", eta * at["k_bar"], "<", 1.0),
            Inequality("rate stays positive: mu_bar > 0", at["mu_bar"], ">", 0.0),
            Inequality("1 - Delta > 0", at["delta_loss"], ">", 0.0),
            Inequality(
                "imbalance stays close: 4 K L0 eta0^2 < (1-exp(-eta0^c))(1-Delta)",
                left,
                "<",
                -expm1(-power(eta, q["c"])) * at["delta_loss"],
            ),
        ]

    def schedule(self, q: Quantities) -> Schedule:
        at = barred({**q, **self.derived(q)}, q["initial_step"])
        return [
            Segment(0, None, float(q["initial_gap"]), float(at["rate_loss"]) * (1.0 - 1e-9), float(q["initial_step"]))
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        q = {**q, **self.derived(q)}
        at = barred(q, q["initial_step"])
        yield from _limits(q)
        yield Inequality("c is between 0 and 1", q["c"] * (1.0 - q["c"]), ">", 0.0)
        yield Inequality("d is above 1", q["d"], ">", 1.0)
        for segment in schedule:
            yield Inequality("the decrease is that of rho_bar", at["rate_loss"], ">=", segment.decrease)
            yield from starts_with(segment, q["initial_step"])


THEOREM = Corrected()
