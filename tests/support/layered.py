"""Directories of layers that the checker accepts, and their files in memory, to be changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tamper import safetensors

import surefoot as sf
from surefoot.learned import Lasso, LeastSquares, Logistic
from surefoot_check.arrays import digest, read_safetensors

Array = np.ndarray
Files = dict[str, dict[str, Array]]
DEPTH, SECTORS = 3, 3
BATCHES = {
    "least-squares": lambda: LeastSquares.random(3, 4, 6, seed=3),
    "lasso": lambda: Lasso.random(3, 4, 6, sparsity=0.6, lam=0.1, seed=3),
    "logistic": lambda: Logistic.random(3, 8, 4, lam=0.1, l2=0.01, seed=3),
}


def trained(kind: str, directory: Path) -> None:
    """Write a small one; its layers look ahead where the problems are least squares."""
    steps = None if kind == "least-squares" else 5
    sf.learned.train_layers(BATCHES[kind](), DEPTH, sectors=SECTORS, steps=steps).save(directory)


def hashes(files: Files) -> dict[str, dict[str, str]]:
    """Of every array."""
    return {
        f"{file}.safetensors": {name: digest(array) for name, array in arrays.items()} for file, arrays in files.items()
    }


def write(directory: Path, files: Files, record: dict[str, Any]) -> None:
    """Write a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for file, arrays in files.items():
        (directory / f"{file}.safetensors").write_bytes(safetensors(arrays))
    (directory / "certificate.json").write_text(json.dumps(record, sort_keys=True, indent=1))


def read(directory: Path) -> tuple[Files, dict[str, Any]]:
    """Read a directory back, as copies that may be changed."""
    names = ("problem", "layers", "iterates")
    files = {name: read_safetensors(directory / f"{name}.safetensors") for name in names}
    return files, json.loads((directory / "certificate.json").read_text())
