"""Sparse wavelet coefficients by the linearised ADMM with its theorem."""

from __future__ import annotations

from torch import Tensor

from .._core.validate import positive_integer
from .admm import LADMM
from .operators import Blur
from .problem import DeconvolutionProblem, default_penalty
from .restored import Restored
from .solver_prior import solved

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
        """See ``restored.Prior``."""
        problem = DeconvolutionProblem(observed, blur, default_penalty(noise))
        solver = LADMM(BETA * problem.penalty)
        return solved(solver, problem, self._iterations, self._tolerance)
