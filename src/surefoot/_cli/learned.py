"""What the commands share that train a learned solver: its directory, when it is refused, and what is said of the training."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from .._core.io import refuse_used, run_directory, write_json
from .._learning.run import TrainRun, TrainStatus
from .errors import Exit
from .options import TrainOptions
from .screen import Screen, count, number, print_json
from .training import FREE_ON_RESUME, LIMITS, SETTINGS, interrupted

NETWORK = "net.safetensors"
TRAINING = "training"
"""Files and directories of such a command, beside ``SETTINGS``."""


class LearnedOptions(TrainOptions, Protocol):
    """What the options of such a command are: a dataclass with these."""

    @property
    def epochs(self) -> int:
        """Steps of training in total."""
        ...

    @property
    def learning_rate(self) -> float | None:
        """The size of a step."""
        ...

    @property
    def json(self) -> bool:
        """Whether to print JSON."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether to print the outcome alone."""
        ...


def check(options: LearnedOptions) -> None:
    """Before any work is done.

    Raises:
        ValueError: no epochs or learning rate that training could have.
        RunDirectoryError: a directory in which no training may start.
    """
    if options.epochs < 0:
        raise ValueError(f"--epochs is {options.epochs}; it must be at least 0")
    if options.learning_rate is not None and not 0.0 < options.learning_rate < math.inf:
        raise ValueError(f"--learning-rate is {options.learning_rate:g}; it must be positive and finite")
    if not options.resume:
        refuse_used(Path(options.out), resumable=True)


def not_trained(options: LearnedOptions, reason: str, record: Mapping[str, Any]) -> int:
    """Say why --require-certificate is not met; the exit code."""
    print(f"surefoot: not trained: {reason}", file=sys.stderr)
    if options.json:
        print_json(record)
    return Exit.NO


class Network(Protocol):
    """What is trained."""

    def save(self, path: Path, /) -> None:
        """Write a file."""
        ...


def train(options: LearnedOptions, net: Network, fit: Callable[..., TrainRun], held: ExitStack) -> TrainRun:
    """Train ``net`` by ``fit``, called with the ``directory`` of the training and whether to ``resume`` it.

    DIR is locked until ``held`` is closed. It gets the settings first, so that a run that is cut off can be resumed, and the
    network once the training has ended by itself.
    """
    directory = Path(options.out)
    held.enter_context(run_directory(directory, options.resume))
    given = dataclasses.asdict(options)
    stored = {name: value for name, value in given.items() if name not in FREE_ON_RESUME}
    limits = {name: given[name] for name in LIMITS if name in given}
    write_json(directory / SETTINGS, {"system": options.system, "options": stored, **limits})
    place = directory / TRAINING
    run = fit(directory=place, resume=options.resume and (place / "config.json").exists())
    if run.status is not TrainStatus.INTERRUPTED:
        net.save(directory / NETWORK)
    return run


def stopped(options: LearnedOptions, run: TrainRun) -> int:
    """Say how to go on with an interrupted training; the exit code."""
    return interrupted(options, f"after {run.epochs:,} epochs", run.stopped_by)


def show(screen: Screen, run: TrainRun, meaning: str = "") -> None:
    """How it ended; ``meaning`` says of what the loss is."""
    screen.heading("Training", f"{run.status}: {run.status.text}")
    screen.pairs(pairs(run, meaning))


def pairs(run: TrainRun, meaning: str = "") -> dict[str, str]:
    """Epochs and loss."""
    return {
        "epochs": f"{count(run.epochs)} in {run.seconds:.2f} s",
        "loss": f"{number(run.initial, 6)} → {number(run.best, 6)} (best, epoch {count(run.best_epoch)}){meaning}",
    }


def record(run: TrainRun) -> dict[str, Any]:
    """For JSON."""
    return {
        "status": run.status.value,
        "status_text": run.status.text,
        "epochs": run.epochs,
        "initial_loss": run.initial,
        "best_loss": run.best,
        "best_epoch": run.best_epoch,
    }


def outcome(options: LearnedOptions, run: TrainRun, record: Mapping[str, Any], line: str) -> None:
    """Print what is printed in place of the screen: JSON, or with --quiet one line, which ends in ``line``."""
    if options.json:
        print_json({"directory": options.out, **record})
    elif options.quiet:
        print(f"{options.out}: training {run.status}, {line}")


def exit_code(run: TrainRun) -> int:
    """Of a command that ends with this training."""
    return Exit.FAILED if run.status is TrainStatus.DIVERGED else Exit.YES
