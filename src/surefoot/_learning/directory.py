"""The directory of a training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor

from .._core import checkpoints
from .._core.io import RunDirectoryError, read_json, run_directory, write_json
from .._core.validate import folder

BEST = "best.safetensors"
LOSSES_ONLY = "training/result.json has its losses, net.safetensors the network"
"""What a program's directory of a training has where nothing is descended with the trained network (``System.no_trajectory``)."""
Layout = Callable[[dict[str, Tensor]], dict[str, Tensor]]
"""From the tensors of a checkpoint, as some version wrote them, to those that are read today."""


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
        layout: of the checkpoints, where an earlier version wrote others.

    Raises:
        RunDirectoryError: a directory that exists, that has no such training, or in use by another run.
        OSError: a failed write.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], what: str, resume: bool, held: ExitStack, layout: Layout = dict
    ) -> None:
        self._path, self._layout = path, layout
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
        return checkpoints.latest(self._path, weights, self._owner, self._layout)

    def save(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Write a checkpoint."""
        checkpoints.save(self._path, checkpoint, self._owner)

    def finish(self, save: Callable[[Path], object], outcome: Mapping[str, Any]) -> None:
        """Write the best network, by its own ``save``, and what happened."""
        save(self._path / BEST)
        write_json(self._path / "result.json", outcome)
