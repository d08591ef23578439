"""Training with a guarantee: layers trained by convex problems, beside networks trained from end to end and constant steps.

Gaps are (F - F*)/(F(0) - F*), F summed over the problems of a set; seconds are processor time of the training, and
of the checker on the directory of certified layers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from report import Report, Shown, one_thread, parser
from torch import Tensor

import surefoot as sf
from surefoot._layers.network import layer
from surefoot._layers.schedules import follow
from surefoot._layers.sectors import even, sectors_of
from surefoot._problems import Problems
from surefoot._step_sizes.baselines import trace
from surefoot._step_sizes.smoothness import inverse_smoothness
from surefoot_check import Outcome, check

SECTORS, GRID = 4, 9
TRAINED, FRESH = 0, 1000
"""Seeds of the problems to train on, and of the first fresh set."""


class Batch(NamedTuple):
    """Problems by seed."""

    name: str
    draw: Callable[[int], Problems]


@dataclass(frozen=True)
class Sizes:
    """Batches, numbers of layers, fresh sets, and epochs of L-BFGS and Adam."""

    batches: Sequence[Batch]
    layers: Sequence[int]
    sets: int
    epochs: int
    adam: int


def batches(count: int, small: bool) -> list[Batch]:
    """The kinds of problems."""
    learned = sf.learned
    if small:
        return [
            Batch("least squares 4x6", lambda seed: learned.LeastSquares.random(count, 4, 6, seed=seed)),
            Batch("LASSO 4x6", lambda seed: learned.Lasso.random(count, 4, 6, sparsity=0.5, seed=seed)),
        ]
    return [
        Batch("least squares 20x32", lambda seed: learned.LeastSquares.random(count, 20, 32, seed=seed)),
        Batch("least squares 50x64", lambda seed: learned.LeastSquares.random(count, 50, 64, seed=seed)),
        Batch("LASSO 20x32", lambda seed: learned.Lasso.random(count, 20, 32, sparsity=0.2, lam=0.05, seed=seed)),
        Batch("logistic 64x16", lambda seed: learned.Logistic.random(count, 64, 16, lam=0.1, seed=seed)),
    ]


FULL = Sizes(batches(32, small=False), (10, 30, 100), 5, 50, 300)
SMOKE = Sizes(batches(2, small=True), (2,), 1, 2, 2)

Solver = Callable[[Problems], Tensor]
"""From problems to their gaps (N,) after all layers."""


@dataclass(frozen=True)
class Trained:
    """A solver, and the processor seconds of its training, and of the check of what is certified of it."""

    name: str
    solve: Solver
    seconds: float | None = None
    checking: float | None = None


def solvers(problems: Problems, T: int, sizes: Sizes) -> Iterator[Trained]:
    """The best constant step first."""
    start = time.process_time()
    run = sf.learned.train_layers(problems, T, sectors=SECTORS)
    seconds = time.process_time() - start
    yield Trained("best constant step", _constant(run.step, T))
    if bool((run.schedule != run.step).any()):
        yield Trained("the schedule that training starts from", _schedule(run.schedule))
    yield Trained("layers, certified", _network(run.net), seconds, checking(run))
    start = time.process_time()
    greedy = sf.learned.train_layers(problems, T, sectors=SECTORS, objective="next")
    seconds = time.process_time() - start
    yield Trained('layers, certified, objective="next"', _network(greedy.net), seconds, checking(greedy))
    start = time.process_time()
    same = end_to_end(problems, T, run.step, sizes.epochs)
    yield Trained("the same network, L-BFGS from end to end", same, time.process_time() - start)
    for optimizer, epochs in (("lbfgs", sizes.epochs), ("adam", sizes.adam)):
        net = sf.nn.StepSizeNet.orthogonal(range=(0.0, 2.0))
        start = time.process_time()
        sf.learned.train(net, problems, optimizer, epochs=epochs, iterations=T)
        name = {"lbfgs": "StepSizeNet, L-BFGS", "adam": "StepSizeNet, Adam"}[optimizer]
        yield Trained(name, _network(net, T), time.process_time() - start)
    yield Trained("FISTA, without training", lambda problems: trace("FISTA", problems, T).gaps[-1])


def _constant(P: float, T: int) -> Solver:
    return _schedule(torch.full((T,), P, dtype=torch.float64))


def _schedule(steps: Tensor) -> Solver:
    return lambda problems: problems.gap(follow(problems, problems.start(), inverse_smoothness(problems, None), steps))


def _network(net: Any, iterations: int | None = None) -> Solver:
    return lambda problems: problems.gap(net.solve(problems, iterations).solution)


def end_to_end(problems: Problems, T: int, constant: float, epochs: int) -> Solver:
    """A ``LayeredSteps`` whose weights, softmax of free numbers, minimise F(x_T) by L-BFGS from the constant step."""
    points = 2 if isinstance(problems, sf.learned.LeastSquares) else GRID
    grid, boundaries = torch.linspace(0.0, 2.0, points, dtype=torch.float64), even(SECTORS)
    inverse = inverse_smoothness(problems, None)
    # the grid points around the constant, with a little of all others, so that none is out of reach
    nearness = (1.0 - (grid - constant).abs() * (points - 1) / 2.0).clamp(min=1e-3)
    free = (nearness / nearness.sum()).log().expand(T, SECTORS, -1).clone().requires_grad_()

    def loss() -> Tensor:
        x = problems.start()
        for w in free.softmax(2):
            v = problems.gradient(x) * inverse
            x = layer(problems, x, v, inverse, sectors_of(x.detach(), v.detach(), boundaries), w, grid)
        return problems.objective(x).sum()

    first = float(loss().detach())
    optimizer = torch.optim.LBFGS(
        [free],
        max_iter=epochs,
        tolerance_grad=0.0,  # until no step lowers the loss
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        optimizer.zero_grad()
        value = loss() / first
        value.backward()
        return float(value.detach())

    optimizer.step(closure)
    return _network(sf.nn.LayeredSteps(free.detach().softmax(2), grid, boundaries))


def checking(run: sf.learned.LayersRun) -> float:
    """Processor seconds of the check of the run's directory; ``RuntimeError`` where it is not accepted."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "layers"
        run.save(directory)
        start = time.process_time()
        report = check(directory)
        seconds = time.process_time() - start
    if report.outcome is not Outcome.ACCEPT:
        raise RuntimeError(f"the checker does not accept its layers: {report.outcome}")
    return seconds


def gap(solver: Solver, batch: Problems) -> float:
    """(F - F*)/(F(0) - F*)."""
    return float(solver(batch).sum() / batch.gap(batch.start()).sum())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    one_thread()
    report = Report(parser(__doc__), arguments)
    sizes = SMOKE if report.smoke else FULL
    for small in SMOKE.batches:
        list(solvers(small.draw(TRAINED), 1, SMOKE))  # compiled code is loaded with the first run
    for batch in sizes.batches:
        problems = batch.draw(TRAINED)
        fresh = [batch.draw(FRESH + k) for k in range(sizes.sets)]
        rows: list[list[object]] = []
        for T in sizes.layers:
            for trained in solvers(problems, T, sizes):
                held_out = sum(gap(trained.solve, other) for other in fresh) / len(fresh)
                numbers = [Shown(gap(trained.solve, problems), "{:.2e}"), Shown(held_out, "{:.2e}")]
                spent = [
                    "-" if seconds is None else Shown(seconds, "{:.2f}")
                    for seconds in (trained.seconds, trained.checking)
                ]
                rows.append([T, trained.name, *numbers, *spent])
        report.table(
            f"{batch.name}, {problems.count} problems, {SECTORS} sectors",
            ["layers", "steps", "training gap", "fresh gap", "seconds", "check"],
            rows,
            f"Gaps relative to those at 0; fresh: mean of {sizes.sets} other sets. Processor seconds of training and check.",
        )


if __name__ == "__main__":
    main()
