"""What the theorems on two-layer linear networks leave to choose: budgets, floor steps, roots and schedules, in floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Schedule, Segment
from surefoot_check.two_layer import constant, contraction, corrected, drift, prescribed, sharp
from surefoot_check.two_layer import constants as tl
from surefoot_check.two_layer.corrected import Corrected, barred, positive_rate_limit
from surefoot_check.two_layer.drift import DECREASE, Drift, Level

from .._core.admission import least_admitting
from .._core.plans import OWN_STEP, Plan
from .._core.schedule import gap_at, iterations_to
from . import as_printed, prescribed_plan

BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9)
"""The grid of θ, the share of α1 that may be spent."""
LEAST_BUDGET, MOST_BUDGET = 0.01, 0.99
"""The range of θ for a constant step of one's own."""
TARGET = 1e-12
"""Relative gap for which θ is chosen."""
FLOOR = 1e-36
"""Relative gap after which the schedule goes on with its last rate."""
LATEST = 1e15
"""Iteration after which it does so in any case: counts stay exact in float64, and within the 64 bits of a file."""
SEGMENT = math.log(10.0) / 16.0
"""Longest segment, as a decrease of ln L: the loss against the recursion is below the change of v over it."""
COARSE = 4.0 * SEGMENT
"""The same where schedules are only compared."""
C_EXPONENT, D_EXPONENT = 0.5, 1.01
"""c and d of the paper's experiments."""
LEAST_GROWTH = 2.0**-53
"""Least η0^c, by which the imbalance may grow."""
SAFETY = 0.999
"""η0 is this share of η_max (the paper leaves it open)."""


def printed_coefficients(K: float, s_plus: float, gap: float, w_norm: float) -> tuple[float, float, float]:
    """k0, k1, k2 of the paper's local smoothness K_t(η)."""
    r = math.sqrt(2.0 * K * gap)
    return K * s_plus + r, 3.0 * K * s_plus * r, 6.0 * K * K * w_norm * gap


def contraction_factor(eta: float, lower: float, upper: float, curvature: float) -> float:
    """r(η) = max(|1 - η l|, |1 - η u|) + η² s of Theorem III; sqrt(L) contracts by it."""
    return max(1.0 - eta * lower, eta * upper - 1.0, 0.0) + eta * eta * curvature


# -- floor steps --------------------------------------------------------------------------------------------------------


def cubic_root(c1: float, c2: float, c3: float) -> float:
    """A lower bound, tight to 1e-12, of the positive root of c1 x + c2 x² + c3 x³ = 1 (c1 > 0; c2, c3 ≥ 0), in floats.

    In y = c1 x the equation is y + q1 y² + q2 y³ = 1; Newton from min(1, q1^(-1/2), q2^(-1/3)) decreases
    monotonically, from above, so that the result is shrunk and the caller verifies it where a proof is needed.
    """
    q1, q2 = c2 / c1 / c1, c3 / c1 / c1 / c1
    y = 1.0
    if q1 > 1.0:
        y = min(y, q1**-0.5)
    if q2 > 1.0:
        y = min(y, q2 ** (-1.0 / 3.0))
    for _ in range(100):
        step = (y * (1.0 + y * (q1 + y * q2)) - 1.0) / (1.0 + y * (2.0 * q1 + 3.0 * q2 * y))
        y -= step
        if abs(step) <= 1e-15 * y:
            break
    return y / c1 * (1.0 - 1e-12)


def sharp_floor(k: tuple[float, float, float], cap: float) -> float:
    """Floor step of rule (R): the smaller of the maximiser of h and the largest η with η² ≤ cap·h(η), in floats.

    ``cap`` is κ y_t / L_t, the allowed drift per relative decrease; ``math.inf`` where there is no budget.
    """
    best = cubic_root(k[0], 1.5 * k[1], 2.0 * k[2])
    if math.isinf(cap):
        return best
    return min(best, cubic_root(1.0 / cap + 0.5 * k[0], 0.5 * k[1], 0.5 * k[2]))


def contraction_floor(lower: float, upper: float, curvature: float, cap: float) -> float:
    """The η ≤ min(2/(l+u), l/(2s)) that minimises r(η) subject to 2uη² ≤ cap·(1 - r(η)²), to 1e-12, in floats.

    There r decreases, so the largest feasible η is sought. Divided by η the constraint reads g(η) = cap (l - sη)(2 - lη + sη²) -
    2uη ≥ 0, g decreasing and convex: Newton from 0 approaches its root from the feasible side.
    """
    if lower <= 0.0:
        return 0.0
    high = 2.0 / (lower + upper)
    if curvature > 0.0:
        high = min(high, 0.5 * lower / curvature)
    eta = 0.0
    for _ in range(100):
        gain = lower - curvature * eta
        rest = 2.0 - eta * gain
        value = cap * gain * rest - 2.0 * upper * eta
        slope = cap * (curvature * rest + gain * (lower - 2.0 * curvature * eta)) + 2.0 * upper
        step = value / slope
        eta += step
        if eta >= high or abs(step) <= 1e-15 * eta:
            break
    return min(eta, high) * (1.0 - 1e-12)


# -- drift --------------------------------------------------------------------------------------------------------------


def choose_budget(theorem: Drift, q: Quantities, floor: float = TARGET) -> dict[str, float]:
    """θ (``budget``) from a fixed grid, the one with the fewest guaranteed iterations; and c (``decrease``)."""
    best, best_count = BUDGETS[len(BUDGETS) // 2], math.inf
    if all(c.certain for c in theorem.conditions({**q, "budget": best, "decrease": DECREASE})):
        for budget in BUDGETS:
            chosen = {**q, "budget": budget, "decrease": DECREASE}
            count = iterations_to(advance(theorem, chosen, floor, COARSE), TARGET)
            if count < best_count:
                best, best_count = budget, count
    return {"budget": best, "decrease": DECREASE}


def floor_steps(theorem: Drift, q: Quantities, level: Level) -> tuple[float, float]:
    """Those of Theorem I and of Theorem III at a level; 0 for one that the theorem does not use."""
    sharp = sharp_floor(level.k, level.cap) if theorem.use_sharp else 0.0
    uses = theorem.uses_contraction(q)
    return sharp, contraction_floor(level.lower, level.upper, level.curvature, level.cap) if uses else 0.0


def advance(theorem: Drift, q: Quantities, floor: float = FLOOR, segment: float = SEGMENT) -> Schedule:
    """The schedule of ``theorem`` in segments of constant rate, until the gap has fallen to ``floor`` of the first."""
    q = {**q, **theorem.derived(q)}
    gap, start, segments = float(q["initial_gap"]), 0, []
    if gap == 0.0:
        return [Segment(0, None, 0.0, 0.0)]
    lowest = max(gap * floor, 1e-290)
    while True:
        level = Level(q, gap)
        sharp, contraction = floor_steps(theorem, q, level)
        by_sharp, by_contraction = level.sharp_decrease(sharp), level.contraction_decrease(contraction)
        sharp, contraction = (sharp, 0.0) if by_sharp >= by_contraction else (0.0, contraction)
        decrease = max(by_sharp, by_contraction, 0.0) * (1.0 - SLACK)
        length = segment / -math.log1p(-decrease) if decrease > 0.0 else math.inf
        if gap <= lowest or start + length > LATEST:
            segments.append(Segment(start, None, gap, decrease, sharp, contraction))
            return segments
        count = max(1, int(length))
        segments.append(Segment(start, count, gap, decrease, sharp, contraction))
        start += count
        gap = gap_at(segments[-1], start)


# -- constant -----------------------------------------------------------------------------------------------------------


def _at_the_start(q: Quantities) -> tuple[Level, tuple[float, float]]:
    """The level of the initial gap, where a step is admitted for ever, with its floor steps."""
    q = {**q, **constant.THEOREM.derived(q)}
    level = Level(q, q["initial_gap"])
    return level, floor_steps(constant.THEOREM, q, level)


def largest_step(q: Quantities) -> float:
    """The largest constant step within the budget of ``q``; at the optimum, where nothing moves, any."""
    return max(_at_the_start(q)[1]) if q["initial_gap"] > 0.0 else math.inf


def choose_budget_for_step(q: Quantities) -> dict[str, float]:
    """θ of the best step; for a step of one's own, ``q``'s, the best that admits it, else that which admits the largest.

    At a given step the decrease falls as θ grows, so that of the budgets for which one of the two theorems admits the step the
    least is the best.
    """
    usual = choose_budget(constant.THEOREM, q, floor=1.0)
    stands = all(c.certain for c in constant.THEOREM.conditions({**q, **usual}))
    if OWN_STEP not in q or not stands or not q["initial_gap"] > 0.0:
        return usual

    def admitted(kind: int) -> dict[str, float]:
        def largest(budget: float) -> float:
            return _at_the_start({**q, **usual, "budget": budget})[1][kind]

        known = max(BUDGETS, key=largest)
        return {**usual, "budget": least_admitting(largest, q[OWN_STEP], LEAST_BUDGET, known, MOST_BUDGET)}

    tried = [usual, admitted(0), admitted(1)]
    admitting = [chosen for chosen in tried if largest_step({**q, **chosen}) >= q[OWN_STEP]]
    if not admitting:
        return max(tried, key=lambda chosen: largest_step({**q, **chosen}))
    return max(admitting, key=lambda chosen: one_step({**q, **chosen})[0].decrease)


def one_step(q: Quantities) -> Schedule:
    """One segment: of the floor step, or of the step of ``q`` by the better theorem of those that admit it."""
    if OWN_STEP not in q:
        return advance(constant.THEOREM, q, floor=1.0)
    step, gap = float(q[OWN_STEP]), float(q["initial_gap"])
    if not gap > 0.0:
        return [Segment(0, None, 0.0, 0.0, step)]
    level, (sharp, contraction) = _at_the_start(q)
    by_sharp = level.sharp_decrease(step) if step <= sharp else 0.0
    by_contraction = level.contraction_decrease(step) if step <= contraction else 0.0
    decrease = max(by_sharp, by_contraction, 0.0) * (1.0 - SLACK)
    return [Segment(0, None, gap, decrease, *((step, 0.0) if by_sharp >= by_contraction else (0.0, step)))]


# -- corrected ----------------------------------------------------------------------------------------------------------


def choose_step(theorem: Corrected, q: Quantities) -> dict[str, float]:
    """c, d, the roots e1 and e2, and η0 = 0.999 η_max, η_max = min(e1, e2, e3)."""
    values = {"c": C_EXPONENT, "d": D_EXPONENT, **{k: q[k] for k in ("c", "d") if k in q}, "initial_step": 0.0}
    if not (q["strong_convexity"] > 0.0 and "initial_distance" in q and q["initial_gap"] > 0.0):
        return values
    q = {**q, **values}
    q.update(theorem.derived(q))
    if q["alpha1"] > 0.0:
        e3 = positive_rate_limit(q)
        values["e1"] = k_bar_root(q)
        values["e2"] = budget_root(q, e3)
        eta = SAFETY * min(values["e1"], values["e2"], e3)
        # else exp(η^c) is 1 in floats: such a step, of 1e-32 and less, is none
        values["initial_step"] = eta if eta ** q["c"] >= LEAST_GROWTH else 0.0
    return values


def rate(theorem: Corrected, q: Quantities) -> Schedule:
    """One segment with the decrease 1 - ρ̄."""
    bars = barred({**q, **theorem.derived(q)}, q["initial_step"])
    return [
        Segment(0, None, float(q["initial_gap"]), float(bars["rate_loss"]) * (1.0 - 1e-9), float(q["initial_step"]))
    ]


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


# -- sharp --------------------------------------------------------------------------------------------------------------


def first_step(q: Quantities) -> dict[str, float]:
    """The first step: at most 1/K' with ‖g‖ ≤ ‖g‖_F ≤ sqrt(2KL) and ‖W‖ ≤ s+/2."""
    K, s_plus, gap = q["smoothness"], q["sigma_max_squared"], q["initial_gap"]
    r = (2.0 * K * gap) ** 0.5
    k = tl.sharp_coefficients(K, s_plus, r, r, 0.5 * s_plus)
    return {"decrease": 0.5, "initial_step": cubic_root(*k) if k[0] > 0.0 else 0.0}


def level(q: Quantities) -> Schedule:
    """The initial gap, for ever."""
    return [Segment(0, None, float(q["initial_gap"]), 0.0, float(q["initial_step"]))]


PLANS = (
    Plan(drift.THEOREM, partial(advance, drift.THEOREM), partial(choose_budget, drift.THEOREM)),
    Plan(contraction.THEOREM, partial(advance, contraction.THEOREM), partial(choose_budget, contraction.THEOREM)),
    # the first segment of the drift theorem's schedule, for ever; or a step of one's own
    Plan(constant.THEOREM, one_step, choose_budget_for_step, largest=largest_step),
    Plan(sharp.THEOREM, level, first_step),
    Plan(corrected.THEOREM, partial(rate, corrected.THEOREM), partial(choose_step, corrected.THEOREM)),
    Plan(prescribed.THEOREM, prescribed_plan.schedule),
    Plan(as_printed.THEOREM, partial(rate, as_printed.THEOREM), partial(choose_step, as_printed.THEOREM)),
)
"""In the order in which they are listed."""
