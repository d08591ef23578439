"""Training runs of step-size networks as in the paper, measured after a few numbers of epochs and kept where they were."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from surefoot._core.io import RunDirectoryError
from surefoot._core.team import alone, team
from surefoot._learning.run import TrainStatus
from surefoot._problems import LeastSquares
from surefoot._step_sizes.baselines import trace
from surefoot._step_sizes.compare import Comparison, compare, improvement, learned_trace
from surefoot._step_sizes.network import StepSizeNet
from surefoot._step_sizes.training import train

from .finished import Part, completed, hashed, kept, kept_all
from .result import Cell, Progress

FORMAT = 1
"""Of the files of finished parts; raised whenever the same settings would give other numbers."""
PAPER = "Learning Provably Improves the Convergence of Gradient Descent"
ITERATIONS = 100
SMOOTHNESS = "common"
"""One β for all problems, as in the paper: with W_L = 0 the first network is gradient descent with the step 1/β."""
GD = "GD 1/β"
FRESH_SEED = 1_000_000
"""Added to the seed of the training problems for the fresh sets; a seed apart for each."""


@dataclass(frozen=True)
class Size:
    """A row of the paper's Table 1: x has ``columns`` entries and y ``rows``; ``hidden`` is the width of layer 2."""

    columns: int
    rows: int
    hidden: int
    count: int

    def __str__(self) -> str:
        return f"{self.columns}/{self.rows}"

    def problems(self, seed: int) -> LeastSquares:
        """Problems of the published code."""
        return LeastSquares.random(self.count, self.rows, self.columns, seed=seed)

    def fresh(self, seed: int, sets: int) -> list[LeastSquares]:
        """Sets that nothing was trained on."""
        return [self.problems(FRESH_SEED + 1000 * seed + k) for k in range(sets)]


SIZES = (Size(32, 20, 1024, 32), Size(64, 50, 2048, 32), Size(128, 100, 4096, 32), Size(256, 200, 8192, 24))
LARGE = Size(512, 400, 5120, 10)


@dataclass(frozen=True)
class Setting:
    """One training run; the defaults are those of the paper."""

    size: Size
    expansion: float = 100.0
    rate: float | None = 1e-7
    optimizer: str = "sgd"
    gradient: str = "detached"
    low: float = 0.0
    high: float = 2.0
    seed: int = 0

    def network(self) -> StepSizeNet:
        """Before training; the draw is that of the seed, for every expansion."""
        return StepSizeNet.orthogonal((2, 2, self.size.hidden), (self.low, self.high), self.expansion, self.seed)


@dataclass(frozen=True)
class Mark:
    """The best network of so many epochs, on the training problems.

    Attributes:
        epochs: steps of training.
        objectives: Σ_p F_p(x_t) - F_p*, t = 0 … T.
        at_end, mean: improvement over gradient descent at T, and on average over t = 1 … T.
        worse: share of the problems with F_p(x_T) above that of gradient descent.
    """

    epochs: int
    objectives: list[float]
    at_end: float
    mean: float
    worse: float


@dataclass(frozen=True)
class Run:
    """A training run.

    Attributes:
        setting: of the run.
        losses: Σ_p F_p(x_T) before each step, and after the last.
        marks: increasing in epochs.
        ended: why it ended before the last epoch; empty where it did not.
    """

    setting: Setting
    losses: list[float]
    marks: list[Mark]
    ended: str = ""

    @property
    def gaps(self) -> list[float]:
        """Σ_p F_p(x_T) - F_p*, for the network of each epoch, whether or not it is the best so far."""
        least = float(self.setting.size.problems(self.setting.seed).optimal_value.sum())
        return [max(loss - least, 0.0) for loss in self.losses]

    @property
    def last(self) -> Mark:
        """At the end."""
        return self.marks[-1]


def gradient_descent(problems: LeastSquares) -> list[float]:
    """Σ_p F_p(x_t) - F_p* of gradient descent with the step 1/β, t = 0 … T."""
    return trace(GD, problems, ITERATIONS).gaps.sum(1).tolist()


def run_all(
    wanted: Sequence[tuple[Setting, Sequence[int]]], cache: Path | None, progress: Progress
) -> list[tuple[Run, StepSizeNet]]:
    """``run`` of every setting up to its numbers of epochs; where there is a team, each rank trains one network at a time."""
    if team() is None:
        return [run(setting, epochs, cache, progress) for setting, epochs in wanted]
    with tempfile.TemporaryDirectory() as scratch:
        used = Path(scratch) if cache is None else cache
        parts = [
            Part(
                _said(setting, max(epochs)),
                {},
                {"setting": asdict(setting), "epochs": epochs, "cache": str(used.absolute())},
            )
            for setting, epochs in wanted
        ]
        kept_all(None, "", parts, trained, progress)
        with alone():  # so that what is measured again is what one process measures
            return [run(setting, epochs, used, lambda text: None) for setting, epochs in wanted]


def trained(setting: dict[str, Any], epochs: Sequence[int], cache: str) -> dict[str, Any]:
    """Leave in ``cache`` what ``run`` finds there."""
    run(Setting(**{**setting, "size": Size(**setting["size"])}), epochs, Path(cache), lambda text: None)
    return {}


def run(setting: Setting, epochs: Sequence[int], cache: Path | None, progress: Progress) -> tuple[Run, StepSizeNet]:
    """Train up to each number of ``epochs``; with a directory ``cache`` a run that was cut off goes on where it was.

    Returns:
        The run, and the best network.
    """
    if cache is None:
        with tempfile.TemporaryDirectory() as scratch:
            return _run(setting, epochs, Path(scratch), progress)
    return _run(setting, epochs, cache, progress)


def _run(setting: Setting, epochs: Sequence[int], cache: Path, progress: Progress) -> tuple[Run, StepSizeNet]:
    key = {"step sizes": FORMAT, **asdict(setting)}
    path = cache / f"training-{hashed(key)}"
    problems = setting.size.problems(setting.seed)
    marks: list[Mark] = []
    part, net = _Part([], ""), setting.network()
    for number in epochs:
        progress(_said(setting, number))
        net = setting.network()
        part = _train(net, problems, setting, number, path)

        def measured(net: StepSizeNet = net, number: int = number) -> dict[str, Any]:
            return asdict(_measure(net, problems, number))

        marks.append(Mark(**kept(cache, "mark", {**key, "epochs": number}, measured)))
        if part.ended:
            break
    return Run(setting, part.losses, marks, part.ended), net


@dataclass(frozen=True)
class _Part:
    losses: list[float]
    ended: str


def _train(net: StepSizeNet, problems: LeastSquares, setting: Setting, epochs: int, path: Path) -> _Part:
    """``net`` gets the best weights of the first ``epochs``; a run directory that is farther or damaged starts again."""

    def attempt(resume: bool) -> Any:
        return train(
            net,
            problems,
            setting.optimizer,
            "detached" if setting.gradient == "detached" else "exact",
            epochs,
            setting.rate,
            iterations=ITERATIONS,
            smoothness=SMOOTHNESS,
            directory=target,
            resume=resume,
        )

    # a directory for each mark, the one before copied: every mark can be asked for again
    target = path / str(epochs)
    try:
        if not target.exists():
            _copy_longest(path, epochs, target)
        result = attempt(target.exists())
    except RunDirectoryError:
        shutil.rmtree(target)
        result = attempt(False)
    done = completed(result).status in (TrainStatus.FINISHED, TrainStatus.STALLED)
    return _Part(list(result.losses), "" if done else str(result.status.value))


def _copy_longest(path: Path, epochs: int, target: Path) -> None:
    """Start ``target`` from the run with the most epochs below ``epochs``, if there is one."""
    numbers = [int(p.name) for p in path.iterdir() if p.name.isdigit()] if path.is_dir() else []
    if shorter := [number for number in numbers if number < epochs]:
        scratch = target.with_suffix(".part")
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(path / str(max(shorter)), scratch)
        scratch.rename(target)


def _measure(net: StepSizeNet, problems: LeastSquares, epochs: int) -> Mark:
    gaps = learned_trace(net, problems, ITERATIONS, SMOOTHNESS).gaps
    reference = trace(GD, problems, ITERATIONS).gaps
    ratios = improvement(gaps.sum(1), reference.sum(1))
    return Mark(
        epochs,
        gaps.sum(1).tolist(),
        float(ratios[-1]),
        float(ratios[1:].mean()),
        float((gaps[-1] > reference[-1] * (1.0 + 1e-6)).double().mean()),
    )


def beside(nets: dict[str, StepSizeNet], size: Size, seed: int, sets: int, progress: Progress) -> Comparison:
    """The networks beside every method without learning, on the training problems and on ``sets`` fresh ones."""
    progress(f"{size}: baselines on {sets} fresh sets")
    return compare(size.problems(seed), ITERATIONS, nets, fresh=size.fresh(seed, sets), smoothness=SMOOTHNESS)


COLUMNS = ("method", "training, at T", "training, mean t <= T", "fresh, at T", "fresh, mean t <= T", "worse, fresh")


def rows(comparison: Comparison, *first: Cell) -> tuple[tuple[Cell, ...], ...]:
    """A row of ``COLUMNS`` for each method, after ``first``."""
    table = []
    for row in comparison.rows:
        assert row.fresh is not None
        t, f = row.training, row.fresh
        table.append(
            (*first, row.method, t.improvement, t.mean_improvement, f.improvement, f.mean_improvement, f.worse)
        )
    return tuple(table)


def best_constant(comparison: Comparison) -> tuple[str, float]:
    """The best fixed step on the fresh sets, and its improvement there."""
    fixed = {row.method: row.fresh.improvement for row in comparison.rows if row.method.startswith("GD ") and row.fresh}
    best = max(fixed, key=lambda name: fixed[name])
    return best, fixed[best]


def marks(last: int, number: int = 8) -> tuple[int, ...]:
    """0 and about ``number`` numbers of epochs up to ``last``, denser at the start."""
    spread = torch.linspace(0.0, 1.0, number + 1, dtype=torch.float64).square() * last
    return tuple(sorted({round(float(value)) for value in spread}))


def _said(setting: Setting, epochs: int) -> str:
    rate = "" if setting.rate is None else f" {setting.rate:g}"
    method = f"{setting.optimizer}{rate}, P in [{setting.low:g}, {setting.high:g}]"
    return f"{setting.size}, e = {setting.expansion:g}, {method}: up to epoch {epochs:,}"


def percent(value: float) -> str:
    """A share as text."""
    return f"{100.0 * value:.1f} %" if abs(value) < 0.99 or value < 0.0 else f"{100.0 * value:.2f} %"
