"""A certified solver on a tile: what is reported of it."""

from __future__ import annotations

from ..._core.status import RunStatus
from ..problem import ObservedPicture
from ..settling import Settling
from ..solver import AnySolver
from ..system import certificate
from .restored import Restored


def solved(solver: AnySolver, problem: ObservedPicture, iterations: int, tolerance: float) -> Restored:
    """The tile of a problem (C, h, w), solved from the solver's own start until it has settled; its theorem is evaluated, and V
    measured at the end.

    Args:
        solver, problem: of the same kind.
        iterations, tolerance: see ``DeconvolutionSolver.solve``.
    """
    theorem = certificate(solver, problem, checkable=False)
    settling = Settling(problem.blur)
    found = solver.solve(problem, iterations, tolerance=tolerance, settled=settling)
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
        change=last / first if first > 0.0 else 0.0,
        movement=float((after.picture - latent).square().mean().sqrt()),
        left=settling.left,
    )
