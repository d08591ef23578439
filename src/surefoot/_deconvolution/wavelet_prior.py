"""Sparse wavelet coefficients by the linearised ADMM with its theorem."""

from __future__ import annotations

from torch import Tensor

from .._core.status import RunStatus
from .._core.validate import positive_integer
from .admm import LADMM
from .operators import Blur
from .priors import Restored
from .problem import DeconvolutionProblem, default_penalty
from .system import certificate

BETA = 30.0
"""β over λ where the picture settles in the fewest iterations with an unknown border; for the duality gap alone it is 10."""
ITERATIONS = 25


class WaveletPrior:
    """min ½‖Bz - y‖² + λ‖Wz‖₁; ``deconvolution/ladmm`` is evaluated for every tile."""

    certified = True

    def __init__(self, iterations: int | None, tolerance: float) -> None:
        self._iterations = ITERATIONS if iterations is None else positive_integer("iterations", iterations)
        self._tolerance = tolerance

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """See ``priors.Prior``."""
        problem = DeconvolutionProblem(observed, blur, default_penalty(noise))
        solver = LADMM(BETA * problem.penalty)
        theorem = certificate(solver, problem, checkable=False)
        solved = solver.solve(problem, self._iterations, tolerance=self._tolerance)
        latent, cost, count = solved.state.synthesis, solved.applications, solved.iterations
        gap = float(solved.gap.relative.max())
        if solved.status is RunStatus.DIVERGED:
            return Restored(latent, solved.status, count, cost, theorem, gap)
        after = solver.step(problem, solved.state, count)
        first, last = theorem.quantities["initial_gap"], float(solver.change(problem, solved.state, after))
        change = last / first if first > 0.0 else 0.0
        movement = float((after.synthesis - latent).square().mean().sqrt())
        return Restored(latent, solved.status, count, cost, theorem, gap, change, movement)
