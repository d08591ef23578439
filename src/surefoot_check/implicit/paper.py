"""What the two theorems of the paper on implicit networks share: its constants, its conditions, and the choice of C1,
C2, C3.

λ1 = ‖W‖+C1, λ2 = ‖A‖+C2, λ3 = ‖b‖+C3, γ0 = γλ2, Q = 1 + (γ0/(1-γ0))²(λ1/λ2)²; α = σ_min(Z), F = ‖X‖_F, R = ‖r_0‖, all
at the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..numbers import Number, Quantities
from ..statement import Inequality
from .constants import INFLATION, residual_norm

GRID = 16
"""Values of C2 that are tried in each of three rounds, each round around the best of the one before."""
BISECTIONS = 40
MARGIN = 1e-8
"""Margin (a decimal logarithm) kept of every hypothesis, so that they hold in exact arithmetic too."""
SMALLEST = 1e-9
"""Smallest C2 tried, relative to the largest that leaves γ0 < 1."""


@dataclass(frozen=True)
class Constants:
    """λ1, λ2, λ3, γ0, Q."""

    l1: Number
    l2: Number
    l3: Number
    g0: Number
    Q: Number


def constants(q: Quantities) -> Constants:
    """The constants at the choices C1, C2, C3; γ0 < 1 is a condition."""
    l1, l2, l3 = q["norm_W"] + q["C1"], q["norm_A"] + q["C2"], q["norm_b"] + q["C3"]
    g0 = q["gamma"] * l2
    ratio = g0 / (1.0 - g0) * l1 / l2
    return Constants(l1, l2, l3, g0, 1.0 + ratio * ratio)


def well_posed(q: Quantities) -> list[Inequality]:
    """What must hold for the others to make sense."""
    return [
        *(Inequality(f"{name} is positive", q[name], ">", 0.0) for name in ("C1", "C2", "C3")),
        Inequality("gamma (|A| + C2) < 1", q["gamma"] * (q["norm_A"] + q["C2"]), "<", 1.0),
    ]


def conditions(q: Quantities, factor: float, names: tuple[str, str]) -> list[Inequality]:
    """The two conditions of both theorems, the first as its three parts; ``factor`` is 4 for the flow, 8 for
    descent."""
    at = constants(q)
    F, R = q["frobenius_X"], residual_norm(q)
    square = q["sigma_min_Z"] * q["sigma_min_Z"]
    scale = factor * F * R / (1.0 - at.g0)
    first, second = names
    parts = {
        "b: l1/C3": at.l1 / q["C3"],
        "A: g0 l1 l3/((1-g0) C2 l2)": at.g0 * at.l1 * at.l3 / ((1.0 - at.g0) * q["C2"] * at.l2),
        "W: l3/C1": at.l3 / q["C1"],
    }
    cubed = 2.0 * factor * at.Q * at.l3 * F * F * R / ((1.0 - at.g0) * (1.0 - at.g0))
    return [
        *(
            Inequality(f"{first} for {part} times {factor:g} |X|_F R/(1-g0) <= alpha^2", scale * value, "<=", square)
            for part, value in parts.items()
        ),
        Inequality(
            f"{second}: {2 * factor:g} Q l3 |X|_F^2 R/(1-g0)^2 <= alpha^3", cubed, "<=", square * q["sigma_min_Z"]
        ),
    ]


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
            at = {**q, **C}
            worst = _worst(hypotheses(at))
            rank = (min(worst, 0.0), value(at) if worst >= 0.0 else 0.0)
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
    k = factor * q["frobenius_X"] * residual_norm(q) / ((1.0 - g0) * square) * (1.0 + INFLATION)
    tiny = 1e-12 * max(q["norm_W"], q["norm_b"], 1e-280)
    if not k < 1.0:
        return {"C1": max(q["norm_W"], tiny), "C2": C2, "C3": max(q["norm_W"], tiny)}

    def at(C3: float) -> dict[str, float]:
        return {"C1": max(k * (q["norm_b"] + C3), tiny) * (1.0 + INFLATION), "C2": C2, "C3": C3}

    def admissible(C3: float) -> bool:
        return _worst(hypotheses({**q, **at(C3)})) >= 0.0

    low = max(k * (q["norm_W"] + k * q["norm_b"]) / (1.0 - k * k), tiny) * (1.0 + 1e-6)
    if not admissible(low):
        return at(low)
    high = low
    while high < 1e6 * (q["norm_W"] + low) and admissible(2.0 * high):
        high *= 2.0
    inside, outside = high, 2.0 * high
    for _ in range(BISECTIONS):
        middle = 0.5 * (inside + outside)
        inside, outside = (middle, outside) if admissible(middle) else (inside, middle)
    return at(_golden(lambda C3: value({**q, **at(C3)}), low, inside))


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
