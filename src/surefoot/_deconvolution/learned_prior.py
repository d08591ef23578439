"""A trained network in the place of a prior, with the linearised ADMM where its proposal is refused."""

from __future__ import annotations

from torch import Tensor

from .._core.status import RunStatus
from .._core.validate import positive_integer
from .admm import LADMM
from .network import LearnedDeconvolution
from .operators import Blur, PeriodicBlur
from .problem import DeconvolutionProblem, default_penalty
from .restored import Restored
from .safeguard import restore_checked
from .wavelet_prior import BETA, ITERATIONS

CONTINUING = 10
"""Iterations that continue a photo beyond its border for a network."""


class LearnedPrior:
    """Networks are trained with a periodic border, and ring at an unknown one: a few iterations of L-ADMM find what may lie
    beyond it, and the tile is continued by their blurred picture."""

    certified = False

    def __init__(self, net: LearnedDeconvolution, iterations: int | None) -> None:
        self._net = net
        self._iterations = ITERATIONS if iterations is None else positive_integer("iterations", iterations)

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """See ``restored.Prior``."""
        problem = DeconvolutionProblem(observed, blur, default_penalty(noise))
        guess = LADMM(BETA * problem.penalty).solve(problem, CONTINUING, tolerance=0.0)
        periodic = PeriodicBlur(blur.kernel, blur.domain)
        continued = periodic.forward(guess.state.synthesis)
        under = blur.crop(continued)  # a view
        under += problem.observed - blur.seen(under)
        restoration = restore_checked(self._net, continued, periodic, noise, iterations=self._iterations)
        status = RunStatus.MAX_ITERATIONS if restoration.iterations >= self._iterations else RunStatus.CONVERGED
        if not bool(restoration.image.isfinite().all()):
            status = RunStatus.DIVERGED
        cost = guess.applications + restoration.applications
        return Restored(restoration.image, status, restoration.iterations, cost, kept=int(restoration.accepted.sum()))
