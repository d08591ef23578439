"""The files of a directory of layers, typed and validated; nothing in them is believed.

certificate.json       format, problem (kind and sizes), arrays (sha256), layers, conclusion; hexadecimal floats
problem.safetensors    the arrays of the batch, as in the run directories of learned step sizes
layers.safetensors     grid (m,), boundaries (K - 1,), weights (T, K, m), beta (N,), range (2,)
iterates.safetensors   x (T + 1, N, d), sectors (T, N, d) int64, and z (T, N, d) where there is an l1 penalty
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..arrays import FormatError, digest, numbers, parse_hex, read_safetensors
from ..rigor.bounds import Array, Level
from ..step_sizes.batches import LARGEST, Batch, LassoBatch, LogisticBatch
from ..step_sizes.enclosures import load_problem, require_betas
from .sectors import FULL_TURN

FORMAT = "surefoot-layers/1"
FIELDS = {"format", "problem", "arrays", "layers", "conclusion"}
FACTS = ("objective", "best_constant", "lower_bound", "gap")
CONCLUSION = ("initial", "final", "constant", "step")
MOST_WORK = 1 << 31
"""T N d (b + m) (m + 1), which the time is proportional to."""


@dataclass(frozen=True)
class Facts:
    """What is published of one layer."""

    objective: float
    """At least the sum of the objectives after it."""
    best_constant: float
    """At most that after a step of any one P of the grid instead, from the same iterate."""
    lower_bound: float
    """At most that after any layer of the same sectors and grid."""
    gap: float
    """At least objective - lower_bound."""


@dataclass(frozen=True)
class Conclusion:
    """What is published of all of them."""

    initial: float
    """At least the objective of the first iterate."""
    final: float
    """At least that of the last."""
    constant: float
    """At most the objective after as many steps of one constant P."""
    step: float
    """A P that is nearly the best."""


@dataclass(frozen=True)
class Stored:
    """A directory as it was read."""

    batch: Batch
    beta: Array
    range: tuple[float, float]
    grid: Array
    boundaries: Array
    weights: Array
    x: Array
    sectors: NDArray[np.int64]
    z: Array | None
    facts: tuple[Facts, ...]
    conclusion: Conclusion
    hashes_agree: bool

    @property
    def depth(self) -> int:
        """T."""
        return len(self.weights)


def read(directory: Path, record: Mapping[str, object], level: Level) -> Stored:
    """Read and validate; ``FormatError`` for whatever is malformed."""
    if record.keys() != FIELDS:
        raise FormatError(f"certificate: the fields differ from {', '.join(sorted(FIELDS))}")
    files = {name: read_safetensors(directory / f"{name}.safetensors") for name in ("problem", "layers", "iterates")}
    problem = _object(record, "problem")
    batch = load_problem(problem.get("kind"), files["problem"], level)
    penalised = isinstance(batch, LassoBatch | LogisticBatch)
    layers = _arrays(files, "layers", {"grid": 1, "boundaries": 1, "weights": 3, "beta": 1, "range": 1})
    iterates = _arrays(files, "iterates", {"x": 3, "sectors": 3} | ({"z": 3} if penalised else {}))
    depth, sectors, grid = layers["weights"].shape
    shapes = {
        "grid": (grid,),
        "boundaries": (sectors - 1,),
        "beta": (batch.count,),
        "range": (2,),
        "x": (depth + 1, batch.count, batch.columns),
        "sectors": (depth, batch.count, batch.columns),
        "z": (depth, batch.count, batch.columns),
    }
    for name, array in {**layers, **iterates}.items():
        if array.shape != shapes.get(name, array.shape):
            raise FormatError(f"{name} has shape {array.shape}; with the other arrays it must be {shapes[name]}")
    sizes = {"N": batch.count, "b": batch.rows, "d": batch.columns, "T": depth, "K": sectors, "m": grid}
    if problem != {"kind": batch.kind, **sizes}:
        raise FormatError(f"certificate: problem is not {batch.kind} with {sizes}")
    if depth * batch.count * batch.columns * (batch.rows + grid) * (grid + 1) > MOST_WORK:
        raise FormatError(f"{sizes} are more than this checker takes on")
    require_betas("beta", layers["beta"])
    _require_increasing("boundaries", layers["boundaries"], 0.0, FULL_TURN)
    _require_increasing("grid", layers["grid"], *layers["range"].tolist())
    if iterates["sectors"].min() < 0 or iterates["sectors"].max() >= sectors:
        raise FormatError(f"sectors has entries outside 0 .. {sectors - 1}")
    published = record["layers"]
    if not isinstance(published, list) or len(published) != depth:
        raise FormatError(f"certificate: layers is not a list of {depth}")
    hashes = {f"{file}/{name}": digest(array) for file, arrays in files.items() for name, array in arrays.items()}
    return Stored(
        batch,
        layers["beta"],
        (float(layers["range"][0]), float(layers["range"][1])),
        layers["grid"],
        layers["boundaries"],
        layers["weights"],
        iterates["x"],
        iterates["sectors"],
        iterates.get("z"),
        tuple(Facts(**_floats(facts, FACTS, f"layer {t}")) for t, facts in enumerate(published)),
        Conclusion(**_floats(record["conclusion"], CONCLUSION, "conclusion")),
        record["arrays"] == hashes,
    )


def _object(record: Mapping[str, object], name: str) -> dict[str, object]:
    value = record[name]
    if not isinstance(value, dict):
        raise FormatError(f"certificate: {name} is not an object")
    return cast("dict[str, object]", value)


def _arrays(files: Mapping[str, Mapping[str, Any]], name: str, dimensions: Mapping[str, int]) -> dict[str, Any]:
    """The arrays of a file, by these names and no others."""
    stored = files[name]
    if stored.keys() != dimensions.keys():
        raise FormatError(f"{name}.safetensors: holds {', '.join(sorted(stored))} instead of {', '.join(dimensions)}")
    read: dict[str, Any] = {}
    for key, count in dimensions.items():
        dtype = np.int64 if key == "sectors" else np.float64
        if key == "boundaries" and stored[key].shape == (0,) and stored[key].dtype == dtype:
            read[key] = stored[key]  # of one sector
        else:
            largest = math.inf if key == "beta" else LARGEST  # it has limits of its own
            read[key] = numbers(stored[key], f"{name}.safetensors: {key}", largest, count, dtype)
    return read


def _floats(value: object, names: tuple[str, ...], what: str) -> dict[str, float]:
    if not isinstance(value, dict) or value.keys() != set(names):
        raise FormatError(f"certificate: {what} must have the fields {', '.join(names)}")
    return {name: parse_hex(value[name], f"{what}: {name}") for name in names}


def _require_increasing(name: str, values: Array, low: float, high: float) -> None:
    """``FormatError`` unless the numbers increase strictly and lie in [low, high]."""
    every = values.tolist()
    if any(b <= a for a, b in pairwise(every)) or (every and not low <= every[0] <= every[-1] <= high):
        raise FormatError(f"{name} must increase, between {low} and {high}")
