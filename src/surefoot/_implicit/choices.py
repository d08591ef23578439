"""What the theorems of implicit ReLU networks are evaluated at: the base quantities, and the choices that are tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from surefoot_check.implicit import enclosures as rigorous
from surefoot_check.implicit import measured as implicit_measured
from surefoot_check.implicit import spectral as implicit_spectral
from surefoot_check.implicit.constants import DIRECTIONS
from surefoot_check.problems import Samples
from surefoot_check.statement import Theorem

from .._core.certificate import publish

TARGET = 1e-3
"""Relative loss whose guaranteed count decides between admissible steps."""
LOOSENESS = 0.01
"""ϑ: the part of σ² that the errors of the output step may take, τ = ϑσ²/z."""
DELTA = 1.01
"""δ: hidden steps may be 1 + δ times the bound of the gradient; rounding to nearest alone needs a factor of 2."""
STEPS = (1.0, 1.5, 1.9)
"""θ: the steps η = θ/‖Z‖² that are tried ("The scale" in docs/theorems/implicit.md), each at most 2/(σ² + ‖Z‖²)."""


def measure(problem: Samples, weights: Mapping[str, Any], statement: Theorem) -> dict[str, float]:
    """The base quantities of ``statement`` as published, and the ends of the spectrum where it speaks of that."""
    features = rigorous.Measured(problem, weights)
    chosen: dict[str, float] = {}
    if statement.id == implicit_spectral.THEOREM.id:
        if not math.isfinite(features.Z.error):
            return {}
        low, high = features.nodes()
        chosen = {"node_min": low, "node_max": high}
    enclosures = rigorous.widened(rigorous.base_quantities(problem, weights, chosen, features), chosen)
    published = publish(enclosures, DIRECTIONS)
    return {name: published[name] for name in statement.base if name in published} | chosen


def step_choices(theorem: str, base: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """The choices of τ, δ and η to try for a theorem of the project; nothing to choose for those of the paper."""
    if theorem == implicit_spectral.THEOREM.id:
        low, high = base["node_min"], base["node_max"]
        tau = LOOSENESS * low / math.sqrt(high + base["kappa"])
        for theta in STEPS:
            yield {"tau": tau, "delta": DELTA, "eta": min(theta / high, 2.0 / (low + high) * (1.0 - 1e-12))}
    elif theorem == implicit_measured.THEOREM.id:
        size = base["norm_Z"]
        yield {"tau": LOOSENESS * base["sigma_min_Z"] ** 2 / size if size > 0.0 else 0.0, "delta": DELTA}
    else:
        yield {}
