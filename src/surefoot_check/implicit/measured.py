"""``implicit/measured``: convergence from measured constants.

Statement. With measured σ ≤ σ_min(Z_0), z_0 ≥ ‖Z_0‖, norms of X, A_0, b_0, and radii f, ρ, B let q = γ(‖A_0‖+ρ) < 1,
s = (1-f)σ, z = z_0+fσ, c = (1+δ)(γ²z²+‖X‖²)/(1-q)², m = s² - zτ - cB² > 0, S = R_0/m. If cBS ≤ fσ, (1+δ)γzBS/(1-q) ≤
ρ, B ≥ ‖b_0‖ + the least of the admissible bounds of the path of b, and η ≤ 2/(s²+z²), then ‖r_{k+1}‖ ≤ (1-ηm)‖r_k‖
for ever, for every sequence whose output step errs by at most ητ‖r_k‖ and whose hidden steps are at most 1+δ times
the bounds of the gradient.
Reference: docs/theorems/implicit.md (Theorem 1 of the project; no counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, smaller
from ..statement import Inequality, Schedule, Theorem, one_rate
from . import constants as shared


def shape(q: Quantities) -> tuple[Number, Number]:
    """s = (1-f)σ and z = z_0 + fσ: bounds of the singular values of every Z_k."""
    return (1.0 - q["f"]) * q["sigma_min_Z"], q["norm_Z"] + q["f"] * q["sigma_min_Z"]


def disturbance(q: Quantities) -> Number:
    """zτ + cB²: what the errors of the output step and the drift of the features take from s²."""
    _, z = shape(q)
    return z * q["tau"] + shared.sensitivity(q, z) * q["B"] * q["B"]


def descent(q: Quantities) -> Number:
    """m = s² - zτ - cB²."""
    s, _ = shape(q)
    return s * s - disturbance(q)


def path(q: Quantities, S: Number) -> Number:
    """Bound of ‖b_k - b_0‖: the least of B_a, B_c, and B_b where η ≤ 1/z²."""
    s, z = shape(q)
    R = shared.residual_norm(q)
    shift = q["f"] * q["sigma_min_Z"]
    through_rows = (2.0 * R / q["sigma_min_Z"] + q["f"] * q["norm_b"] + (shift + q["tau"]) * S) / (1.0 - q["f"])
    bound = smaller((z + q["tau"]) * S, through_rows)
    if "eta" in q and q["eta"] * z * z <= 1.0:
        bound = smaller(bound, (s + q["tau"]) * S)
    return bound


class MeasuredConstants(Theorem):
    """The theorem that knows of Z its extreme singular values."""

    id = "implicit/measured"
    statement = (
        "From measured singular values of the equilibrium, the residual falls by 1 - eta m a step and the features drift "
        "by at most f sigma."
    )
    reference = "surefoot, docs/theorems/implicit.md, Theorem 1"
    rule = "certified-constant"
    constant_steps = True
    base = ("initial_gap", "gamma", "norm_X", "norm_A", "norm_b", "sigma_min_Z", "norm_Z")
    choices = ("eta", "f", "rho", "B", "tau", "delta")

    def derived(self, q: Quantities) -> dict[str, Number]:
        s, z = shape(q)
        values: dict[str, Number] = {"q": shared.contraction(q), "s": s, "z": z}
        if values["q"] < 1.0:
            values["c"] = shared.sensitivity(q, z)
            values["descent"] = descent(q)
            if values["descent"] > 0.0:
                values["S"] = shared.residual_norm(q) / values["descent"]
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        s, z = shape(q)
        conditions = [
            Inequality("the features have full row rank: sigma_min(Z) > 0", q["sigma_min_Z"], ">", 0.0),
            Inequality("they keep it: f < 1", q["f"], "<", 1.0),
            Inequality("the map stays a contraction: gamma (|A| + rho) < 1", shared.contraction(q), "<", 1.0),
        ]
        if not all(c.certain for c in conditions):
            return conditions
        conditions.append(Inequality("the residual falls: z tau + c B^2 < s^2", disturbance(q), "<", s * s))
        if not conditions[-1].certain:
            return conditions
        S = shared.residual_norm(q) / descent(q)
        return [
            *conditions,
            Inequality("the step: eta (s^2 + z^2) <= 2", q["eta"] * (s * s + z * z), "<=", 2.0),
            Inequality(
                "the features drift by at most f sigma: c B S <= f sigma",
                shared.sensitivity(q, z) * q["B"] * S,
                "<=",
                q["f"] * q["sigma_min_Z"],
            ),
            Inequality(
                "A drifts by at most rho: (1+delta) gamma z B S/(1-q) <= rho",
                shared.hidden_drift(q, z, S),
                "<=",
                q["rho"],
            ),
            Inequality("b stays below B: |b0| + its path <= B", q["norm_b"] + path(q, S), "<=", q["B"]),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        fall = q["eta"] * descent(q)
        yield from one_rate(q, schedule, q["eta"], fall * (2.0 - fall))
        yield from shared.signs(q)


THEOREM = MeasuredConstants()
