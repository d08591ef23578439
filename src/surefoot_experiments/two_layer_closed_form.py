"""Corollary C as a table: how large orthonormal rows must be for a count that κ alone guarantees."""

from __future__ import annotations

import math
from collections.abc import Sequence

from surefoot._two_layer.closed_form import closed_form
from surefoot._two_layer.prescribed_plan import LONGER, TARGET
from surefoot._two_layer.sequences import calm_orders, chebyshev_count

from .result import Experiment, Finding, Progress, Table

CONDITIONS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""κ = K/μ."""
LENGTHS = 24
"""About so many lengths are tried."""


def lengths(kappa: float) -> list[int]:
    """From the Chebyshev count to ``LONGER`` times it; a power of two among them, whose orders are the calmest."""
    least = chebyshev_count(1.0, kappa, TARGET)
    most = math.ceil(LONGER * least)
    powers = {2**k for k in range(most.bit_length())}
    return sorted({*range(least, most + 1, max(1, (most - least) // LENGTHS)), *(powers & set(range(least, most + 1)))})


def best_scale(kappa: float) -> tuple[float, int]:
    """The least s/√‖W*‖_F over lengths and orders, and its length T."""
    found = [
        (closed_form(tau, kappa, TARGET).scale(TARGET), count)
        for count in lengths(kappa)
        for tau in calm_orders(count, 1.0, kappa)
    ]
    return min(found)


def closed_forms(
    conditions: Sequence[float] = CONDITIONS, *, seed: int = 0, progress: Progress = lambda text: None
) -> Experiment:
    """For each κ the least scale of the weights, and the length of the sequence; nothing is drawn."""
    rows: list[tuple[float, int, int, float, float]] = []
    for kappa in conditions:
        progress(f"κ = {kappa:g}")
        scale, count = best_scale(kappa)
        rows.append((kappa, chebyshev_count(1.0, kappa, TARGET), count, scale, 50.0 / scale**2))
    columns = ("κ", "Chebyshev count", "guaranteed steps T", "least s/√‖W*‖_F", "weights move about, %")
    return Experiment(
        name="two-layer/closed-form",
        title="Guaranteed counts from κ alone",
        reference="surefoot, docs/theorems/two-layer-prescribed-blocks.md, Corollary C",
        tables=(Table("scales", columns, tuple(rows)),),
        figures=(),
        findings=(_growth(rows),),
        settings={
            "relative gap": TARGET,
            "sequences": f"{LENGTHS} lengths or more and powers of two, up to {LONGER} times the Chebyshev count; calm orders",
            "weights move about": "‖W*‖_F/(2s²), in the spectral norm and relatively, at s as in the table",
        },
    )


def _growth(rows: Sequence[tuple[float, int, int, float, float]]) -> Finding:
    (low, *_, first, _), (high, *_, last, _) = rows[0], rows[-1]
    exponent = math.log(last / first) / math.log(high / low) if high > low else None
    return Finding(
        "(Not in a paper: Corollary C.)",
        "s/√‖W*‖_F grows like κ^" + ("–" if exponent is None else f"{exponent:.2f}"),
        None,
        "Fitted to the first and the last row. The smaller the weights, the less lazy the training.",
    )
