"""Sparse wavelet coefficients by the linearised ADMM with its theorem."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..._core.validate import positive_integer
from ..admm import LADMM
from ..operators import Blur
from ..problem import DeconvolutionProblem, default_penalty, extended
from .restored import Restored
from .solver_prior import solved

BETA = 30.0
"""β over λ where the picture settles in the fewest iterations with an unknown border; for the duality gap alone it is 10."""
QUIET, LARGEST_BETA = 0.01, 150.0
"""Noise below which more is better, in inverse proportion, up to that."""
ITERATIONS = 100
"""At most. With 1 % noise and more most pictures have settled before; with 0.2 % most have not, and what is left is said."""


class WaveletPrior:
    """min ½‖Bz - y‖² + λ‖W(z - s)‖₁, s the shading of the observed picture; ``deconvolution/ladmm`` is evaluated for every
    tile."""

    def __init__(self, iterations: int | None, tolerance: float) -> None:
        self._iterations = ITERATIONS if iterations is None else positive_integer("iterations", iterations)
        self._tolerance = tolerance

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """See ``restored.Prior``."""
        problem, shading = detail_problem(observed, blur, noise)
        solver = LADMM(min(BETA * max(1.0, QUIET / noise), LARGEST_BETA) * problem.penalty)
        found = solved(solver, problem, self._iterations, self._tolerance)
        return replace(found, latent=shading + found.latent)


def detail_problem(observed: Tensor, blur: Blur, noise: float) -> tuple[DeconvolutionProblem, Tensor]:
    """The problem of what a picture has beyond its shading s, and s (..., H, W): the coarse part of the observed picture, its
    borders repeated outwards.

    Of z itself the penalty would also weigh the coarse coefficients, which are large everywhere: beyond the border, where
    nothing speaks for them, they would slowly go to 0, and the rim of the picture would follow.
    """
    plain = DeconvolutionProblem(observed, blur, default_penalty(noise))
    shading = plain.wavelet.coarse(extended(plain.observed, blur))
    return DeconvolutionProblem(observed - blur.forward(shading), blur, plain.penalty, plain.wavelet), shading
