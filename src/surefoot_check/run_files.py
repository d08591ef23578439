"""The files of a run directory, typed and validated; nothing in them is believed.

Every reader returns a value of the format or raises ``FormatError``. What the values claim is for ``checker`` to prove.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from .arrays import FormatError, parse_hex, read_json, read_safetensors
from .problems import Array, Problem
from .systems import System
from .theorems import THEOREMS, Schedule, Segment, Theorem

FORMAT = "surefoot-certificate/1"
MAX_SEGMENTS = 10_000
MAX_CERTIFICATE_BYTES = 8 << 20
"""Limits on untrusted work: an honest schedule has some hundred segments, and each costs a tenth of a millisecond."""
FIELDS = {
    *("format", "system", "theorem", "theorem_version", "status", "claims", "problem", "arrays", "quantities"),
    *("conditions", "conclusion", "optimal_value", "rule", "suggestion"),
}
NO_CLAIM = (
    "nothing is claimed: the run's certificate does not hold (its status is not 'holds' with the theorem's claims)"
)
CONCLUSION_FIELDS = {"initial_gap", "step_size", "rate", "schedule"}
CONDITION_FIELDS = {"name", "left", "relation", "right", "holds", "margin"}


def iteration_in(text: str, file: Path) -> int:
    """The iteration in a file's name."""
    if not (text.isascii() and text.isdigit() and len(text) == 9):
        raise FormatError(f"{file.name}: the name must hold an iteration of nine digits")
    return int(text)


def _field(record: Mapping[str, object], name: str, kind: type | tuple[type, ...]) -> Any:
    value = record.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise FormatError(f"certificate: field {name!r} is missing or of the wrong type")
    return value


def _exactly(record: Mapping[str, object], names: set[str], what: str) -> None:
    if record.keys() != names:
        differing = ", ".join(sorted(record.keys() ^ names))
        raise FormatError(f"{what}: the fields differ from those of the format ({differing})")


def _open(path: Path) -> tuple[dict[str, object], Theorem]:
    """A certificate's record, and the theorem it names, which must be one that can give a guarantee."""
    record = read_json(path, MAX_CERTIFICATE_BYTES)
    if not isinstance(record, dict):
        raise FormatError("certificate: not an object")
    record = cast("dict[str, object]", record)
    if record.get("format") != FORMAT:
        raise FormatError(f"certificate: format {record.get('format')!r} is not {FORMAT!r}")
    name = record.get("theorem")
    theorem = THEOREMS.get(name) if isinstance(name, str) else None
    if theorem is None:
        raise FormatError(f"certificate: unknown theorem {name!r}")
    if not theorem.provable:
        raise FormatError(
            f"{theorem.id} is false as printed, or nothing of it is proved here from a run; no run of it is accepted"
        )
    version = _field(record, "theorem_version", int)
    if version != theorem.version or record.get("system") != theorem.id.split("/")[0]:
        raise FormatError("certificate: theorem version or system does not match the theorem")
    return record, theorem


@dataclass(frozen=True)
class Heading:
    """What a run's first certificate says before any claim: the run may be certified at a later iterate only."""

    theorem: Theorem
    system: str
    kind: object
    claims: bool
    sha256: bytes

    @classmethod
    def read(cls, path: Path) -> Heading:
        """Read a first certificate that holds, or says that its hypotheses fail and claims nothing."""
        record, theorem = _open(path)
        if (record.get("status"), record.get("claims")) not in (("holds", list(theorem.claims)), ("fails", [])):
            raise FormatError(NO_CLAIM)
        kind = _field(record, "problem", dict).get("kind")
        claims = record["status"] == "holds"
        return cls(theorem, theorem.id.split("/")[0], kind, claims, hashlib.sha256(path.read_bytes()).digest())


@dataclass(frozen=True)
class Certificate:
    """A certificate file, typed; nothing in it is believed."""

    theorem: Theorem
    system: str
    kind: object
    sizes: dict[str, object]
    hashes: dict[str, object]
    quantities: dict[str, float]
    conditions: list[dict[str, object]]
    initial_gap: float
    optimal_value: float
    step_size: float
    rate: float
    schedule: Schedule
    sha256: bytes

    @classmethod
    def read(cls, path: Path) -> Certificate:
        """Read a certificate that claims a guarantee by a theorem that can give one."""
        record, theorem = _open(path)
        if record.get("status") != "holds" or record.get("claims") != list(theorem.claims):
            raise FormatError(NO_CLAIM)
        _exactly(record, FIELDS, "certificate")
        if record["rule"] != theorem.rule or record["suggestion"] != "":
            raise FormatError("certificate: rule or suggestion is not that of the theorem")
        problem = dict(_field(record, "problem", dict))
        conclusion = _field(record, "conclusion", dict)
        _exactly(conclusion, CONCLUSION_FIELDS, "certificate: conclusion")
        quantities = {str(k): parse_hex(v, str(k)) for k, v in _field(record, "quantities", dict).items()}
        conditions = _field(record, "conditions", list)
        for condition in conditions:
            if not isinstance(condition, dict):
                raise FormatError("certificate: conditions must be objects")
            _exactly(cast("dict[str, object]", condition), CONDITION_FIELDS, "certificate: condition")
        return cls(
            theorem=theorem,
            system=theorem.id.split("/")[0],
            kind=problem.pop("kind", None),
            sizes=problem,
            hashes=dict(_field(record, "arrays", dict)),
            quantities=quantities,
            conditions=conditions,
            initial_gap=parse_hex(conclusion.get("initial_gap"), "initial_gap"),
            optimal_value=parse_hex(record.get("optimal_value"), "optimal_value"),
            step_size=parse_hex(conclusion.get("step_size"), "step_size"),
            rate=parse_hex(conclusion.get("rate"), "rate"),
            schedule=_schedule(conclusion.get("schedule")),
            sha256=hashlib.sha256(path.read_bytes()).digest(),
        )


def _schedule(value: object) -> Schedule:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_SEGMENTS:
        raise FormatError("certificate: the schedule must be a list of segments")
    segments: Schedule = []
    for item in value:
        if not isinstance(item, list) or len(item) != 6:
            raise FormatError("certificate: a segment must have six entries")
        start, count, *numbers = item
        if type(start) is not int or not (count is None or type(count) is int):
            raise FormatError("certificate: a segment's start and count must be integers")
        values = [parse_hex(x, "schedule") for x in numbers]
        if min(values) < 0.0:  # the theorems' monotonicity arguments are about nonnegative steps
            raise FormatError("certificate: a segment's level, decrease and steps must not be negative")
        segments.append(Segment(start, count, *values))
    return segments


@dataclass(frozen=True)
class Checkpoint:
    """Weights stored along a run; of the same shapes as the initial ones, and sealed with their certificate's sha256."""

    iteration: int
    weights: dict[str, Array]

    @classmethod
    def read(
        cls, path: Path, system: System, problem: Problem, initial: Mapping[str, Array], certificate: bytes
    ) -> Checkpoint:
        """Read a checkpoint; arrays beside the weights and the seal are the trainer's state, and ignored."""
        arrays = read_safetensors(path)
        iteration, owner = arrays.get("iteration"), arrays.get("certificate")
        if iteration is None or iteration.shape != () or iteration.dtype != np.int64 or int(iteration) < 0:
            raise FormatError(f"{path.name}: iteration is missing or malformed")
        if owner is None or owner.dtype != np.uint8 or owner.tobytes() != certificate:
            raise FormatError(f"{path.name}: belongs to another certificate")
        weights = system.read_weights(arrays, problem, path.name)
        if any(weights[k].shape != initial[k].shape for k in weights):
            raise FormatError(f"{path.name}: the shapes differ from those of the initial weights")
        if any(not np.array_equal(weights[k], initial[k]) for k in system.FIXED):
            raise FormatError(
                f"{path.name}: {' or '.join(system.FIXED)} differs from the initial one, and is not trained"
            )
        if int(iteration) == 0 and not all(np.array_equal(weights[k], initial[k]) for k in weights):
            raise FormatError(f"{path.name}: is of iteration 0 and differs from the initial weights")
        return cls(int(iteration), weights)


def read_checkpoints(
    path: Path, system: System, problem: Problem, initial: Mapping[str, Array], owner: bytes
) -> dict[str, Checkpoint]:
    """The stored weights by file name: those in checkpoints/ and the final ones; a run cut short may have neither."""
    folder, final = path / "checkpoints", path / "final.safetensors"
    checkpoints: dict[str, Checkpoint] = {}
    if os.path.lexists(folder):
        if folder.is_symlink() or not folder.is_dir():
            raise FormatError("checkpoints: is not a directory")
        for file in sorted(folder.glob("*.safetensors")):
            checkpoint = Checkpoint.read(file, system, problem, initial, owner)
            if file.name != f"{checkpoint.iteration:09d}.safetensors":
                raise FormatError(f"checkpoints/{file.name} says that it is of iteration {checkpoint.iteration}")
            checkpoints[file.name] = checkpoint
    if os.path.lexists(final):
        last = Checkpoint.read(final, system, problem, initial, owner)
        same = checkpoints.get(f"{last.iteration:09d}.safetensors", last)
        if not all(np.array_equal(last.weights[k], same.weights[k]) for k in last.weights):
            raise FormatError(f"{final.name}: differs from the checkpoint of its iteration {last.iteration}")
        checkpoints[final.name] = last
    return checkpoints
