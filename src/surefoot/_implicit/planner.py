"""What the theorems on implicit ReLU networks leave to choose: radii, the paper's C1, C2, C3, and schedules, in floats."""

from __future__ import annotations

import math
from collections.abc import Callable

from surefoot_check.implicit import constants as shared
from surefoot_check.implicit import exact_fit, gd, local, measured, paper, spectral
from surefoot_check.implicit.spectral import FARTHEST, Model
from surefoot_check.numbers import Quantities
from surefoot_check.statement import SLACK, Inequality, Schedule, Segment

from .._core.near_a_fit.planner import plans
from .._core.plans import OWN_STEP, Plan, chosen_step
from .._core.schedule import gap_at
from . import flow_theorem

INFLATION = 1e-7
"""θ: the radii solve the system inflated by 1 + θ, since iterates of the system itself approach its least solution
from below."""
LIMIT = 1000
DEEP = math.log(1e8)
"""The schedule follows the model until its slowest component has fallen to 1e-8."""
GRID = 16
"""Values of C2 that are tried in each of three rounds, each round around the best of the one before."""
BISECTIONS = 40
MARGIN = 1e-8
"""Margin (a decimal logarithm) kept of every hypothesis, so that they hold in exact arithmetic too."""
SHORTEST = 1e-3
"""The shortest step that is tried where there are no radii for one's own, relative to the largest that the spectrum allows."""
HALVINGS = 20
SMALLEST = 1e-9
"""Smallest C2 tried, relative to the largest that leaves γ0 < 1."""

Radii = tuple[float, float, float]


def least_solution(image: Callable[[Radii], Radii | None], start: Radii) -> tuple[Radii, bool]:
    """The least x ≥ (1+θ) image(x) above ``start``, to a fraction of θ, by iteration from below; ``image`` is
    monotone and ``None`` outside its domain. If there is none, the last iterate inside the domain, and False."""
    x = start
    for _ in range(LIMIT):
        following = image(x)
        if following is None:
            return x, False
        if all(new * (1.0 + 0.1 * INFLATION) <= old for new, old in zip(following, x, strict=True)):
            return x, True
        grown = tuple(new * (1.0 + INFLATION) for new in following)
        if image((grown[0], grown[1], grown[2])) is None:
            return x, False
        x = (grown[0], grown[1], grown[2])
    return x, False


# -- measured -----------------------------------------------------------------------------------------------------------


def least_measured_radii(q: Quantities) -> tuple[Radii, bool]:
    """(f, ρ, B), all as small as the theorem allows up to a relative 1e-7, in floats, and whether there are such.

    ``q`` holds the base quantities, tau, delta, and eta if that is chosen already (it may make B smaller).
    """
    if not q["sigma_min_Z"] > 0.0:
        return (0.0, 0.0, q["norm_b"]), False

    def image(x: Radii) -> Radii | None:
        chosen = {**q, "f": x[0], "rho": x[1], "B": x[2]}
        if not (x[0] < 1.0 and shared.contraction(chosen) < 1.0 and all(map(math.isfinite, x))):
            return None
        m = measured.descent(chosen)
        if not m > 0.0:
            return None
        _, z = measured.shape(chosen)
        S = shared.residual_norm(chosen) / m
        f = shared.sensitivity(chosen, z) * x[2] * S / q["sigma_min_Z"]
        return f, shared.hidden_drift(chosen, z, S), q["norm_b"] + measured.path(chosen, S)

    return least_solution(image, (0.0, 0.0, q["norm_b"]))


def measured_choices(q: Quantities) -> dict[str, float]:
    """The least radii; the step is ``q``'s, or the largest that they allow, which has the best rate.

    A step of one's own below that may have smaller radii; one above is not taken.
    """
    chosen = {"tau": q["tau"], "delta": q["delta"]}
    f, rho, B = least_measured_radii(q)[0]
    radii = {"f": f, "rho": rho, "B": B}
    if "eta" in q:
        return {**chosen, **radii, "eta": q["eta"]}
    eta = largest_measured({**q, **radii})
    own = q.get(OWN_STEP, eta)
    return measured_choices({**q, "eta": own}) if own < eta else {**chosen, **radii, "eta": eta}


def largest_measured(q: Quantities) -> float:
    """The largest step of ``measured`` with the radii of ``q``, rounded down."""
    s, z = measured.shape(q)
    return 2.0 / (s * s + z * z) * (1.0 - SLACK) if z > 0.0 else 0.0


def measured_rate(q: Quantities) -> Schedule:
    """One segment with the rate of ``measured``."""
    fall = q["eta"] * measured.descent(q)
    return [Segment(0, None, float(q["initial_gap"]), fall * (2.0 - fall) * (1.0 - SLACK), float(q["eta"]))]


# -- spectral -----------------------------------------------------------------------------------------------------------


def horizon(q: Quantities) -> float:
    """The iteration up to which the schedule follows the model."""
    fall = float(q["eta"] * q["node_min"])
    if not fall > 0.0:
        return 1.0
    return float(min(max(1, math.ceil(DEEP / -math.log1p(-fall) if fall < 1.0 else 1.0)), FARTHEST))


def least_radii(q: Quantities, model: Model) -> tuple[Radii, bool]:
    """(f, ρ, B), all as small as the theorem allows up to a relative 1e-7, in floats, and whether there are such.

    ``q`` holds the base quantities, eta, tau, delta, node_min, node_max and horizon.
    """
    scalars = {name: value for name, value in q.items() if not name.startswith("mass[")}

    def image(x: Radii) -> Radii | None:
        trial = {**scalars, "f": x[0], "rho": x[1], "B": x[2]}
        if not (
            all(map(math.isfinite, x))
            and shared.contraction(trial) < 1.0
            and spectral.perturbation(trial) < q["node_min"]
        ):
            return None
        return spectral.needed(trial, model)

    return least_solution(image, (0.0, 0.0, q["norm_b"]))


def spectral_choices(q: Quantities) -> dict[str, float]:
    """Nodes, tau and delta as in ``q``; eta too, or 1.9/z_0² capped; the least radii for them.

    A step of one's own is taken where there are radii for it; else the largest below it for which there are.
    """
    if OWN_STEP in q:
        return _up_to(q, q[OWN_STEP])
    largest = q["node_max"] + q["kappa"]
    usual = min(1.9 / largest, largest_spectral(q)) if largest > 0.0 else 0.0
    return _with_step(q, q.get("eta", usual))[0]


def largest_spectral(q: Quantities) -> float:
    """The largest step that the spectrum allows, rounded down."""
    return 2.0 / (q["node_min"] + q["node_max"]) * (1.0 - SLACK) if q["node_max"] > 0.0 else 0.0


def _up_to(q: Quantities, step: float) -> dict[str, float]:
    """The choices for a step, or for about the largest below it for which there are radii."""
    cap = largest_spectral(q)
    high = min(step, cap)
    chosen, found = _with_step(q, high)
    low = SHORTEST * cap
    if found or not 0.0 < low < high:
        return chosen
    shorter, found = _with_step(q, low)
    if not found:
        return chosen
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        tried, found = _with_step(q, middle)
        low, high, shorter = (middle, high, tried) if found else (low, middle, shorter)
    return shorter


def _with_step(q: Quantities, eta: float) -> tuple[dict[str, float], bool]:
    """The choices for a step, and whether there are radii for it."""
    chosen = {**{name: q[name] for name in ("tau", "delta", "node_min", "node_max")}, "eta": eta}
    chosen["horizon"] = horizon(chosen)
    model = spectral.model({**q, **chosen})
    (f, rho, B), found = ((0.0, 0.0, q["norm_b"]), False) if model is None else least_radii({**q, **chosen}, model)
    return {**chosen, "f": f, "rho": rho, "B": B}, found


def spectral_schedule(q: Quantities) -> Schedule:
    """The schedule of the model of ``q``."""
    model = spectral.model(q)
    assert model is not None  # a condition
    return schedule_of(q, model)


def schedule_of(q: Quantities, model: Model) -> Schedule:
    """The guaranteed gap, in floats: a segment for each block of the model, and an endless one."""
    eta = float(q["eta"])
    levels = list(spectral.levels(q, model))
    segments: Schedule = []
    level = float(q["initial_gap"])
    for index, (start, end) in enumerate(zip(model.marks, model.marks[1:], strict=False)):
        first, last = levels[index]
        if index > 0:
            level = max(first * (1.0 + SLACK), gap_at(segments[-1], start))
        target = last * (1.0 + SLACK)
        fall = -math.expm1(math.log(target / level) / (end - start)) if 0.0 < target < level else 0.0
        segments.append(Segment(start, end - start, level, fall * (1.0 - SLACK), eta))
    level = gap_at(segments[-1], model.marks[-1])
    step = eta * (q["node_min"] - spectral.perturbation(q))
    segments.append(Segment(model.marks[-1], None, level, step * (2.0 - step) * (1.0 - SLACK), eta))
    return segments


# -- the paper's theorems -----------------------------------------------------------------------------------------------


def choose(
    q: Quantities,
    factor: float,
    hypotheses: Callable[[Quantities], list[Inequality]],
    value: Callable[[Quantities], float],
) -> dict[str, float]:
    """C1, C2, C3 that satisfy the hypotheses with the largest ``value``; where none do, those that come closest.

    For given C2, the parts for b and W are C3 ≥ k(‖W‖+C1) and C1 ≥ k(‖b‖+C3), k = factor·FR/((1-γ0)α²): C1 is taken
    as small as it may be, and every hypothesis but the part for b is the easier the smaller C3. So the admissible C3
    are an interval, whose lower end has a closed form; its upper end is found by bisection, and the best C3 in it by
    golden section (``value`` has one maximum there).
    """
    room = 1.0 / q["gamma"] - q["norm_A"]
    if not (room > 0.0 and q["sigma_min_Z"] > 0.0):
        return {"C1": 1.0, "C2": max(room, 1e-9), "C3": 1.0}
    low, high = math.log(SMALLEST), math.log(0.999)
    best = (-math.inf, 0.0), {"C1": 1.0, "C2": room, "C3": 1.0}, low
    for _ in range(3):
        spacing = (high - low) / (GRID - 1)
        for index in range(GRID):
            place = low + index * spacing
            C = _for_C2(q, room * math.exp(place), factor, hypotheses, value)
            chosen = {**q, **C}
            worst = _worst(hypotheses(chosen))
            rank = (min(worst, 0.0), value(chosen) if worst >= 0.0 else 0.0)
            if rank > best[0]:
                best = rank, C, place
        low, high = max(math.log(SMALLEST), best[2] - spacing), min(math.log(0.999), best[2] + spacing)
    return best[1]


def _for_C2(
    q: Quantities,
    C2: float,
    factor: float,
    hypotheses: Callable[[Quantities], list[Inequality]],
    value: Callable[[Quantities], float],
) -> dict[str, float]:
    g0, square = q["gamma"] * (q["norm_A"] + C2), q["sigma_min_Z"] * q["sigma_min_Z"]
    k = factor * q["frobenius_X"] * shared.residual_norm(q) / ((1.0 - g0) * square) * (1.0 + INFLATION)
    tiny = 1e-12 * max(q["norm_W"], q["norm_b"], 1e-280)
    if not k < 1.0:
        return {"C1": max(q["norm_W"], tiny), "C2": C2, "C3": max(q["norm_W"], tiny)}

    def with_C3(C3: float) -> dict[str, float]:
        return {"C1": max(k * (q["norm_b"] + C3), tiny) * (1.0 + INFLATION), "C2": C2, "C3": C3}

    def admissible(C3: float) -> bool:
        return _worst(hypotheses({**q, **with_C3(C3)})) >= 0.0

    low = max(k * (q["norm_W"] + k * q["norm_b"]) / (1.0 - k * k), tiny) * (1.0 + 1e-6)
    if not admissible(low):
        return with_C3(low)
    high = low
    while high < 1e6 * (q["norm_W"] + low) and admissible(2.0 * high):
        high *= 2.0
    inside, outside = high, 2.0 * high
    for _ in range(BISECTIONS):
        middle = 0.5 * (inside + outside)
        inside, outside = (middle, outside) if admissible(middle) else (inside, middle)
    return with_C3(_golden(lambda C3: value({**q, **with_C3(C3)}), low, inside))


def _golden(function: Callable[[float], float], low: float, high: float) -> float:
    """The argument of the largest value of a function with one maximum, in logarithmic steps."""
    left, right = math.log(low), math.log(high)
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    for _ in range(40):
        first, second = right - ratio * (right - left), left + ratio * (right - left)
        if function(math.exp(first)) < function(math.exp(second)):
            left = first
        else:
            right = second
    return max((low, high, math.exp(0.5 * (left + right))), key=function)


def _worst(inequalities: list[Inequality]) -> float:
    """The smallest margin, as a logarithm; the hypotheses hold if it is not negative."""
    margins = [
        0.0 if c.margin is None and c.certain else -math.inf if c.margin is None else c.margin for c in inequalities
    ]
    return min(margins) - MARGIN


def gd_choices(q: Quantities) -> dict[str, float]:
    """C1, C2, C3 for the largest step, and that step; that of ``q`` where it has one, or one's own where it is smaller."""
    usable = q["sigma_min_Z"] > 0.0 and q["frobenius_X"] > 0.0
    C = choose(q, gd.FACTOR, gd.hypotheses, gd.largest_step if usable else lambda _: 0.0)
    posed = all(c.certain for c in paper.well_posed({**q, **C}))
    eta = q["eta"] if "eta" in q else gd.largest_step({**q, **C}) * (1.0 - SLACK) if usable and posed else 0.0
    return {**C, "eta": min(eta, q.get(OWN_STEP, eta))}


def gd_rate(q: Quantities) -> Schedule:
    """One segment with the rate of ``gd``."""
    fall = q["eta"] * q["sigma_min_Z"] * q["sigma_min_Z"] / 4.0
    return [Segment(0, None, float(q["initial_gap"]), fall * (1.0 - SLACK), float(q["eta"]))]


def flow_choices(q: Quantities) -> dict[str, float]:
    """C1, C2, C3 with the widest margin of the conditions; the rate does not depend on them."""

    def margin(chosen: Quantities) -> float:
        return min((c.margin if c.margin is not None else 0.0) for c in flow_theorem.hypotheses(chosen))

    return choose(q, flow_theorem.FACTOR, flow_theorem.hypotheses, margin)


def flow_rate(q: Quantities) -> Schedule:
    """One segment whose iterations are units of time."""
    fall = -math.expm1(-0.5 * q["sigma_min_Z"] * q["sigma_min_Z"])
    return [Segment(0, None, float(q["initial_gap"]), fall * (1.0 - SLACK))]


PLANS = (
    Plan(spectral.THEOREM, spectral_schedule, spectral_choices, largest=chosen_step),
    *plans(local.THEOREM, exact_fit.THEOREM),
    Plan(measured.THEOREM, measured_rate, measured_choices, largest=chosen_step),
    Plan(gd.THEOREM, gd_rate, gd_choices, largest=chosen_step),
    Plan(
        flow_theorem.THEOREM,
        flow_rate,
        flow_choices,
        untrainable="speaks of the gradient flow, which is not trained step by step; integrate it with "
        "surefoot.gradient_flow, or use another theorem",
    ),
)
"""In the order in which they are listed."""
