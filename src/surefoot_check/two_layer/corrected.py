"""``two-layer/corrected``: the linear-rate theorem of the paper (Theorem 3.2 / E.1) with the corrected α1.

Statement. Let α1 > 0, 0 < c < 1 < d, e = exp(η0^c), μ̄ = μ[α1 + 2α2(1 - e)], K̄_0 = r0 + 6K²β2L0η0² + K e α2(1 + 3 r0 η0),
r0 = sqrt(2KL0), ρ̄ = 1 - 2μ̄η0 + μ̄K̄_0η0², Δ = (1+η0^d)ρ̄. If η0 K̄_0 < 1 and 4KL0η0² < (1 - 1/e)(1 - Δ), then steps
η0 ≤ η_t ≤ min((1+η0^d)^(t/2) η0, root of ηK_t(η) = 1) give L_t ≤ ρ̄^t L0 for all t.
Reference: docs/theorems/two-layer-corrected.md; differs from the paper in α1 (n ≠ m, erratum E.3), exp(η^c) throughout, and
in stating the two conditions at η0 itself in place of roots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..numbers import Number, Quantities, exp, expm1, log1p, power, smaller, sqrt
from ..statement import Inequality, Schedule, Theorem, one_rate
from . import constants as tl

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


def positive_rate_limit(q: Quantities) -> Number:
    """e3: where μ̄ reaches 0, log(1 + α1/(2α2))^(1/c)."""
    return power(log1p(q["alpha1"] / (2.0 * q["alpha2"])), 1.0 / q["c"])


def _limits(q: Quantities) -> Iterator[Inequality]:
    """The published roots are roots up to their accuracy, or e2 the end e3 of its range, and η0 is below all limits."""
    e1, e2, bars = q["e1"], q["e2"], barred(q, q["e2"])
    yield Inequality("e1 solves eta K_bar0 = 1 from below", e1 * barred(q, e1)["k_bar"], "<=", 1.0 + ROOT_ACCURACY)
    yield Inequality("e1 solves eta K_bar0 = 1 from above", e1 * barred(q, e1)["k_bar"], ">=", 1.0 - ROOT_ACCURACY)
    left = 4.0 * q["smoothness"] * q["initial_gap"] * e2 * e2
    kept = -expm1(-power(e2, q["c"]))
    right = kept * bars["delta_loss"]
    # 1 - Δ is a difference of terms of this size, and cancels where e2 is close to 2/K̄_0, or to (2μ̄)^(1/(d-1))
    error = ROOT_ACCURACY * (left + kept * (2.0 * bars["mu_bar"] * e2 + power(e2, q["d"])))
    yield Inequality("e2 lies in its range", e2 * (1.0 - ROOT_ACCURACY), "<=", q["e3"])  # beyond, mu_bar is negative
    yield Inequality("e2 keeps the imbalance close", left - error, "<=", right)
    if not e2 >= q["e3"] * (1.0 - ROOT_ACCURACY):
        yield Inequality("e2 is where it no longer stays close", left + error, ">=", right)
    yield Inequality("the first step is at most eta_max", q["initial_step"], "<=", q["eta_max"])


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
            bars = barred({**q, **values}, eta)
            values |= {"mu_bar": bars["mu_bar"], "K_bar0": bars["k_bar"], "rho_bar": 1.0 - bars["rate_loss"]}
            values["delta"] = 1.0 - bars["delta_loss"]
        if "e1" in q and "e2" in q:
            values["e3"] = positive_rate_limit({**q, **values})
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
        bars = barred(q, eta)
        left = 4.0 * q["smoothness"] * q["initial_gap"] * eta * eta
        return [
            *conditions,
            Inequality("step below 1/K_bar: eta0 K_bar0 < 1", eta * bars["k_bar"], "<", 1.0),
            Inequality("rate stays positive: mu_bar > 0", bars["mu_bar"], ">", 0.0),
            Inequality("1 - Delta > 0", bars["delta_loss"], ">", 0.0),
            Inequality(
                "imbalance stays close: 4 K L0 eta0^2 < (1-exp(-eta0^c))(1-Delta)",
                left,
                "<",
                -expm1(-power(eta, q["c"])) * bars["delta_loss"],
            ),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        q = {**q, **self.derived(q)}
        yield from one_rate(q, schedule, q["initial_step"], barred(q, q["initial_step"])["rate_loss"])
        yield from _limits(q)
        yield Inequality("c is between 0 and 1", q["c"] * (1.0 - q["c"]), ">", 0.0)
        yield Inequality("d is above 1", q["d"], ">", 1.0)


THEOREM = Corrected()
