"""What the two theorems of the paper on implicit networks share: its constants and its conditions.

λ1 = ‖W‖+C1, λ2 = ‖A‖+C2, λ3 = ‖b‖+C3, γ0 = γλ2, Q = 1 + (γ0/(1-γ0))²(λ1/λ2)²; α = σ_min(Z), F = ‖X‖_F, R = ‖r_0‖, all
at the start.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..numbers import Number, Quantities
from ..statement import Inequality
from .constants import residual_norm


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


def derived(q: Quantities) -> dict[str, Number]:
    """The same by name; none where they make no sense."""
    if not all(c.certain for c in well_posed(q)):
        return {}
    values = constants(q)
    return {"l1": values.l1, "l2": values.l2, "l3": values.l3, "g0": values.g0, "Q": values.Q}


def well_posed(q: Quantities) -> list[Inequality]:
    """What must hold for the others to make sense."""
    return [
        *(Inequality(f"{name} is positive", q[name], ">", 0.0) for name in ("C1", "C2", "C3")),
        Inequality("gamma (|A| + C2) < 1", q["gamma"] * (q["norm_A"] + q["C2"]), "<", 1.0),
    ]


def conditions(q: Quantities, factor: float, names: tuple[str, str]) -> list[Inequality]:
    """The two conditions of both theorems, the first as its three parts; ``factor`` is 4 for the flow, 8 for
    descent."""
    values = constants(q)
    F, R = q["frobenius_X"], residual_norm(q)
    square = q["sigma_min_Z"] * q["sigma_min_Z"]
    scale = factor * F * R / (1.0 - values.g0)
    first, second = names
    parts = {
        "b: l1/C3": values.l1 / q["C3"],
        "A: g0 l1 l3/((1-g0) C2 l2)": values.g0 * values.l1 * values.l3 / ((1.0 - values.g0) * q["C2"] * values.l2),
        "W: l3/C1": values.l3 / q["C1"],
    }
    cubed = 2.0 * factor * values.Q * values.l3 * F * F * R / ((1.0 - values.g0) * (1.0 - values.g0))
    return [
        *(
            Inequality(f"{first} for {part} times {factor:g} |X|_F R/(1-g0) <= alpha^2", scale * value, "<=", square)
            for part, value in parts.items()
        ),
        Inequality(
            f"{second}: {2 * factor:g} Q l3 |X|_F^2 R/(1-g0)^2 <= alpha^3", cubed, "<=", square * q["sigma_min_Z"]
        ),
    ]
