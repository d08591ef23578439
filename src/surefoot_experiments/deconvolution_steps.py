"""How the step sizes of the linearised ADMM decide its iterations: fixed (fL-ADMM) and decaying (aL-ADMM) ones."""

from __future__ import annotations

from torch import Tensor

from surefoot._deconvolution.admm import LADMM, MARGIN
from surefoot._deconvolution.metrics import psnr
from surefoot._deconvolution.operators import PeriodicBlur
from surefoot._deconvolution.problem import DeconvolutionProblem, default_penalty

from .deconvolution_methods import ADAPTIVE, BETA, FIXED
from .result import Cell, Table

RUNS = ((BETA, 1.0), (0.1, 1.0), (0.01, 1.0), (BETA, 1.5))
"""β over λ, and αβ = γβ at the start: 1 is the largest that the theorem of fixed ones admits."""
SHOWN = (20, 100, 600)
NEAR = 0.1
"""dB."""
EVERY = 10
"""Iterations between two looks at the PSNR."""
LAST, REACHED = "PSNR in the end", "iterations to the limit"


def step_sizes(sharp: Tensor, observed: Tensor, blur: PeriodicBlur, noise: float) -> Table:
    """PSNR by iterations for several step sizes, and the iterations after which it stays within ``NEAR`` of the limit: the PSNR
    in the end with the tuned fixed ones.

    Args:
        sharp, observed: (H, W), float64.
        blur: float64.
        noise: standard deviation.
    """
    problem = DeconvolutionProblem(observed, blur, default_penalty(noise))
    courses = {
        (ratio, scale, name): _course(problem, sharp, ratio, scale, name == ADAPTIVE)
        for ratio, scale in RUNS
        for name in (FIXED, ADAPTIVE)
    }
    limit = courses[BETA, 1.0, FIXED][SHOWN[-1]]
    rows: list[tuple[Cell, ...]] = []
    for key, course in courses.items():
        rows.append((*key, *(course.get(k) for k in SHOWN), _reached(course, limit)))
    columns = ("β/λ", "αβ", "method", *(f"PSNR, {k} iterations" for k in SHOWN[:-1]), LAST, REACHED)
    return Table(
        f"step sizes of L-ADMM, {SHOWN[-1]} iterations, {100 * noise:g} % noise, one image", columns, tuple(rows)
    )


def _course(
    problem: DeconvolutionProblem, sharp: Tensor, ratio: float, scale: float, adaptive: bool
) -> dict[int, float]:
    """PSNR by iteration, every tenth, as long as the picture is one: of at least 0 dB."""
    beta = ratio * problem.penalty
    step = scale * (1.0 - MARGIN) / beta
    solver = LADMM(beta, step, step, adaptive=adaptive)
    state = solver.start(problem)
    course: dict[int, float] = {}
    for k in range(1, SHOWN[-1] + 1):
        state = solver.step(problem, state, k - 1)
        if k % EVERY == 0:
            course[k] = float(psnr(state.synthesis, sharp))
            if not course[k] > 0.0:
                del course[k]
                break
    return course


def _reached(course: dict[int, float], limit: float) -> int | None:
    """``None`` where the last PSNR is not near, or there is no last one."""
    reached = None
    for k in sorted(course, reverse=True):
        if abs(course[k] - limit) > NEAR:
            break
        reached = k
    return reached if SHOWN[-1] in course else None
