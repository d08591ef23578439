"""Checkpoints of a run: when they are taken, what they hold, and the newest one that can be read."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .io import RunDirectoryError, make_folder, read_tensors, write_tensors

INTERVAL = 30.0
"""Seconds after which a checkpoint is due in any case."""
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """State before the step at ``iteration``: weights, and what engine and rule need to continue exactly."""

    iteration: int
    weights: dict[str, Tensor]
    engine: dict[str, Tensor]
    rule: dict[str, float]
    phases: int
    """How many recertifications the rule had adopted: its state belongs to the last of them."""


class Schedule:
    """Due at iterations 1, 2, 5, 10, 20, 50, … and every half minute."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def due(self, iteration: int) -> bool:
        """Whether to write a checkpoint now."""
        digits = str(iteration)
        regular = iteration > 0 and digits[0] in "125" and set(digits[1:]) <= {"0"}
        if regular or time.monotonic() - self._last >= INTERVAL:
            self._last = time.monotonic()
            return True
        return False


def path_of(directory: Path, iteration: int) -> Path:
    """The file of an iteration's checkpoint."""
    return directory / "checkpoints" / f"{iteration:09d}{SUFFIX}"


def save(directory: Path, checkpoint: Checkpoint, certificate: str) -> None:
    """Write a checkpoint, atomically; ``certificate`` is the digest it belongs to."""
    tensors = dict(checkpoint.weights)
    tensors |= {f"engine.{k}": v for k, v in checkpoint.engine.items()}
    tensors |= {f"rule.{k}": torch.tensor(v, dtype=torch.float64) for k, v in checkpoint.rule.items()}
    tensors["phases"] = torch.tensor(checkpoint.phases)
    tensors |= seal(checkpoint.iteration, certificate)
    path = path_of(directory, checkpoint.iteration)
    make_folder(path.parent)
    write_tensors(path, tensors)


def seal(iteration: int, certificate: str) -> dict[str, Tensor]:
    """What ties stored weights to an iteration and to the certificate with this digest."""
    owner = torch.tensor(list(bytes.fromhex(certificate)), dtype=torch.uint8)
    return {"iteration": torch.tensor(iteration), "certificate": owner}


def latest(
    directory: Path,
    weights: Mapping[str, Tensor],
    certificate: str,
    layout: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> Checkpoint | None:
    """The newest readable checkpoint that belongs to the certificate with this digest and whose weights have these names and
    shapes; others are passed over and renamed to ``*.damaged``, with a warning, as a check of the run would reject them.
    ``layout`` brings the tensors of an earlier version's checkpoint under the names of today."""
    for file in sorted((directory / "checkpoints").glob(f"*{SUFFIX}"), reverse=True):
        try:
            tensors = layout(read_tensors(file, next(iter(weights.values())).device))
            if any(tensors[name].shape != value.shape for name, value in weights.items()):
                raise RunDirectoryError(f"{file} has weights of other shapes")
            if bytes(tensors["certificate"].tolist()).hex() != certificate:
                raise RunDirectoryError(f"{file} belongs to another certificate")
            return Checkpoint(
                iteration=int(tensors["iteration"]),
                weights={name: tensors[name] for name in weights},
                engine={k.removeprefix("engine."): v for k, v in tensors.items() if k.startswith("engine.")},
                rule={k.removeprefix("rule."): float(v) for k, v in tensors.items() if k.startswith("rule.")},
                phases=int(tensors["phases"]),
            )
        except (RunDirectoryError, KeyError, TypeError, ValueError, RuntimeError) as error:
            aside = file.rename(file.with_name(f"{file.name}.damaged"))
            warnings.warn(
                f"checkpoint {file.name} cannot be used ({error}); an earlier one is taken, and this one kept as {aside.name}",
                stacklevel=2,
            )
    return None
