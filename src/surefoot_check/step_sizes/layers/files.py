"""The files of a directory of layers (docs/theorems/layers.md, section 6), typed and validated; nothing in them is believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...arrays import FormatError, TooLargeError, digest, numbers, parse_hex, read_safetensors
from ...rigor.bounds import Array, Level
from ..batches import LARGEST, Batch, LeastSquaresBatch
from ..enclosures import load_problem, require_betas
from . import sectors as angles

FORMAT = "surefoot-layers/1"
FIELDS = {"format", "kind", "sizes", "range", "ahead", "layers", "conclusion", "sha256"}
FACTS = ("objective", "value", "lower", "gap")
CONCLUSION = ("start", "final", "schedule", "constant", "step")
LAYERS = {"grid": 1, "boundaries": 1, "weights": 3, "beta": 1, "schedule": 1}
ITERATES = {"x": 3, "sectors": 3}
MOST_WORK = 1 << 34
"""T N b d (T + m), or without looking ahead T N b d m, which the time is proportional to: some minutes."""
MOST_AT_ONCE = 1 << 25
"""N (b + d) (m + 2), entries of an array: some dozen are in memory."""


@dataclass(frozen=True)
class Facts:
    """What is published of one layer, of what it lowers: J, the objective after the rest of the schedule, or at once."""

    objective: float
    """At least F after it."""
    value: float
    """At least J after it."""
    lower: float
    """At most J after the layer of any one grid point in each sector; of least squares, of any step in the range."""
    gap: float
    """At least value - lower."""


@dataclass(frozen=True)
class Conclusion:
    """What is published of all of them."""

    start: float
    """At least F(x_0)."""
    final: float
    """At least F(x_T)."""
    schedule: float
    """At least F after the steps of the schedule from x_0."""
    constant: float
    """At most F after T steps of one constant P."""
    step: float
    """A P that is nearly the best."""


@dataclass(frozen=True)
class Stored:
    """A directory as it was read."""

    batch: Batch
    beta: Array
    range: tuple[float, float]
    ahead: bool
    grid: Array
    boundaries: Array
    weights: Array
    schedule: Array
    x: Array
    sectors: NDArray[np.uint8]
    trained: int
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
    batch = load_problem(record["kind"], files["problem"], level)
    layers, iterates = _arrays(files, "layers", LAYERS), _arrays(files, "iterates", ITERATES)
    ahead, trained = record["ahead"], _sizes(record["sizes"], batch, layers)
    _require_shapes(batch, {**layers, **iterates})
    if not isinstance(ahead, bool) or (ahead and not isinstance(batch, LeastSquaresBatch)):
        raise FormatError("certificate: ahead must be true or false, and is not true but of least squares")
    _require_small(batch, layers["weights"], ahead)
    require_betas("beta", layers["beta"])
    interval = record["range"]
    if not isinstance(interval, list) or len(interval) != 2:
        raise FormatError("certificate: range is not a pair")
    low, high = (parse_hex(end, "range") for end in interval)
    _require_increasing("boundaries", layers["boundaries"], 0.0, angles.LARGEST)
    _require_increasing("grid", layers["grid"], low, high)
    if layers["grid"][0] != low or layers["grid"][-1] != high:
        raise FormatError(f"grid does not reach from one end of the range {low} .. {high} to the other")
    if not ((layers["schedule"] >= low) & (layers["schedule"] <= high)).all():
        raise FormatError(f"schedule has entries outside the range {low} .. {high}")
    if iterates["sectors"].max() >= layers["weights"].shape[1]:
        raise FormatError("sectors has an entry that is none of the sectors")
    published = record["layers"]
    if not isinstance(published, list) or len(published) != len(layers["weights"]):
        raise FormatError("certificate: layers is not a list with an entry for each layer")
    conclusion = Conclusion(**_floats(record["conclusion"], CONCLUSION, "conclusion"))
    if not low <= conclusion.step <= high:
        raise FormatError(f"conclusion: step is {conclusion.step}, outside the range {low} .. {high}")
    hashes = {
        f"{file}.safetensors": {name: digest(array) for name, array in arrays.items()} for file, arrays in files.items()
    }
    return Stored(
        batch=batch,
        range=(low, high),
        ahead=ahead,
        **layers,
        **iterates,
        trained=trained,
        facts=tuple(Facts(**_floats(facts, FACTS, f"layer {t + 1}")) for t, facts in enumerate(published)),
        conclusion=conclusion,
        hashes_agree=record["sha256"] == hashes,
    )


def _arrays(files: Mapping[str, Mapping[str, Any]], name: str, dimensions: Mapping[str, int]) -> dict[str, Any]:
    """The arrays of a file, by these names and no others."""
    stored = files[name]
    if stored.keys() != dimensions.keys():
        raise FormatError(f"{name}.safetensors: holds {', '.join(sorted(stored))} instead of {', '.join(dimensions)}")
    read: dict[str, Any] = {}
    for key, count in dimensions.items():
        dtype = np.uint8 if key == "sectors" else np.float64
        if key == "boundaries" and stored[key].shape == (0,) and stored[key].dtype == dtype:
            read[key] = stored[key]  # of one sector
        else:
            largest = math.inf if key == "beta" else LARGEST  # it has limits of its own
            read[key] = numbers(stored[key], f"{name}.safetensors: {key}", largest, count, dtype)
    return read


def _sizes(published: object, batch: Batch, layers: Mapping[str, Array]) -> int:
    """The number of layers that were trained; ``FormatError`` where the sizes are not those of the arrays."""
    depth, sectors, steps = layers["weights"].shape
    sizes = {"problems": batch.count, "rows": batch.rows, "columns": batch.columns}
    sizes |= {"layers": depth, "sectors": sectors, "steps": steps}
    if not isinstance(published, dict) or any(type(value) is not int for value in published.values()):
        raise FormatError("certificate: sizes is not an object of integers")
    trained = cast("dict[str, int]", dict(published)).pop("trained", -1)
    if {name: value for name, value in published.items() if name != "trained"} != sizes or not 0 <= trained <= depth:
        raise FormatError(f"certificate: sizes are not {sizes} with at most as many layers trained")
    return trained


def _require_shapes(batch: Batch, arrays: Mapping[str, Array]) -> None:
    depth, sectors, steps = arrays["weights"].shape
    shapes = {
        "grid": (steps,),
        "boundaries": (sectors - 1,),
        "weights": (depth, sectors, steps),
        "beta": (batch.count,),
        "schedule": (depth,),
        "x": (depth + 1, batch.count, batch.columns),
        "sectors": (depth, batch.count, batch.columns),
    }
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            raise FormatError(f"{name} has shape {array.shape}; with the other arrays it must be {shapes[name]}")


def _require_small(batch: Batch, weights: Array, ahead: bool) -> None:
    depth, steps = len(weights), weights.shape[2]
    work = depth * batch.count * batch.rows * batch.columns * (steps + (depth if ahead else 0))
    if work > MOST_WORK:
        raise TooLargeError(
            f"the products of {depth} layers need {work:.1e} operations; at most {MOST_WORK:.1e} are done"
        )
    entries = batch.count * (batch.rows + batch.columns) * (steps + 2)
    if entries > MOST_AT_ONCE:
        raise TooLargeError(
            f"{entries:.1e} entries for the {steps} steps of a layer; at most {MOST_AT_ONCE:.1e} are held"
        )


def _floats(value: object, names: tuple[str, ...], what: str) -> dict[str, float]:
    if not isinstance(value, dict) or value.keys() != set(names):
        raise FormatError(f"certificate: {what} must have the fields {', '.join(names)}")
    return {name: parse_hex(value[name], f"{what}: {name}") for name in names}


def _require_increasing(name: str, values: Array, low: float, high: float) -> None:
    """``FormatError`` unless the numbers increase strictly and lie in [low, high]."""
    every = values.tolist()
    if any(b <= a for a, b in pairwise(every)) or (every and not low <= every[0] <= every[-1] <= high):
        raise FormatError(f"{name} must increase, between {low} and {high}")
