"""What the solvers of deconvolution problems share: their loop, what it returns, and that they can be certified."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from .._core.brief import brief
from .._core.certificate import Certificate
from .._core.progress import progress_line
from .._core.status import RunStatus
from .._core.validate import nonnegative, positive_integer
from .problem import DualityGap, ObservedPicture

ITERATE = ("z", "x", "multiplier")
CHECK_EVERY = 5
"""Iterations between two evaluations of the duality gap, which cost about one iteration each."""


@dataclass(frozen=True)
class Iterate:
    """What the iterates of all solvers have.

    Attributes:
        z: (..., H, W), the latent image.
        x: what the constraint of the problem equates to a linear map of the image.
        multiplier: of that constraint.
        applications: products with B, Bᵀ or an inverse filter so far, for each image.
    """

    z: Tensor
    x: Tensor
    multiplier: Tensor
    applications: int = field(default=0, kw_only=True)

    __repr__ = brief

    @property
    def picture(self) -> Tensor:
        """(..., H, W), where the objective is evaluated."""
        raise NotImplementedError


S = TypeVar("S", bound=Iterate)
P = TypeVar("P", bound=ObservedPicture)


@dataclass(frozen=True)
class DeconvolutionSolution(Generic[S]):
    """What a solver returns.

    Attributes:
        image: (..., h, w), the latent image under the observed picture; not clipped to 0..1.
        state: the last iterate, of which ``gap`` speaks.
        gap: rigorous bounds of the objective and its optimum.
        status: converged, settled, max_iterations, or diverged (then the state is that of the start).
        iterations, applications: how many; applications as in the state.
    """

    image: Tensor
    state: S
    gap: DualityGap
    status: RunStatus
    iterations: int
    applications: int

    __repr__ = brief


class DeconvolutionSolver(nn.Module, Generic[P, S]):
    """A solver whose iterates are (z, x, μ), and whose theorem speaks of V, the change from one to the next."""

    problems: ClassVar[type[ObservedPicture]]
    """What it solves."""

    @abstractmethod
    def parameters_at(self, iteration: int) -> tuple[float, ...]:
        """The parameters of an iteration."""

    @abstractmethod
    def start(self, problem: P) -> S:
        """Where it starts."""

    @abstractmethod
    def step(self, problem: P, state: S, iteration: int = 0) -> S:
        """The iterate after ``state``, which is that of ``iteration``."""

    @abstractmethod
    def gap(self, problem: P, state: S) -> DualityGap:
        """Bounds of the objective at an iterate and of its optimum."""

    @abstractmethod
    def change(self, problem: P, before: S, after: S, iteration: int = 0) -> Tensor:
        """V over the whole batch, between two iterates in a row: what never increases where the theorem holds."""

    @abstractmethod
    def scale(self, state: S) -> float:
        """The squared size of an iterate in the norm of the method, at least: what its rounding is relative to."""

    @abstractmethod
    def stored_parameters(self) -> list[float]:
        """All that determines an iteration beside problem and iterate, as a certificate stores it."""

    @abstractmethod
    def extra_state(self, state: S) -> dict[str, Tensor]:
        """What a checkpoint needs beyond ``stored``, for the same iterate to the last bit."""

    @abstractmethod
    def restored(self, problem: P, weights: Mapping[str, Tensor], extra: Mapping[str, Tensor]) -> S:
        """The iterate of a checkpoint, from ``stored`` and ``extra_state``."""

    def stored(self, state: S) -> dict[str, Tensor]:
        """The arrays that a certificate and a checkpoint speak of: the iterate, and the parameters, so that the certificate of
        one solver is not taken for another's."""
        parameters = torch.tensor(self.stored_parameters(), dtype=torch.float64, device=state.x.device)
        return {**{name: getattr(state, name).clone() for name in ITERATE}, "parameters": parameters}

    def solve(
        self,
        problem: P,
        iterations: int = 300,
        *,
        tolerance: float = 1e-2,
        start: S | None = None,
        settled: Callable[[int, Tensor], bool] | None = None,
        progress: bool = False,
    ) -> DeconvolutionSolution[S]:
        """Iterate until every image's relative duality gap is at most ``tolerance``, or where the image has settled.

        For a run with checkpoints, a recorded trace and resume, use ``sf.descend(solver, problem, directory=...)``.

        Args:
            problem: what to solve.
            iterations: at most so many.
            tolerance: relative duality gap, guaranteed where the status is ``converged``; 0 for all iterations.
            start: where to start; by default ``self.start(problem)``.
            settled: asked after every iteration, with its number and its latent image; where it says so, the solver stops with
                the status ``settled``. ``Settling(blur)`` projects how much the image will still change.
            progress: a progress line on a terminal or in a notebook.

        Raises:
            TypeError, ValueError: iterations that are not a positive integer, or a tolerance that is not a number of at least 0.
        """
        iterations = positive_integer("iterations", iterations)
        tolerance = nonnegative("tolerance", tolerance)
        first = state = self.start(problem) if start is None else start
        state = replace(state, applications=0)
        status, count = RunStatus.MAX_ITERATIONS, 0
        gap = self.gap(problem, state)
        with progress_line(progress, iterations, float(gap.relative.max()), tolerance) as show:
            for count in range(1, iterations + 1):
                state = self.step(problem, state, count - 1)
                still = settled is not None and settled(count, state.picture)
                if still or count % CHECK_EVERY == 0 or count == iterations:
                    gap = self.gap(problem, state)
                    worst = float(gap.relative.max())
                    show(count, worst, self.parameters_at(count)[0])
                    if not bool(torch.isfinite(state.x).all()):
                        status, state = RunStatus.DIVERGED, first
                        gap = self.gap(problem, state)
                        break
                    if worst <= tolerance:
                        status = RunStatus.CONVERGED
                        break
                    if still:
                        status = RunStatus.SETTLED
                        break
        image = problem.blur.crop(state.picture)
        return DeconvolutionSolution(image, state, gap, status, count, state.applications)

    def certify(self, problem: P) -> Certificate:
        """The solver's theorem evaluated for this problem; the same as ``sf.certify(solver, problem)``.

        Raises:
            TypeError: a problem that is not float64.
            ValueError: numbers or sizes beyond those of certificates.
        """
        from .._core.descent import certify

        return certify(self, problem)


AnySolver = DeconvolutionSolver[Any, Any]
