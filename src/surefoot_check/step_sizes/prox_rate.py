"""``step-sizes/prox-rate``: rates of the proximal step for any steps inside the range.

Statement. F_p = f_p + h_p convex as in ``prox-monotone``, 0 < lo, hi ≤ 2, hi s < 2, ω = min{1, 2 - hi s}. With A_t the gap after
t steps, summed over the problems:

- linear: A_{t+1} ≤ (1 - ωσ)A_t, σ = min{1, lo(c_f + c_h)/(1 + lo c_h)}, c_f and c_h the least strong convexity of the
  smooth parts and the penalties over beta_p;
- sublinear: A_1 ≤ E/(2ω lo), and A_{t+n} ≤ A_t/(1 + nγA_t) for t ≥ 1, γ = ωκ lo/(2E), κ = 4v(1-v), v = min{ω, ½} (so κ = 1
  where hi s ≤ 3/2), E = Σ beta_p R_p², R_p a bound of the distance from a minimiser on {F_p ≤ F_p(x_0)}.

Each bound may start anew at any iterate, so that the schedule takes the better of them on each stretch.
Reference: docs/theorems/step-sizes.md, Theorem 4 (no counterpart in the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers import Number, Quantities, smaller
from ..statement import Inequality, Schedule, Theorem, chain, starts_with
from . import constants as shared


class ProximalRate(Theorem):
    """Linear where something is strongly convex, O(1/t) always, and the better of the two."""

    id = "step-sizes/prox-rate"
    statement = (
        "For any relative steps in [lo, hi] inside (0, 2) that scale step and threshold alike, the gap falls linearly with "
        "the strong convexity, and at least like 2 E/(omega lo (t + 3))."
    )
    reference = "surefoot, docs/theorems/step-sizes.md, Theorem 4"
    rule = shared.RULE
    base = (
        "initial_gap",
        "range_low",
        "range_high",
        "smoothness_ratio",
        "loss_convexity_ratio",
        "penalty_convexity_ratio",
        "radius_energy",
    )

    def derived(self, q: Quantities) -> dict[str, Number]:
        if not all(c.certain for c in self.conditions(q)):
            return {}
        return {"omega": shared.guarantee(q), "linear": linear(q), "curvature": curvature(q)}

    def conditions(self, q: Quantities) -> list[Inequality]:
        kind = shared.proximal_kind(q)
        if not kind.certain:
            return [kind]
        return [
            kind,
            *shared.within_two_strictly(q),
            Inequality("the iterates stay in a bounded set: E > 0", q["radius_energy"], ">", 0.0),
        ]

    def sublinear(self, q: Quantities) -> Number | None:
        """1/γ: A_1 ≤ κ/(4γ) ≤ 1/γ, so that A_{1+n} ≤ A_1/(1 + nγA_1) = 1/(1/A_1 + nγ) ≤ 1/(γ(1+n))."""
        return 1.0 / curvature(q)

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        fall, gamma = linear(q), curvature(q)
        for index, segment in enumerate(schedule):
            where = f"segment {index}"
            yield from starts_with(segment, q["range_low"])
            by_rate = Inequality(f"{where}: falls at most at the linear rate", fall, ">=", segment.decrease)
            if by_rate.certain:
                yield by_rate
                continue
            count, kept = 0 if segment.count is None else segment.count, 1.0 - segment.decrease
            yield Inequality(f"{where}: faster than the linear rate, so it ends", count, ">=", 1)
            if index == 0:
                yield Inequality(f"{where}: is one step", count, "<=", 1)
                end = segment.level * kept
                yield Inequality(f"{where}: ends above the bound of one step", end, ">=", first_level(q))
            else:
                bound = 1.0 / (1.0 + count * gamma * segment.level)
                yield Inequality(f"{where}: ends above the sublinear bound", kept**count, ">=", bound)


def linear(q: Quantities) -> Number:
    """ωσ: how much of the gap a step takes at least."""
    loss, penalty = q["loss_convexity_ratio"], q["penalty_convexity_ratio"]
    share = q["range_low"] * (loss + penalty) / (1.0 + q["range_low"] * penalty)
    return shared.guarantee(q) * smaller(1.0, share)


def curvature(q: Quantities) -> Number:
    """γ = ωκ lo/(2E)."""
    omega = shared.guarantee(q)
    part = smaller(omega, 0.5)
    return omega * 4.0 * part * (1.0 - part) * q["range_low"] / (2.0 * q["radius_energy"])


def first_level(q: Quantities) -> Number:
    """E/(2ω lo): bounds the gap after one step, whatever it was before."""
    return q["radius_energy"] / (2.0 * shared.guarantee(q) * q["range_low"])


THEOREM = ProximalRate()
