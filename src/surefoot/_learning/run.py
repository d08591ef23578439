"""What a training of a learned solver did."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class TrainStatus(StrEnum):
    """How training ended."""

    RUNNING = "running"
    FINISHED = "finished"
    OUT_OF_TIME = "out_of_time"
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
            "out_of_time": "the time limit was reached before all epochs were done; resume with more minutes to go on",
            "early_stopped": "the loss that decides which weights are best did not improve for as many epochs as patience allows",
            "stalled": "no step along the direction lowers the loss: a stationary point, or the rounding level of the loss",
            "diverged": "the loss or its gradient became non-finite; the best network was kept: use a smaller learning rate, and "
            "data of a smaller scale if it was so from the start",
            "interrupted": "stopped on request; from its directory, if it has one, it can be resumed",
        }[self.value]


@dataclass(frozen=True, repr=False)
class TrainRun:
    """What a training did; the network holds the best weights. An epoch is one step.

    Attributes:
        epochs: steps taken, those before a resume included.
        losses: what is minimised, before each step and after the last; empty where it is not kept.
        validation: the loss that decides which weights are best, before the steps ``validation_epochs``; empty where that is the
            training loss.
        best_epoch, best: the lowest loss that decides, and when.
        status: how it ended.
        stopped_by: number of the signal that interrupted it.
        validation_epochs: see ``validation``.
        seconds: that it took, those before a resume included.
    """

    epochs: int
    losses: tuple[float, ...]
    validation: tuple[float, ...]
    best_epoch: int
    best: float
    status: TrainStatus
    stopped_by: int | None
    validation_epochs: tuple[int, ...]
    seconds: float = field(compare=False)

    @property
    def initial(self) -> float:
        """The loss that decides which weights are best, at the start."""
        return (self.validation or self.losses)[0]

    def __repr__(self) -> str:
        """How it ended, in a line."""
        return f"<TrainRun {self.status}: {self._course}>"

    def __str__(self) -> str:
        return f"{self.status}: {self.status.text}\n  {self._course}"

    @property
    def _course(self) -> str:
        return f"{self.epochs:,} epochs, loss {self.initial:.6g} -> {self.best:.6g} (best, epoch {self.best_epoch:,})"
