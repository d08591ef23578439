"""Training of a learned network: its progress, when it ends, and its directory."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import checkpoints
from .interrupts import StopRequest
from .io import RunDirectoryError, read_json, run_directory, write_json
from .optimizers import Optimizer
from .validate import folder

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
            "data of a smaller scale if it was so from the start",
            "interrupted": "stopped on request; a checkpoint was kept, resume from it",
        }[self.value]


def run_path(directory: str | Path | None, resume: bool) -> Path | None:
    """The arguments ``directory`` and ``resume``, checked.

    Raises:
        TypeError: a directory that is no path.
        ValueError: nothing to resume.
    """
    if resume and directory is None:
        raise ValueError("resume=True needs the directory of the run to resume")
    return None if directory is None else folder("directory", directory)


class TrainingDirectory:
    """Settings, checkpoints, the best network and the outcome of one training, locked until ``held`` is closed.

    Args:
        path: must not exist or be empty, unless ``resume``.
        settings: all that decides the course of the training, data included, as JSON has it; "format" says of what kind it is.
        what: that kind in words, for errors.
        resume: the directory has a training, with these settings.
        held: closed by the caller.

    Raises:
        RunDirectoryError: a directory that exists, that has no such training, or in use by another run.
        OSError: a failed write.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], what: str, resume: bool, held: ExitStack) -> None:
        self._path = path
        plain = json.dumps(settings, sort_keys=True)
        self._owner = hashlib.sha256(plain.encode()).hexdigest()
        held.enter_context(run_directory(path, resume))
        if not resume:
            write_json(path / "config.json", settings)
            return
        stored, given = read_json(path / "config.json"), json.loads(plain)
        if not isinstance(stored, dict) or stored.get("format") != given["format"]:
            raise RunDirectoryError(
                f"{path} has no {what}; resume it with what started it, or start a run in another directory"
            )
        differing = sorted(name for name in given if stored.get(name) != given[name])
        if differing:
            raise RunDirectoryError(
                f"the run in {path} has other settings or data ({', '.join(differing)} differ); resume with the same ones, or "
                "start a run in another directory"
            )

    def latest(self, weights: Mapping[str, Tensor]) -> checkpoints.Checkpoint | None:
        """The newest readable checkpoint with weights of these names and shapes; ``None`` before the first one."""
        return checkpoints.latest(self._path, weights, self._owner)

    def save(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Write a checkpoint."""
        checkpoints.save(self._path, checkpoint, self._owner)

    def finish(self, save: Callable[[Path], object], outcome: Mapping[str, Any]) -> None:
        """Write the best network, by its own ``save``, and what happened."""
        save(self._path / BEST)
        write_json(self._path / "result.json", outcome)


class Fitting:
    """The state before the step at ``epoch``; an epoch is one step. As long as ``status`` is ``RUNNING``, evaluate the losses at
    ``weights``, ``record`` them, and ``move`` if that says so.

    Args:
        start: all weights in one tensor, of any shape.
        optimizer: only its state matters here.
        epochs: steps, those before a resume included.
        patience: how many epochs without a lower loss end the training, if any number does.
        files: where checkpoints go and where the newest one comes from, if anywhere.
        held: until it is closed, SIGINT, SIGTERM and SIGHUP end the training at the next record.

    Attributes:
        epoch, weights, status: as said.
        best_weights, best_epoch, best: of the lowest validation loss, or training loss where there is none.
        losses, validation: of the epochs before this one, and of this one once recorded.
    """

    def __init__(
        self,
        start: Tensor,
        optimizer: Optimizer,
        epochs: int,
        patience: int | None,
        files: TrainingDirectory | None,
        held: ExitStack,
    ) -> None:
        self.epoch, self.weights, self.status = 0, start, TrainStatus.RUNNING
        self.best_weights, self.best_epoch, self.best = start, 0, math.inf
        self.losses: list[float] = []
        self.validation: list[float] = []
        self._optimizer, self._epochs, self._patience, self._files = optimizer, epochs, patience, files
        found = None if files is None else files.latest({"weights": start, "best": start})
        if found is not None:
            self.epoch, self.weights, self.best_weights = (
                found.iteration,
                found.weights["weights"],
                found.weights["best"],
            )
            self.best_epoch, self.best = int(found.rule["best_epoch"]), found.rule["best"]
            self.losses = found.engine.pop("losses").tolist()
            self.validation = found.engine.pop("validation").tolist()
            optimizer.state = found.engine
        self._due = checkpoints.Schedule()
        self._stop = held.enter_context(StopRequest())

    def record(self, weights: Tensor, loss: float, gradient: Tensor, validation: float | None) -> bool:
        """Note the losses at this epoch and write a checkpoint where one is due; whether a step is to follow.

        ``weights`` are those that the losses are of, which an inner optimisation may have changed: a resumed run repeats it.
        """
        self.losses.append(loss)
        if validation is not None:
            self.validation.append(validation)
        measure = loss if validation is None else validation
        finite = math.isfinite(loss) and math.isfinite(measure)
        if finite and measure < self.best:
            self.best_weights, self.best_epoch, self.best = weights, self.epoch, measure
        if not (finite and bool(gradient.isfinite().all())):
            self.status = TrainStatus.DIVERGED
            return False
        if self._patience is not None and self.epoch - self.best_epoch >= self._patience:
            self.status = TrainStatus.EARLY_STOPPED
        elif self.epoch >= self._epochs:
            self.status = TrainStatus.FINISHED
        elif self._stop.signal_number is not None:
            self.status = TrainStatus.INTERRUPTED
        going = self.status is TrainStatus.RUNNING
        if self._files is not None and (self.epoch == 0 or not going or self._due.due(self.epoch)):
            self._files.save(self._checkpoint())
        return going

    def move(self, weights: Tensor | None) -> None:
        """Go on to the next epoch with these weights; ``None`` where no step lowers the loss."""
        if weights is None:
            self.status = TrainStatus.STALLED
        else:
            self.epoch, self.weights = self.epoch + 1, weights

    def finish(self, save: Callable[[Path], object]) -> None:
        """Write the best network, by its own ``save``, and what happened."""
        if self._files is not None:
            numbers = {"losses": self.losses, "validation": self.validation, "best": [self.best]}
            plain = {name: [v if math.isfinite(v) else None for v in values] for name, values in numbers.items()}
            summary = {"best": plain["best"][0], "best_epoch": self.best_epoch, "status": self.status}
            self._files.finish(save, plain | summary)

    @property
    def stopped_by(self) -> int | None:
        """Number of the signal that interrupted the training."""
        return self._stop.signal_number if self.status is TrainStatus.INTERRUPTED else None

    def _checkpoint(self) -> checkpoints.Checkpoint:
        rows = {"losses": self.losses[: self.epoch], "validation": self.validation[: self.epoch]}
        engine = {name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()}
        return checkpoints.Checkpoint(
            self.epoch,
            {"weights": self.weights, "best": self.best_weights},
            engine | self._optimizer.state,
            {"best": self.best, "best_epoch": float(self.best_epoch)},
            0,
        )
