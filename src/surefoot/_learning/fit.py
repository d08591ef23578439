"""The loop in which every learned solver is trained."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._core import checkpoints
from .._core.callbacks import Callback, Listeners, Record, Start
from .._core.interrupts import StopRequest
from .._core.progress import Update
from .._core.validate import integer, positive_integer
from .directory import Layout, TrainingDirectory, run_path
from .optimizers import FirstOrder, Optimizer
from .run import TrainRun, TrainStatus

INNER = "inner."
"""Before the names of what the inner optimiser remembers, in a checkpoint."""


class Objective(ABC):
    """What is minimised, as functions of the epoch and of the tensor w of all weights.

    Attributes:
        look_every: epochs between two looks at the loss, each of which waits for the device. Above 1 no losses are kept, and
            one that is not finite is seen at the next look.
        validate_every: a multiple of it: epochs between two measurements of the loss that decides which weights are best.
        inner: what ``prepare`` steps by, if it remembers anything.
    """

    look_every: int = 1
    validate_every: int = 1
    inner: FirstOrder | None = None

    def prepare(self, epoch: int, w: Tensor) -> Tensor:
        """The weights that this epoch evaluates and steps from; others than ``w`` where an inner optimisation changes some."""
        return w

    @abstractmethod
    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, a scalar, and its gradient."""

    def measure(self, w: Tensor) -> float | None:
        """The loss that decides which weights are best, if that is another one."""
        return None

    def value(self, epoch: int, w: Tensor) -> float:
        """The loss alone, with the rounding of ``evaluate``: a line search compares the two."""
        return float(self.evaluate(epoch, w)[0])


@dataclass(frozen=True)
class Course:
    """How long a training goes on and where it is kept.

    Attributes:
        epochs: steps, those before a resume included.
        patience: how many epochs without a lower loss end the training, if any number does.
        directory: where checkpoints and the best network go, if anywhere.
        resume: whether the newest checkpoint there is gone on with.
        minutes: time, likewise, if it is limited.
        listeners: the callbacks.
    """

    epochs: int
    patience: int | None
    directory: Path | None
    resume: bool
    minutes: float | None = None
    listeners: Listeners = field(default_factory=lambda: Listeners(()))

    @classmethod
    def of(
        cls,
        epochs: int,
        patience: int | None = None,
        directory: str | Path | None = None,
        resume: bool = False,
        name: str = "epochs",
        *,
        minutes: float | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> Course:
        """The arguments of a training, checked; ``name`` is what it calls its epochs.

        Raises:
            TypeError: a directory that is no path, or callbacks that are none.
            ValueError: numbers out of range, or nothing to resume.
        """
        epochs = integer(name, epochs, 0)
        patience = None if patience is None else positive_integer("patience", patience)
        if minutes is not None and not 0.0 < minutes < math.inf:
            raise ValueError(f"minutes is {minutes!r}; it must be a positive number")
        return cls(epochs, patience, run_path(directory, resume), resume, minutes, Listeners(callbacks))

    def share(self, epoch: int, seconds: float) -> float:
        """How much of it lies behind: 1 and more at its end."""
        by_epochs = epoch / self.epochs if self.epochs else 1.0
        return by_epochs if self.minutes is None else max(by_epochs, seconds / (60.0 * self.minutes))

    def files(
        self, settings: Mapping[str, Any], what: str, held: ExitStack, layout: Layout = dict
    ) -> TrainingDirectory | None:
        """The directory, locked until ``held`` is closed; see ``TrainingDirectory`` for the arguments and errors."""
        if self.directory is None:
            return None
        return TrainingDirectory(self.directory, settings, what, self.resume, held, layout)


def fit(
    objective: Objective,
    start: Tensor,
    method: Optimizer,
    course: Course,
    files: TrainingDirectory | None,
    save: Callable[[Path, Tensor], object],
    held: ExitStack,
    show: Update = lambda epoch, loss, rate: None,
) -> tuple[Tensor, TrainRun]:
    """Minimise from ``start``, one step of ``method`` an epoch; the best weights, and what was done.

    Args:
        objective: what is minimised.
        start: all weights in one tensor, of any shape.
        method: remembers in its state all that a resumed run needs.
        course: how long.
        files: where checkpoints go and where the newest one comes from, if anywhere.
        save: writes the network that has these weights to this file.
        held: until it is closed, SIGINT, SIGTERM and SIGHUP end the training at the next evaluation; then the callbacks learn of
            the end.
        show: called at each look with the epoch, the loss last measured that decides, and the rate.

    Raises:
        OSError: a failed write; checkpoints written before are kept.
    """
    state = _State(objective, start, method, course, files, held)
    course.listeners.start(Start(state.epoch, course.epochs, course.directory, resumed=course.resume))
    while state.status is TrainStatus.RUNNING:
        epoch, w = state.epoch, state.prepared()
        value, gradient = objective.evaluate(epoch, w)
        if state.record(w, value, gradient, show):
            state.move(method.step(w, gradient, value, partial(objective.value, epoch)))
    if files is not None:
        files.finish(lambda path: save(path, state.best_weights), state.outcome())
    run = state.run()
    held.push(partial(_tell, course, run, state.last))
    return state.best_weights, run


def _tell(course: Course, run: TrainRun, last: Record, failed: object, *_: object) -> None:
    """Tell the callbacks of the end, once the caller has put the best weights into its network; not of one with an error."""
    if failed is None:
        course.listeners.end(run, last, course.directory)


class _State:
    """Before the step at ``epoch``.

    Attributes:
        epoch, weights, status: as said; as long as the status is ``RUNNING`` there is another evaluation.
        best_weights, best_epoch, best: of the lowest validation loss, or training loss where there is none.
        losses: of the epochs before this one, and of this one once recorded, where they are kept.
        validation: by epoch, likewise.
        last: what callbacks are told of the newest evaluation, as long as no step is taken from it.
    """

    def __init__(
        self,
        objective: Objective,
        start: Tensor,
        optimizer: Optimizer,
        course: Course,
        files: TrainingDirectory | None,
        held: ExitStack,
    ) -> None:
        self.epoch, self.weights, self.status = 0, start, TrainStatus.RUNNING
        self.best_weights, self.best_epoch, self.best = start, 0, math.inf
        self.losses: list[float] = []
        self.validation: dict[int, float] = {}
        self.last: Record = {}
        self._objective, self._optimizer, self._course, self._files = objective, optimizer, course, files
        self._begin = time.monotonic()
        stored = None if files is None else files.latest({"weights": start, "best": start})
        if stored is not None:
            self._restore(stored)
        self._moments: dict[str, Tensor] = {}
        self._due = checkpoints.Schedule()
        self._stop = held.enter_context(StopRequest())

    def prepared(self) -> Tensor:
        """The weights to evaluate. What is remembered before an inner optimisation moves on is what a checkpoint holds."""
        self._moments = self._remembered()
        return self._objective.prepare(self.epoch, self.weights)

    def record(self, weights: Tensor, loss: Tensor, gradient: Tensor, show: Update) -> bool:
        """Note the loss at this epoch and write a checkpoint where one is due; whether a step is to follow.

        ``weights`` are those that the loss is of, which an inner optimisation may have changed: a resumed run repeats it.
        """
        share = self._course.share(self.epoch, time.monotonic() - self._begin)
        self._optimizer.rate = self._optimizer.rate_at(self.epoch, share)
        stopped = self._stop.signal_number is not None or self._course.listeners.stopped
        kept = self._files is not None and (self.epoch == 0 or self._due.due(self.epoch))
        last = share >= 1.0
        if last or stopped or kept or self.epoch % self._objective.look_every == 0:
            if not self._look(weights, loss, gradient, last):
                self.status = TrainStatus.DIVERGED
                return False
            show(self.epoch, self._deciding(float(loss)), self._optimizer.rate)
            self.last = self._measured(float(loss))
        if self._course.patience is not None and self.epoch - self.best_epoch >= self._course.patience:
            self.status = TrainStatus.EARLY_STOPPED
        elif last:
            done = self.epoch >= self._course.epochs
            self.status = TrainStatus.FINISHED if done else TrainStatus.OUT_OF_TIME
        elif stopped:
            self.status = TrainStatus.INTERRUPTED
        going = self.status is TrainStatus.RUNNING
        if self._files is not None and (kept or not going):
            self._files.save(self._checkpoint())
        return going

    def move(self, weights: Tensor | None) -> None:
        """Go on to the next epoch with these weights; ``None`` where no step lowers the loss."""
        if weights is None:
            self.status = TrainStatus.STALLED
            return
        if self.last and self._course.listeners:
            self._course.listeners.iteration({**self.last, "rate": self._optimizer.rate})
        self.epoch, self.weights, self.last = self.epoch + 1, weights, {}

    def outcome(self) -> dict[str, Any]:
        """As result.json has it."""
        numbers = {"losses": self.losses, "validation": list(self.validation.values()), "best": [self.best]}
        plain = {name: [v if math.isfinite(v) else None for v in values] for name, values in numbers.items()}
        return plain | {
            "best": plain["best"][0],
            "best_epoch": self.best_epoch,
            "status": self.status,
            "epochs": self.epoch,
            "validation_epochs": list(self.validation),
            "seconds": time.monotonic() - self._begin,
        }

    def run(self) -> TrainRun:
        """As the caller gets it."""
        return TrainRun(
            epochs=self.epoch,
            losses=tuple(self.losses),
            validation=tuple(self.validation.values()),
            best_epoch=self.best_epoch,
            best=self.best,
            status=self.status,
            stopped_by=self._stop.signal_number if self.status is TrainStatus.INTERRUPTED else None,
            validation_epochs=tuple(self.validation),
            seconds=time.monotonic() - self._begin,
        )

    def _look(self, weights: Tensor, loss: Tensor, gradient: Tensor, last: bool) -> bool:
        """Note the losses, and the weights where they are the best so far; whether all is finite.

        Which weights are best must not depend on where a run is cut off: they are measured at its end, not where it is stopped.
        """
        value = decides = float(loss)
        if self._objective.look_every == 1:
            self.losses.append(value)
        if last or self.epoch % self._objective.validate_every == 0:
            validation = self._objective.measure(weights)
            if validation is not None:
                self.validation[self.epoch] = decides = validation
            if math.isfinite(value) and math.isfinite(decides) and decides < self.best:
                self.best_weights, self.best_epoch, self.best = weights, self.epoch, decides
        return math.isfinite(value) and math.isfinite(decides) and bool(gradient.isfinite().all())

    def _measured(self, loss: float) -> dict[str, float]:
        """What callbacks are told of this epoch."""
        known = {"iteration": self.epoch, "loss": loss}
        return known | ({"validation": self.validation[self.epoch]} if self.epoch in self.validation else {})

    def _deciding(self, loss: float) -> float:
        """The loss last measured that decides."""
        return next(reversed(self.validation.values()), loss)

    def _remembered(self) -> dict[str, Tensor]:
        """By the optimisers."""
        inner = self._objective.inner
        named = {} if inner is None else {f"{INNER}{name}": value for name, value in inner.state.items()}
        return {**self._optimizer.state, **named}

    def _restore(self, stored: checkpoints.Checkpoint) -> None:
        moments = dict(stored.engine)
        self.epoch = stored.iteration
        self.weights, self.best_weights = stored.weights["weights"], stored.weights["best"]
        self.best_epoch, self.best = int(stored.rule["best_epoch"]), stored.rule["best"]
        self._begin -= stored.rule.get("seconds", 0.0)
        self.losses = moments.pop("losses").tolist()
        validation = moments.pop("validation").tolist()
        epochs = moments.pop("validation_epochs", torch.arange(len(validation))).tolist()
        self.validation = dict(zip(epochs, validation, strict=True))
        self._optimizer.state = {name: value for name, value in moments.items() if not name.startswith(INNER)}
        if self._objective.inner is not None:
            self._objective.inner.state = {
                name.removeprefix(INNER): value for name, value in moments.items() if name.startswith(INNER)
            }

    def _checkpoint(self) -> checkpoints.Checkpoint:
        before = [epoch for epoch in self.validation if epoch < self.epoch]
        rows = {"losses": self.losses[: self.epoch], "validation": [self.validation[epoch] for epoch in before]}
        engine = {name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()}
        engine["validation_epochs"] = torch.tensor(before, dtype=torch.int64)
        return checkpoints.Checkpoint(
            self.epoch,
            {"weights": self.weights, "best": self.best_weights},
            engine | self._moments,
            {
                "best": self.best,
                "best_epoch": float(self.best_epoch),
                "seconds": time.monotonic() - self._begin,
            },
            0,
        )
