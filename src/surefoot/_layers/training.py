"""Training one layer after the other, each by a convex problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from surefoot_check.arrays import within
from surefoot_check.step_sizes.batches import LARGEST
from surefoot_check.step_sizes.enclosures import require_betas

from .._core.callbacks import Callback, Listeners, Start
from .._core.interrupts import StopRequest
from .._core.refusals import checkable
from .._core.validate import integer, kind_of, nonnegative, positive_integer, unknown
from .._learning.run import TrainStatus
from .._problems import LeastSquares, Problems
from .._step_sizes.smoothness import inverse_smoothness, smoothness_of
from .network import LayeredSteps
from .problem import Ahead, Convex, Input, LayerProblem
from .run import LayersRun, Passed
from .schedules import best_schedule, objective_after
from .sectors import even, sectors_of

Objective = Literal["last", "next"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
GRID = 9
"""Grid points where there is a penalty. Without one, two are all."""


def train_layers(
    problems: Problems,
    layers: int,
    *,
    range: tuple[float, float] = (0.0, 2.0),
    sectors: int = 4,
    steps: int | None = None,
    objective: Objective = "last",
    tolerance: float = 1e-6,
    callbacks: Iterable[Callback] = (),
) -> LayersRun:
    """Train an ``sf.nn.LayeredSteps`` from x_0 = 0, one layer after the other, each by a convex problem with a certified duality
    gap; deterministic, without learning rate or start.

    Training starts from a schedule: one P a layer, for all coordinates; for least squares the outcome of a descent over these P
    from the best constant, else the best constant of the grid. With ``objective`` "last" a layer of a network for least squares
    is the minimiser of the objective after all layers, those that are not trained yet being steps of the schedule; where there is
    a penalty that problem is not convex, and a layer lowers the same objective from the schedule's step on. So the trained
    network is never worse than the schedule, nor than the best constant step (docs/theorems/layers.md, Theorem 3).

    Args:
        problems: to train on, float64.
        layers: T ≥ 1.
        range: of P, 0 ≤ lo < hi ≤ 2; with lo > 0 and hi < 2 the rates of step sizes in that range hold too.
        sectors: K ≥ 1. With few problems many sectors fit them and no others.
        steps: grid points m ≥ 2; by default 2 for least squares, where more add nothing, else 9.
        objective: "last"; or "next", the objective after the layer itself, so that the first layers alone are trained too: the
            schedule is the best constant, and is taken instead if the whole is worse.
        tolerance: of the duality gap, relative to F - F*, with which a layer stays as it is: the step of the schedule, or the
            best constant of the grid. Others are trained to the minimum, up to rounding. A tolerance such as .1 trains only the
            layers with which much can be won, and fits few problems less closely.
        callbacks: told of every layer before it is trained, with the objective that enters it as ``loss``, and able to stop the
            training after it: see ``sf.callbacks``.

    Returns:
        The run. After Ctrl-C, SIGTERM or SIGHUP its layers that were not trained are those of the schedule, and what is said of
        the whole holds.

    Raises:
        TypeError: problems that are none, or not float64.
        ValueError: arguments out of range, or problems of a scale that no certificate admits.
        RuntimeError: a reference minimiser that is not found, as of ``problems.optimum``.

    Example:
        >>> problems = sf.learned.LeastSquares.random(4, 6, 8)
        >>> run = sf.learned.train_layers(problems, layers=3)
        >>> run.objectives[-1] <= run.scheduled, run.objectives[-1] <= run.constant  # no constant step is better
        (True, True)
    """
    listeners = Listeners(callbacks)
    problems, layers = _checked(problems), positive_integer("layers", layers)
    sectors = _sectors(sectors)
    grid = _grid(range, steps, problems).to(problems.M.device)
    tolerance = nonnegative("tolerance", tolerance)
    if objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    with checkable("problems are", "rescale them"):
        for name, array in problems.arrays().items():
            within(f"array {name!r}", array.numpy(), LARGEST)
        beta = smoothness_of(problems, None)
        require_betas("beta", beta.cpu().numpy())
    inverse = inverse_smoothness(problems, beta)
    boundaries = even(sectors).to(problems.M.device)
    schedule, constant = best_schedule(problems, inverse, grid, layers)
    if objective == "next":
        schedule = torch.full_like(schedule, constant)
    fallback = _on_grid(schedule, grid)[:, None, :].expand(-1, sectors, -1)
    frame = _Frame(
        problems, inverse, boundaries, grid, schedule, objective == "last", float(problems.optimal_value.sum())
    )
    with StopRequest() as stop:
        listeners.start(Start(0, layers))
        weights, trained = _train(frame, fallback, tolerance, stop, listeners)
    kept = trained
    passed = frame.passed(weights)
    reached = objective_after(problems, problems.start(), inverse, schedule)
    if frame.objective(passed.x[-1]) > reached:  # with "next" alone, apart from rounding
        weights, kept = fallback.clone(), 0
        passed = frame.passed(weights)
    run = LayersRun.of(
        LayeredSteps(weights, grid, boundaries),
        TrainStatus.FINISHED if trained == layers else TrainStatus.INTERRUPTED,
        kept,
        problems,
        beta,
        schedule,
        constant,
        frame.ahead,
        passed,
    )
    listeners.end(run, {"iteration": layers, "loss": frame.objective(passed.x[-1])}, None)
    return run


@dataclass(frozen=True)
class _Frame:
    """What all layers share."""

    problems: Problems
    inverse: Tensor
    boundaries: Tensor
    grid: Tensor
    schedule: Tensor
    last: bool
    least: float
    """The optimal value."""

    @property
    def ahead(self) -> bool:
        """Whether the certificate of a layer looks ahead: whether its problem is convex then."""
        return self.last and isinstance(self.problems, LeastSquares)

    def objective(self, x: Tensor) -> float:
        """Of all problems together."""
        return float(self.problems.objective(x).sum())

    def input(self, x: Tensor) -> Input:
        """What enters a layer at x."""
        v = self.problems.gradient(x) * self.inverse
        sectors = sectors_of(x, v, self.boundaries)
        return Input(self.problems, x, v, self.inverse, sectors, len(self.boundaries) + 1, self.grid)

    def trained_by(self, t: int, entering: Input) -> LayerProblem:
        """The problem that layer t is trained by."""
        rest = self.schedule[t + 1 :]
        return self.certified_by(t, entering) if self.ahead or not (self.last and len(rest)) else Ahead(entering, rest)

    def certified_by(self, t: int, entering: Input) -> Convex:
        """The problem that its certificate is about."""
        return Convex(entering, self.schedule[t + 1 :] if self.ahead else self.schedule[:0])

    def passed(self, weights: Tensor) -> Passed:
        """All layers, each with its certified bound."""
        x = self.problems.start()
        xs, problems, outcomes = [x], [], []
        for t, w in enumerate(weights):
            entering = self.input(x)
            problem = self.certified_by(t, entering)
            x = entering.output(w)
            xs.append(x)
            problems.append(problem)
            outcomes.append(problem.at(w))
        return Passed(torch.stack(xs), tuple(problems), tuple(outcomes))


def _train(
    frame: _Frame, fallback: Tensor, tolerance: float, stop: StopRequest, listeners: Listeners
) -> tuple[Tensor, int]:
    """Weights (T, K, m), and how many layers were trained before a signal or the word of a callback."""
    weights, x = fallback.clone(), frame.problems.start()
    for t in range(len(weights)):
        if stop.signal_number is not None or listeners.stopped:
            return weights, t
        if listeners:
            listeners.iteration({"iteration": t, "loss": frame.objective(x)})
        entering = frame.input(x)
        problem = frame.trained_by(t, entering)
        weights[t] = problem.minimised(_best_start(problem, fallback[t]), tolerance, frame.least)
        x = entering.output(weights[t])
    return weights, len(weights)


def _best_start(problem: LayerProblem, fallback: Tensor) -> Tensor:
    """The best (K, m) of the schedule's step and of the constant steps of the grid."""
    m = fallback.shape[1]
    constants = torch.eye(m, dtype=fallback.dtype, device=fallback.device)[:, None, :].expand(m, *fallback.shape)
    candidates = [fallback, *constants]
    values = [problem.at(w).value for w in candidates]
    return candidates[values.index(min(values))].clone()


def _on_grid(P: Tensor, grid: Tensor) -> Tensor:
    """Weights (…, m) of the two grid points around each P."""
    upper = torch.searchsorted(grid, P).clamp(1, len(grid) - 1)
    share = (P - grid[upper - 1]) / (grid[upper] - grid[upper - 1])
    weights = P.new_zeros(*P.shape, len(grid))
    weights.scatter_(-1, upper.unsqueeze(-1), share.unsqueeze(-1))
    return weights.scatter_(-1, upper.unsqueeze(-1) - 1, (1.0 - share).unsqueeze(-1))


def _checked(problems: Any) -> Problems:
    if not isinstance(problems, Problems):
        raise TypeError(f"problems is {kind_of(problems)}; pass sf.learned.LeastSquares, Lasso or Logistic")
    if problems.M.dtype != torch.float64:
        raise TypeError(
            f"problems are {problems.M.dtype}; layers are trained in float64: problems.to(dtype=torch.float64)"
        )
    return problems


def _sectors(value: Any) -> int:
    sectors = positive_integer("sectors", value)
    if sectors > 256:
        raise ValueError(f"sectors is {sectors}; it must be at most 256")
    return sectors


def _grid(interval: Any, steps: int | None, problems: Problems) -> Tensor:
    try:
        low, high = (float(end) for end in interval)
    except (TypeError, ValueError):
        raise TypeError(f"range is {interval!r}; pass two numbers (lo, hi)") from None
    if not 0.0 <= low < high <= 2.0:
        raise ValueError(
            f"range is ({low}, {high}); it must be 0 <= lo < hi <= 2: beyond 2 a step can increase the objective"
        )
    default = 2 if isinstance(problems, LeastSquares) else GRID
    count = default if steps is None else integer("steps", steps, 2)
    return torch.linspace(low, high, count, dtype=torch.float64)
