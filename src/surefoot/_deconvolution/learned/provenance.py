"""Where the weights of a network come from: what must be known to train them again, and to pass them on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from surefoot_check.arrays import digest

from ..._learning.run import TrainRun
from .training_pictures import PICTURES, grey

PACKAGES = ("surefoot", "torch", "numpy", "scikit-learn", "scikit-image", "pillow")
NOT_SETTINGS = ("out", "resume", "quiet", "json", "require_certificate", "device")
"""Options of the command that do not change the weights."""
CHANGES = (
    "cut into tiles, made grey and smaller; crops of them were turned, mirrored, blurred and made noisy in training"
)


def provenance(options: Mapping[str, Any], run: TrainRun, weights: Path) -> dict[str, Any]:
    """Plain values of a training on the free pictures: the command, its outcome, the pictures with their terms, and versions.

    Args:
        options: of the command, by name.
        run: the training.
        weights: the file of the network.
    """
    settings = {name: value for name, value in options.items() if name not in NOT_SETTINGS and value is not None}
    given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in settings.items())
    pictures = [
        {name: value for name, value in asdict(picture).items() if name != "reductions"}
        | {"sha256": digest(grey(picture))}
        for picture in PICTURES
    ]
    return {
        "command": f"surefoot train deconvolution {given} --out DIR",
        "epochs": run.epochs,
        "best_epoch": run.best_epoch,
        "validation": run.best,
        "weights_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "pictures": pictures,
        "changes": CHANGES,
        "kernels": "generated: camera shake, straight motion, defocus, Gaussians (training_kernels)",
        "versions": {name: version(name) for name in PACKAGES},
    }
