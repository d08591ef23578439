"""What the theorems of implicit ReLU networks are evaluated at: the base quantities, and the choices that are tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from surefoot_check.implicit import measured as implicit_measured
from surefoot_check.implicit import spectral as implicit_spectral
from surefoot_check.implicit.constants import DIRECTIONS, MASSES, NODES, node_places
from surefoot_check.implicit.enclosures import Measured
from surefoot_check.implicit.quantities import enclosed
from surefoot_check.problems import Samples
from surefoot_check.rigor.bounds import UNIT_ROUNDOFF
from surefoot_check.rigor.intervals import Interval
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
MASS_SLACK = 1e-9
KAPPA_SLACK = 1.5
ROTATION = 32.0 * UNIT_ROUNDOFF
"""By what two eigendecompositions may differ, relative to the norm of the matrix."""


def measure(problem: Samples, weights: Mapping[str, Any], statement: Theorem) -> dict[str, float]:
    """The base quantities of ``statement`` as published, and the ends of the spectrum where it speaks of that."""
    features = Measured(problem, weights)
    chosen: dict[str, float] = {}
    if statement.id == implicit_spectral.THEOREM.id:
        if not math.isfinite(features.Z.error):
            return {}
        low, high = nodes(features)
        chosen = {"node_min": low, "node_max": high}
    published = publish(widened(enclosed(features, chosen), chosen), DIRECTIONS)
    return {name: published[name] for name in statement.base if name in published} | chosen


def nodes(measured: Measured) -> tuple[float, float]:
    """node_min and node_max of ``implicit/spectral``: the ends of the computed spectrum, apart and positive."""
    values = measured.eigenvectors[0]
    largest = max(float(values[-1]), 1e-280)
    smallest = max(float(values[0]), 1e-14 * largest)
    return smallest, max(largest, 1.01 * smallest)


def widened(enclosures: Mapping[str, Interval], quantities: Mapping[str, float]) -> dict[str, Interval]:
    """The enclosures with κ and the masses moved outwards by what two eigendecompositions of a matrix may differ by.

    A certificate publishes these values, so that a checker on another machine confirms them. Two computed spectra differ
    by a perturbation of norm δ, some units of node_max: it turns components at l_b into those at l_j by δ/|l_j - l_b|, and
    moves weights by δ over the distance of the nodes. Only whether the checker can confirm depends on this estimate.
    """
    wide = dict(enclosures)
    if "kappa" not in wide:
        return wide
    wide["kappa"] = wide["kappa"][0], wide["kappa"][1] * KAPPA_SLACK
    places = node_places(quantities["node_min"], quantities["node_max"])
    assert places is not None  # else there is no κ
    positions, roots = np.array(places), np.sqrt([wide[name][1] for name in MASSES])
    gaps = np.diff(positions)
    spacing = np.minimum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))
    delta = ROTATION * positions[-1]
    turned = delta * (1.0 / np.maximum(np.abs(positions[:, None] - positions), spacing[:, None])) @ roots
    around = np.convolve(roots**2, np.ones(3), mode="same")
    floor = 1e-14 * 2.0 * wide["initial_gap"][1] / NODES
    wider = (1.0 + MASS_SLACK) * (roots + turned) ** 2 + np.minimum(delta / spacing, 1.0) * around + floor
    for name, mass in zip(MASSES, wider, strict=True):
        wide[name] = wide[name][0], float(mass)
    return wide


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
