"""Training of the step-size network on the objective that its own iteration reaches."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot_check.arrays import digest

from .._core import checkpoints
from .._core.interrupts import StopRequest
from .._core.io import RunDirectoryError, locked, make_directory, read_json, write_json
from .._core.validate import as_tensor, folder, nonnegative, positive_integer, unknown
from .._core.validate import integer as checked_integer
from .network import Smoothness, StepSizeNet
from .optimizers import OPTIMIZERS, Optimizer
from .problems import Problems
from .training_loss import Fresh, RunLoss, assign
from .unrolled import Gradient, check_net, check_problems

FORMAT = "surefoot-step-sizes/1"
BEST = "best.safetensors"


class TrainStatus(StrEnum):
    """How training ended."""

    RUNNING = "running"
    FINISHED = "finished"
    EARLY_STOPPED = "early_stopped"
    STALLED = "stalled"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return {
            "running": "the run did not finish; resume it",
            "finished": "all epochs are done; resume with more to go on",
            "early_stopped": "the loss that decides which weights are best did not improve for as many epochs as patience allows",
            "stalled": "no step along the direction lowers the loss: a stationary point, or the rounding level of the loss",
            "diverged": "the loss or its gradient became non-finite; the best network was kept: use a smaller learning rate, and "
            "problems of a smaller scale if it was so from the start",
            "interrupted": "stopped on request; a checkpoint was kept, resume from it",
        }[self.value]


@dataclass(frozen=True)
class TrainRun:
    """What ``train`` did; the network holds the best weights.

    Attributes:
        losses: Σ_p F_p(x_T) on the training problems before each step, and after the last.
        validation: the same on the validation problems; empty where there are none.
        best_epoch: epoch with the lowest validation loss (training loss where there are no validation problems).
        best: that loss.
        status: how it ended.
        stopped_by: number of the signal that interrupted it.
    """

    losses: tuple[float, ...]
    validation: tuple[float, ...]
    best_epoch: int
    best: float
    status: TrainStatus
    stopped_by: int | None = None

    @property
    def epochs(self) -> int:
        """Steps taken."""
        return max(0, len(self.losses) - 1)

    def __str__(self) -> str:
        start = self.validation[0] if self.validation else self.losses[0]
        return (
            f"{self.status}: {self.status.text}\n"
            f"  {self.epochs:,} epochs, loss {start:.6g} -> {self.best:.6g} (best, epoch {self.best_epoch:,})"
        )


def train(
    net: StepSizeNet,
    problems: Problems,
    optimizer: str = "sgd",
    gradient: Gradient = "exact",
    epochs: int = 1000,
    learning_rate: float | None = None,
    *,
    iterations: int = 100,
    smoothness: Smoothness = None,
    fresh: Fresh | None = None,
    validation: Problems | None = None,
    patience: int | None = None,
    directory: str | Path | None = None,
    resume: bool = False,
) -> TrainRun:
    """Minimise Σ_p F_p(x_T) over the weights, with x_0 = 0; one step an epoch on all problems. The network is changed in place.

    Args:
        net: trained in place; at the end it holds the best weights, not the last.
        problems: to train on; with ``fresh``, to validate on unless ``validation`` is given.
        optimizer: "sgd" and "adam" step by ``learning_rate``; "armijo" (gradient descent) and "lbfgs" search along the direction,
            on the loss itself, and need the exact gradient.
        gradient: "exact", or "detached", the paper's rule, which is not the gradient of the loss for two or more iterations.
        epochs: steps, those before a resume included.
        learning_rate: of sgd (default 1e-7, the paper's for expansion 100) and adam (1e-3); first step of armijo and lbfgs (1).
        iterations: T ≥ 1.
        smoothness: β, as in ``StepSizeNet.solve``.
        fresh: other problems each epoch, a function of the epoch. Not with lbfgs, which compares gradients across epochs.
        validation: problems whose loss decides which weights are best.
        patience: stop after this many epochs without a lower validation loss (training loss where there are no such problems).
        directory: write checkpoints and the best network there; must not exist or be empty, unless ``resume``.
        resume: continue from the newest checkpoint, exactly as if the run had not been cut off.

    Returns:
        The run. A non-finite loss ends it with status "diverged", Ctrl-C and SIGTERM with "interrupted", no exception.

    Raises:
        TypeError, ValueError: bad arguments, or combinations that are none.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept and the network is unchanged.
    """
    check_net(net)
    check_problems(net, problems)
    iterations, epochs = positive_integer("iterations", iterations), checked_integer("epochs", epochs, 0)
    if gradient not in ("exact", "detached"):
        raise ValueError(f"gradient is {gradient!r}; it must be 'exact' or 'detached'")
    method = _optimizer(optimizer, learning_rate, gradient, fresh)
    if fresh is not None and not callable(fresh):
        raise TypeError(f"fresh is a {type(fresh).__name__}; pass a function that makes the problems of an epoch")
    if validation is None and fresh is not None:
        validation = problems
    elif validation is not None:
        check_problems(net, validation, "validation")
    if patience is not None:
        patience = positive_integer("patience", patience)
    path = None if directory is None else folder("directory", directory)
    if resume and path is None:
        raise ValueError("resume=True needs the directory of the run to resume")
    settings = {
        "format": FORMAT,
        "optimizer": optimizer,
        "gradient": gradient,
        "learning_rate": method.rate,
        "iterations": iterations,
        "smoothness": _plain(smoothness),
        "fresh": fresh is not None,
        "patience": patience,
        "widths": list(net.widths),
        "range": list(net.range),
        "dtype": str(net.weights[0].dtype),
        "problems": _digests(problems),
        "validation": None if validation is None else _digests(validation),
    }
    loss = RunLoss(copy.deepcopy(net), problems, iterations, smoothness, fresh, validation, gradient)
    w = torch.cat([W.reshape(-1) for W in net.matrices])
    # weights that overflow end the run with a status of its own; numpy need not warn of them
    with ExitStack() as held, np.errstate(over="ignore", invalid="ignore"):
        files = None if path is None else _Files(path, settings, w, resume, held)
        if files is not None and files.start is not None:
            progress = files.start
            method.restore(progress.optimizer)
        else:
            progress = _Progress(0, w, w, 0, math.inf, [], [], {})
        stop = held.enter_context(StopRequest())
        status = _run(loss, method, progress, epochs, patience, files, stop)
        result = TrainRun(
            tuple(progress.losses),
            tuple(progress.validation),
            progress.best_epoch,
            progress.best,
            status,
            stop.signal_number if status is TrainStatus.INTERRUPTED else None,
        )
        assign(net, progress.best_weights)
        if files is not None:
            files.finish(net, result)
    return result


@dataclass
class _Progress:
    """State before the step at ``epoch``; ``losses`` and ``validation`` are those of the epochs before it, and of this one once
    evaluated."""

    epoch: int
    weights: Tensor
    best_weights: Tensor
    best_epoch: int
    best: float
    losses: list[float]
    validation: list[float]
    optimizer: dict[str, Tensor]


def _run(
    loss: RunLoss,
    method: Optimizer,
    progress: _Progress,
    epochs: int,
    patience: int | None,
    files: _Files | None,
    stop: StopRequest,
) -> TrainStatus:
    due = checkpoints.Schedule()
    while True:
        epoch, w = progress.epoch, progress.weights
        value, slope, measure = loss.evaluate(w, epoch)
        progress.losses.append(value)
        if loss.validation is not None:
            progress.validation.append(measure)
        if not (math.isfinite(value) and math.isfinite(measure)):
            return TrainStatus.DIVERGED
        if measure < progress.best:
            progress.best, progress.best_epoch, progress.best_weights = measure, epoch, w
        if not bool(slope.isfinite().all()):
            return TrainStatus.DIVERGED
        status = TrainStatus.RUNNING
        if patience is not None and epoch - progress.best_epoch >= patience:
            status = TrainStatus.EARLY_STOPPED
        elif epoch >= epochs:
            status = TrainStatus.FINISHED
        elif stop.signal_number is not None:
            status = TrainStatus.INTERRUPTED
        if files is not None and (epoch == 0 or status is not TrainStatus.RUNNING or due.due(epoch)):
            files.save(progress, method)
        if status is not TrainStatus.RUNNING:
            return status
        new = method.step(w, value, slope, lambda trial, epoch=epoch: loss.value(trial, epoch))
        if new is None:
            return TrainStatus.STALLED
        progress.weights, progress.epoch = new, epoch + 1


class _Files:
    """The run directory of one call of ``train``, locked until ``held`` is closed.

    Attributes:
        start: where to continue from, if anywhere.
    """

    def __init__(self, path: Path, settings: dict[str, Any], w: Tensor, resume: bool, held: ExitStack) -> None:
        self._path, self._weights = path, {"weights": w, "best": w}
        self._owner = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self.start: _Progress | None = None
        if not resume:
            make_directory(path)
            held.enter_context(locked(path))
            write_json(path / "config.json", settings)
            return
        if not path.is_dir():
            raise RunDirectoryError(f"{path} is not a directory; there is no run to resume")
        held.enter_context(locked(path))
        stored = read_json(path / "config.json")
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise RunDirectoryError(
                f"{path} has no run of sf.learned.train; resume it with what started it, or start a run in another directory"
            )
        differing = sorted(name for name in settings if stored.get(name) != settings[name])
        if differing:
            raise RunDirectoryError(
                f"the run in {path} has other settings or data ({', '.join(differing)} differ); resume with the same ones, or "
                "start a run in another directory"
            )
        (path / "checkpoints").mkdir(exist_ok=True)
        found = checkpoints.latest(path, self._weights, self._owner)
        if found is None:
            return  # cut off before its first checkpoint: it starts again
        self.start = _Progress(
            found.iteration,
            found.weights["weights"],
            found.weights["best"],
            int(found.rule["best_epoch"]),
            found.rule["best"],
            found.engine.pop("losses").tolist(),
            found.engine.pop("validation").tolist(),
            found.engine,
        )

    def save(self, progress: _Progress, method: Optimizer) -> None:
        """A checkpoint before the step at ``progress.epoch``."""
        rows = {
            "losses": progress.losses[: progress.epoch],
            "validation": progress.validation[: progress.epoch],
        }
        engine = {name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()} | method.state()
        checkpoints.save(
            self._path,
            checkpoints.Checkpoint(
                progress.epoch,
                {"weights": progress.weights, "best": progress.best_weights},
                engine,
                {"best": progress.best, "best_epoch": float(progress.best_epoch)},
                0,
            ),
            self._owner,
        )

    def finish(self, net: StepSizeNet, result: TrainRun) -> None:
        """The best network, and what happened."""
        net.save(self._path / BEST)
        summary: dict[str, Any] = {"status": result.status, "best_epoch": result.best_epoch, "best": result.best}
        for name in ("losses", "validation"):
            values = getattr(result, name)
            summary[name] = [value if math.isfinite(value) else None for value in values]
        summary["best"] = result.best if math.isfinite(result.best) else None
        write_json(self._path / "result.json", summary)


def _optimizer(name: str, learning_rate: float | None, gradient: str, fresh: Fresh | None) -> Optimizer:
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    kind = OPTIMIZERS[name]
    if kind.searches and gradient == "detached":
        raise ValueError(
            f"optimizer {name!r} compares losses along the gradient, and the detached rule is not one; use gradient='exact', "
            "or sgd or adam"
        )
    if kind.remembers and fresh is not None:
        raise ValueError(
            f"optimizer {name!r} compares gradients across epochs; with fresh problems use adam, sgd or armijo"
        )
    rate = kind.default_rate if learning_rate is None else nonnegative("learning_rate", learning_rate)
    if rate == 0.0:
        raise ValueError("learning_rate is 0; it must be positive")
    return kind(rate)


def _plain(smoothness: Smoothness) -> Any:
    """As config.json holds it."""
    if smoothness is None or isinstance(smoothness, str):
        return smoothness
    return float(smoothness) if isinstance(smoothness, Real) else as_tensor("smoothness", smoothness).tolist()


def _digests(problems: Problems) -> dict[str, str]:
    """sha256 of each array."""
    return {
        "kind": problems.kind,
        **{name: digest(np.ascontiguousarray(value.cpu().numpy())) for name, value in problems.data().items()},
    }
