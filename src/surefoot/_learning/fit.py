"""The loop in which every learned solver is trained."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._core import checkpoints
from .._core.interrupts import StopRequest
from .._core.validate import integer, positive_integer
from .directory import TrainingDirectory, run_path
from .optimizers import Optimizer
from .run import TrainRun, TrainStatus


class Objective(ABC):
    """What is minimised, as functions of the epoch and of the tensor w of all weights."""

    def prepare(self, epoch: int, w: Tensor) -> Tensor:
        """The weights that this epoch evaluates and steps from; others than ``w`` where an inner optimisation changes some."""
        return w

    @abstractmethod
    def evaluate(self, epoch: int, w: Tensor) -> tuple[float, Tensor, float | None]:
        """The loss, its gradient, and the loss that decides which weights are best where that is another one."""

    def value(self, epoch: int, w: Tensor) -> float:
        """The loss alone, with the rounding of ``evaluate``: a line search compares the two."""
        return self.evaluate(epoch, w)[0]


@dataclass(frozen=True)
class Course:
    """How long a training goes on and where it is kept.

    Attributes:
        epochs: steps, those before a resume included.
        patience: how many epochs without a lower loss end the training, if any number does.
        directory: where checkpoints and the best network go, if anywhere.
        resume: whether the newest checkpoint there is gone on with.
    """

    epochs: int
    patience: int | None
    directory: Path | None
    resume: bool

    @classmethod
    def of(
        cls, epochs: int, patience: int | None, directory: str | Path | None, resume: bool, name: str = "epochs"
    ) -> Course:
        """The arguments of a training, checked; ``name`` is what it calls its epochs.

        Raises:
            TypeError: a directory that is no path.
            ValueError: numbers out of range, or nothing to resume.
        """
        epochs = integer(name, epochs, 0)
        patience = None if patience is None else positive_integer("patience", patience)
        return cls(epochs, patience, run_path(directory, resume), resume)

    def files(self, settings: Mapping[str, Any], what: str, held: ExitStack) -> TrainingDirectory | None:
        """The directory, locked until ``held`` is closed; see ``TrainingDirectory`` for the arguments and errors."""
        if self.directory is None:
            return None
        return TrainingDirectory(self.directory, settings, what, self.resume, held)


def fit(
    objective: Objective,
    start: Tensor,
    method: Optimizer,
    course: Course,
    files: TrainingDirectory | None,
    save: Callable[[Path, Tensor], object],
    held: ExitStack,
) -> tuple[Tensor, TrainRun]:
    """Minimise from ``start``, one step of ``method`` an epoch; the best weights, and what was done.

    Args:
        objective: what is minimised.
        start: all weights in one tensor, of any shape.
        method: remembers in its state all that a resumed run needs.
        course: how long.
        files: where checkpoints go and where the newest one comes from, if anywhere.
        save: writes the network that has these weights to this file.
        held: until it is closed, SIGINT, SIGTERM and SIGHUP end the training at the next evaluation.

    Raises:
        OSError: a failed write; checkpoints written before are kept.
    """
    begin = time.monotonic()
    state = _State(start, method, course, files, held)
    while state.status is TrainStatus.RUNNING:
        epoch, w = state.epoch, objective.prepare(state.epoch, state.weights)
        value, gradient, measure = objective.evaluate(epoch, w)
        if state.record(w, value, gradient, measure):
            state.move(method.step(w, gradient, value, partial(objective.value, epoch)))
    if files is not None:
        files.finish(lambda path: save(path, state.best_weights), state.outcome())
    return state.best_weights, state.run(time.monotonic() - begin)


class _State:
    """Before the step at ``epoch``.

    Attributes:
        epoch, weights, status: as said; as long as the status is ``RUNNING`` there is another evaluation.
        best_weights, best_epoch, best: of the lowest validation loss, or training loss where there is none.
        losses, validation: of the epochs before this one, and of this one once recorded.
    """

    def __init__(
        self,
        start: Tensor,
        optimizer: Optimizer,
        course: Course,
        files: TrainingDirectory | None,
        held: ExitStack,
    ) -> None:
        self.epoch, self.weights, self.status = 0, start, TrainStatus.RUNNING
        self.best_weights, self.best_epoch, self.best = start, 0, math.inf
        self.losses: list[float] = []
        self.validation: list[float] = []
        self._optimizer, self._course, self._files = optimizer, course, files
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
        if self._course.patience is not None and self.epoch - self.best_epoch >= self._course.patience:
            self.status = TrainStatus.EARLY_STOPPED
        elif self.epoch >= self._course.epochs:
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

    def outcome(self) -> dict[str, Any]:
        """As result.json has it."""
        numbers = {"losses": self.losses, "validation": self.validation, "best": [self.best]}
        plain = {name: [v if math.isfinite(v) else None for v in values] for name, values in numbers.items()}
        return plain | {"best": plain["best"][0], "best_epoch": self.best_epoch, "status": self.status}

    def run(self, seconds: float) -> TrainRun:
        """As the caller gets it."""
        return TrainRun(
            epochs=max(0, len(self.losses) - 1),
            losses=tuple(self.losses),
            validation=tuple(self.validation),
            best_epoch=self.best_epoch,
            best=self.best,
            status=self.status,
            stopped_by=self._stop.signal_number if self.status is TrainStatus.INTERRUPTED else None,
            validation_epochs=tuple(range(len(self.validation))),
            seconds=seconds,
        )

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
