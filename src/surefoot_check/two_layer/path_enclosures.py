"""The base quantities of ``two-layer/prescribed``: where its recursion starts, measured on concrete arrays, and what follows.

With H = XᵀX, a computed V of orthonormal columns up to a = ‖VᵀV - I‖_F, and computed eigenvalues Λ: V = QP with Q exactly
orthogonal and P = (VᵀV)^½, ‖P - I‖_F ≤ a, as |√x - 1| ≤ |x - 1|. In the basis Q

    QᵀHQ = Λ + E,   ‖E‖_F ≤ ‖H - VΛVᵀ‖_F + a(2 + a)‖Λ‖,      QᵀŴ = VᵀŴ - (P - I)QᵀŴ,

and gradient descent on QᵀW1, W2 is that on W1, W2. The defects of the start, K1(0), K2(0) and w_0, are blocks of ZZᵀ/s² - I,
whose norms no rotation changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..problems import LinearMapProblem, Squared
from ..rigor.bounds import (
    UNIT_ROUNDOFF,
    Array,
    frobenius_upper,
    minus_multiple,
    times_power,
    up,
    witnesses,
)
from ..rigor.intervals import Interval
from .block_enclosures import repeated, state_of
from .path import Start, follow
from .prescribed import BOUNDS, FACTOR, steps_of

LARGEST_UNIT = 2.0**500
"""Nothing is known in units beyond this, or below its reciprocal: some of their powers vanish or overflow."""


def quantities_of(
    problem: LinearMapProblem, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """Enclosures of the bounds that follow from the published steps and s² for these arrays, and of their factor in a repetition;
    from below only that they are not negative. None of a loss that is not squared; infinite from where a recursion blows up."""
    first, cycled = (np.array(steps) for steps in steps_of(quantities))
    scale = quantities.get("scale", 0.0)
    start = start_of(problem, weights, scale) if isinstance(problem, Squared) else None
    if start is None or not ((first > 0.0).all() and (cycled > 0.0).all()):
        return {}
    assert isinstance(problem, Squared)
    path = follow(start, first, problem.level) if len(first) else None
    gaps = [] if path is None else path.gaps[1:].tolist()
    enclosures: dict[str, Interval] = {}
    if len(cycled):
        state = state_of(problem, weights, scale, start) if path is None else path.end
        found = repeated(problem, scale, start, state, cycled)
        if found is not None:
            gaps += [up(start.gap_unit * residual * residual, 2) for residual in found.residuals[1:].tolist()]
            enclosures[FACTOR] = (0.0, up(found.factor * found.factor))
    return enclosures | {name: (0.0, gap) for name, gap in zip(BOUNDS, gaps, strict=False)}


def start_of(problem: Squared, weights: Mapping[str, Array], scale: float) -> Start | None:
    """The start for the published s² = ``scale``; ``None`` where nothing is known of it."""
    X, level, (n, _) = problem.design, problem.level, problem.shape
    H, error = level.signed_gram(np.ascontiguousarray(X.T))
    found = witnesses(np.linalg.eigh, H)
    optimum = problem.optimum()
    if found is None or not math.isfinite(optimum.error):
        return None
    values, V = np.maximum(found[0], 0.0), level.witness(found[1])
    columns = level.operand(V)
    defect = level.defect(columns)
    largest = float(values.max())
    if not (defect < 0.5 and 0.0 < largest < math.inf):
        return None
    power = math.frexp(largest)[1]
    with np.errstate(over="ignore", under="ignore"):
        units = np.ldexp([2.0 * scale, 0.5 * scale * scale], power)
    if not all(1.0 / LARGEST_UNIT < unit < LARGEST_UNIT for unit in (scale, *units)):
        return None
    T, scaling_error = level.scaled_columns(V, values)
    spread = error + level.residual(H, T, columns.T) + 2.0 * scaling_error + defect * (2.0 + defect) * largest
    image, product_error = level.product(columns.T, optimum.value)
    rows = image / scale
    apart = product_error + (defect * frobenius_upper(optimum.value) + optimum.error)
    size, kernel1, kernel2 = _defects(problem, weights, scale, n)
    return Start(
        eigenvalues=times_power(values, -power),
        rows=rows,
        off_diagonal=up(math.ldexp(up(spread, 8), -power)),
        target_error=up(up(apart, 4) / scale + UNIT_ROUNDOFF * frobenius_upper(rows) + 1e-300 * rows.size, 4),
        map=size,
        kernel1=kernel1,
        kernel2=kernel2,
        step_unit=float(units[0]),
        gap_unit=up(float(units[1]), 2),
    )


def _defects(problem: Squared, weights: Mapping[str, Array], scale: float, n: int) -> tuple[float, float, float]:
    """Upper bounds of ‖w_0‖_F, ‖R1(0)‖_F and ‖R2(0)‖_F."""
    G, error = problem.level.signed_gram(np.concatenate([weights["W1"], weights["W2"]]))
    kernels = []
    for block in (G[:n, :n], G[n:, n:]):
        apart = minus_multiple(block, scale)
        kernels.append(up((frobenius_upper(apart) * (1.0 + 2.0 * UNIT_ROUNDOFF) + error) / scale, 4))
    size = up((frobenius_upper(G[:n, n:]) + error) / scale, 2)
    first, second = (up(kernel + 0.5 * size * size, 3) for kernel in kernels)
    return size, first, second
