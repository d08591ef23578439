"""What the theorems of infinite-depth ReLU networks share (docs/theorems/implicit.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from ..numbers import Number, Quantities, sqrt
from ..statement import Inequality

NODES = 128
"""Nodes of the majorant of ``implicit/spectral``."""
MASSES = tuple(f"mass[{j}]" for j in range(NODES))
"""Names of the masses at the nodes."""

DIRECTIONS: dict[str, str] = {
    "initial_gap": "upper",  # ½‖r_0‖²_F
    "gamma": "upper",
    "norm_X": "upper",
    "frobenius_X": "upper",
    "norm_A": "upper",
    "norm_W": "upper",
    "norm_b": "upper",
    "sigma_min_Z": "lower",  # sqrt(λ_min(Z_0 Z_0ᵀ))
    "norm_Z": "upper",
    "kappa": "upper",  # ‖Ĝ - Z_0 Z_0ᵀ‖
    **dict.fromkeys(MASSES, "upper"),  # r_0ᵀ w_j(Ĝ) r_0
}
"""Every base quantity and the direction in which its published value must err."""


def node_places(node_min: float, node_max: float) -> list[float] | None:
    """The nodes, geometric from node_min to node_max; ``None`` where those leave no room for them.

    Any increasing nodes with these ends will do, so that floats are exact here; masses and majorant must use the same
    ones.
    """
    if not (node_min > 0.0 and node_max >= node_min * 1.0001 and node_max < math.inf):
        return None
    step = math.log(node_max / node_min) / (NODES - 1)
    inner = [node_min * math.exp(j * step) for j in range(1, NODES - 1)]
    places = [node_min, *inner, node_max]
    return places if all(a < b for a, b in pairwise(places)) else None


def contraction(q: Quantities) -> Number:
    """q = γ(‖A‖ + ρ), the contraction factor of the map along the path."""
    return q["gamma"] * (q["norm_A"] + q["rho"])


def sensitivity(q: Quantities, z: Number) -> Number:
    """c = (1+δ)(γ²z² + ‖X‖²)/(1-q)²: a step moves Z by at most η c ‖b‖‖r‖."""
    slope = 1.0 - contraction(q)
    return (1.0 + q["delta"]) * (q["gamma"] * q["gamma"] * z * z + q["norm_X"] * q["norm_X"]) / (slope * slope)


def hidden_drift(q: Quantities, z: Number, S: Number) -> Number:
    """(1+δ)γzBS/(1-q): how far A moves."""
    return (1.0 + q["delta"]) * q["gamma"] * z * q["B"] * S / (1.0 - contraction(q))


def signs(q: Quantities) -> Iterator[Inequality]:
    """The obligations of the signs of what is chosen."""
    yield Inequality("eta > 0", q["eta"], ">", 0.0)
    for name in ("f", "rho", "B", "tau", "delta"):
        yield Inequality(f"{name} is not negative", q[name], ">=", 0.0)


def residual_norm(q: Quantities) -> Number:
    """R_0 = ‖r_0‖_F, from the initial gap."""
    return sqrt(2.0 * q["initial_gap"])
