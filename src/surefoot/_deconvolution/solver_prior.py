"""A certified solver on a tile: what is reported of it."""

from __future__ import annotations

from .._core.status import RunStatus
from .problem import ObservedPicture
from .restored import Restored
from .solver import AnySolver
from .system import certificate


def solved(
    solver: AnySolver, problem: ObservedPicture, iterations: int, tolerance: float, settled: float = 0.0
) -> Restored:
    """The tile of a problem (C, h, w), solved from the solver's own start; its theorem is evaluated, and V measured at the end.

    Args:
        solver, problem: of the same kind.
        iterations, tolerance, settled: see ``DeconvolutionSolver.solve``.
    """
    theorem = certificate(solver, problem, checkable=False)
    found = solver.solve(problem, iterations, tolerance=tolerance, settled=settled)
    latent, count = found.state.picture, found.iterations
    gap = float(found.gap.relative.max())
    if found.status is RunStatus.DIVERGED:
        return Restored(latent, found.status, count, found.applications, theorem, gap)
    after = solver.step(problem, found.state, count)
    first, last = theorem.quantities["initial_gap"], float(solver.change(problem, found.state, after))
    return Restored(
        latent,
        found.status,
        count,
        found.applications,
        theorem,
        gap,
        last / first if first > 0.0 else 0.0,
        float((after.picture - latent).square().mean().sqrt()),
    )
