"""The files of a run directory, typed and validated; nothing in them is believed.

Every reader returns a value of the format or raises ``FormatError``. What the values claim is for ``checker`` to prove.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from .arrays import (
    DTYPES,
    FormatError,
    counts,
    digest,
    map_safetensors,
    parse_hex,
    parse_json,
    read_bytes,
    read_json,
    read_json_lines,
    read_safetensors,
)
from .problems import Array, Problem
from .statement import Schedule, Segment, Theorem
from .system import System

FORMAT = "surefoot-certificate/2"
"""Format of the certificates that are written: a later one of a run promises at most what those before it promise then."""
FORMATS = ("surefoot-certificate/1", FORMAT)
"""Formats that are read. The fields are the same, and so are the rules of this checker: a run of the first format that breaks
the rule of the second is rejected too."""
MAX_SEGMENTS = 10_000
MAX_CERTIFICATE_BYTES = 8 << 20
"""Limits on untrusted work: an honest schedule has some hundred segments, and each costs a tenth of a millisecond."""
MAX_LATER_CERTIFICATES = 1_000
MAX_LATER_BYTES = 256 << 20
MAX_CHECKPOINTS = 100_000
"""Limits on the number of files; of checkpoints one is in memory at a time …"""
MAX_REPLAYED_BYTES = 1 << 30
"""… and all of them for a replay."""
ELSEWHERE = "surefoot-problem/1"
"""Format of problem.json, which stands for the arrays of a large problem."""
CERTIFICATE = "certificate.json"
FINAL = "final.safetensors"
MAX_DECLARATION_BYTES = 1 << 20
MAX_TRACE_BYTES = 32 << 20
"""A row has some 400 bytes; one of a million hostile ones, ten microseconds."""
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
    """The iteration ``text`` in a file's name."""
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


@dataclass(frozen=True)
class Content:
    """What a certificate file holds: an object of any format, and the file's sha256."""

    record: dict[str, object]
    sha256: bytes

    @classmethod
    def read(cls, path: Path) -> Content:
        """Read a file once: what is hashed is what was read."""
        content = read_bytes(path, MAX_CERTIFICATE_BYTES)
        record = parse_json(content, str(path))
        if not isinstance(record, dict):
            raise FormatError("certificate: not an object")
        return cls(cast("dict[str, object]", record), hashlib.sha256(content).digest())


@dataclass(frozen=True)
class _Opened:
    """A certificate's record, the system and the theorem that it names, and the file's sha256."""

    record: dict[str, object]
    system: System
    theorem: Theorem
    sha256: bytes


def _open(content: Content, systems: Mapping[str, System]) -> _Opened:
    """A certificate of one of these systems; its theorem must be one that can give a guarantee."""
    record = content.record
    if record.get("format") not in FORMATS:
        raise FormatError(f"certificate: format {record.get('format')!r} is not one of {', '.join(FORMATS)}")
    name = record.get("theorem")
    system = systems.get(name.split("/")[0]) if isinstance(name, str) else None
    theorem = None if system is None else next((t for t in system.theorems if t.id == name), None)
    if system is None or theorem is None or not theorem.provable:
        raise FormatError(f"certificate: unknown theorem {name!r}, or one of which this checker proves nothing")
    version = _field(record, "theorem_version", int)
    if version != theorem.version or record.get("system") != system.name:
        raise FormatError("certificate: theorem version or system does not match the theorem")
    return _Opened(record, system, theorem, content.sha256)


@dataclass(frozen=True)
class Certificate:
    """A certificate file, typed; nothing in it is believed."""

    name: str
    theorem: Theorem
    system: System
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

    @classmethod
    def read(cls, path: Path, systems: Mapping[str, System]) -> Certificate:
        """Read a certificate that claims a guarantee by a theorem, of one of the systems, that can give one."""
        return cls._of(_open(Content.read(path), systems), path.name)

    @classmethod
    def _of(cls, opened: _Opened, name: str) -> Certificate:
        record, theorem = opened.record, opened.theorem
        if record.get("status") != "holds" or record.get("claims") != list(theorem.claims):
            raise FormatError(NO_CLAIM)
        _exactly(record, FIELDS, "certificate")
        conclusion = _field(record, "conclusion", dict)
        _exactly(conclusion, CONCLUSION_FIELDS, "certificate: conclusion")
        schedule = _schedule(conclusion.get("schedule"))
        constant = theorem.constant_steps and len({segment.step for segment in schedule}) == 1
        rules = (theorem.rule, *(["constant"] if constant else []))
        if record["rule"] not in rules or record["suggestion"] != "":
            raise FormatError("certificate: rule or suggestion is not that of the theorem")
        problem = dict(_field(record, "problem", dict))
        quantities = {str(k): parse_hex(v, str(k)) for k, v in _field(record, "quantities", dict).items()}
        conditions = _field(record, "conditions", list)
        for condition in conditions:
            if not isinstance(condition, dict):
                raise FormatError("certificate: conditions must be objects")
            _exactly(cast("dict[str, object]", condition), CONDITION_FIELDS, "certificate: condition")
        return cls(
            name=name,
            theorem=theorem,
            system=opened.system,
            kind=problem.pop("kind", None),
            sizes=problem,
            hashes=dict(_field(record, "arrays", dict)),
            quantities=quantities,
            conditions=conditions,
            initial_gap=parse_hex(conclusion.get("initial_gap"), "initial_gap"),
            optimal_value=parse_hex(record.get("optimal_value"), "optimal_value"),
            step_size=parse_hex(conclusion.get("step_size"), "step_size"),
            rate=parse_hex(conclusion.get("rate"), "rate"),
            schedule=schedule,
        )


@dataclass(frozen=True)
class Heading:
    """What a run's first certificate says: which theorem of which system, and what it guarantees from the start, if anything.

    A run may be certified at a later iterate only: then its first certificate says that its hypotheses fail.
    """

    system: System
    theorem: Theorem
    kind: object
    sha256: bytes
    certificate: Certificate | None

    @classmethod
    def of(cls, content: Content, name: str, systems: Mapping[str, System]) -> Heading:
        """A first certificate, of the file ``name``, that holds, or says that its hypotheses fail and claims nothing."""
        opened = _open(content, systems)
        record, named = opened.record, (opened.system, opened.theorem)
        if (record.get("status"), record.get("claims")) == ("fails", []):
            _exactly({"conclusion": None, **record}, FIELDS, "certificate")  # it concludes nothing
            return cls(*named, _field(record, "problem", dict).get("kind"), opened.sha256, None)
        certificate = Certificate._of(opened, name)
        return cls(*named, certificate.kind, opened.sha256, certificate)


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


def read_problem(path: Path, data: Path | None) -> tuple[dict[str, Array], dict[str, str]]:
    """The problem's arrays and their digests: of problem.safetensors, or of the file ``data`` where problem.json declares them.

    Raises:
        FileNotFoundError: they are kept elsewhere, and ``data`` is ``None``.
        ValueError: ``data`` was given for a run that holds its arrays itself.
        FormatError: a file is missing or malformed, or the arrays are not those that are declared.
    """
    stored, declaration = path / "problem.safetensors", path / "problem.json"
    if not os.path.lexists(declaration):
        if data is not None and os.path.lexists(stored):
            raise ValueError(f"{path} holds its problem's arrays itself; leave out --data")
        arrays = read_safetensors(stored)
        return arrays, {name: digest(array) for name, array in arrays.items()}
    if os.path.lexists(stored):
        raise FormatError("problem.json and problem.safetensors are both there; a run has one of them")
    declared = _declared(declaration)
    if data is None:
        raise FileNotFoundError(
            f"{path} does not hold its problem's arrays ({', '.join(sorted(declared))}), as they are large; "
            "name the file that does with --data FILE"
        )
    # the user's own choice, unlike what lies in the directory: a link to it is followed
    arrays = map_safetensors(data.resolve())
    hashes = {name: digest(array) for name, array in arrays.items()}
    facts = {name: (array.dtype, array.shape, hashes[name]) for name, array in arrays.items()}
    differing = sorted(name for name in facts.keys() | declared.keys() if facts.get(name) != declared.get(name))
    if differing:
        raise FormatError(f"{data}: {', '.join(differing)} differ from what {declaration.name} declares")
    return arrays, hashes


def _declared(path: Path) -> dict[str, tuple[np.dtype, tuple[int, ...], str]]:
    """dtype, shape and digest by name, as problem.json states them."""
    record = read_json(path, MAX_DECLARATION_BYTES)
    if not isinstance(record, dict):
        raise FormatError(f"{path.name}: not an object")
    _exactly(cast("dict[str, object]", record), {"format", "arrays"}, path.name)
    if record["format"] != ELSEWHERE:
        raise FormatError(f"{path.name}: format {record['format']!r} is not {ELSEWHERE!r}")
    entries = record["arrays"]
    if not isinstance(entries, dict):
        raise FormatError(f"{path.name}: arrays is not an object")
    declared: dict[str, tuple[np.dtype, tuple[int, ...], str]] = {}
    for name, entry in cast("dict[str, object]", entries).items():
        what = f"{path.name}: array {name!r}"
        if not isinstance(entry, dict):
            raise FormatError(f"{what} is not an object")
        _exactly(cast("dict[str, object]", entry), {"dtype", "shape", "sha256"}, what)
        dtype, sha256 = entry["dtype"], entry["sha256"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise FormatError(f"{what}: dtype is not one of {', '.join(DTYPES)}")
        if not isinstance(sha256, str) or re.fullmatch("[0-9a-f]{64}", sha256) is None:
            raise FormatError(f"{what}: sha256 is not 64 hexadecimal digits")
        declared[name] = DTYPES[dtype], counts(entry["shape"], f"{what}: shape"), sha256
    return declared


@dataclass(frozen=True)
class Checkpoint:
    """Weights stored along a run; of the same shapes as the initial ones, and sealed with their certificate's sha256."""

    iteration: int
    weights: dict[str, Array]

    def has_weights_of(self, other: Checkpoint) -> bool:
        """Whether the weights are those of the other one."""
        return all(np.array_equal(array, other.weights[name]) for name, array in self.weights.items())

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
        weights = system.enclosures.read_weights(arrays, problem, path.name)
        if any(weights[k].shape != initial[k].shape for k in weights):
            raise FormatError(f"{path.name}: the shapes differ from those of the initial weights")
        if any(not np.array_equal(weights[k], initial[k]) for k in system.enclosures.FIXED):
            raise FormatError(
                f"{path.name}: {' or '.join(system.enclosures.FIXED)} differs from the initial one, and is not trained"
            )
        if int(iteration) == 0 and not all(np.array_equal(weights[k], initial[k]) for k in weights):
            raise FormatError(f"{path.name}: is of iteration 0 and differs from the initial weights")
        return cls(int(iteration), weights)


class StoredWeights:
    """The weights stored along a run: those in checkpoints/, and the final ones. A run cut short may have neither.

    Each file is read once, validated and compared with its name; ``FormatError`` may be raised then.
    """

    def __init__(
        self, path: Path, system: System, problem: Problem, initial: Mapping[str, Array], owner: bytes
    ) -> None:
        self._read = lambda file: Checkpoint.read(file, system, problem, initial, owner)
        self._folder, self._final = path / "checkpoints", path / FINAL
        self._names: dict[str, int] = {}
        if os.path.lexists(self._folder):
            if self._folder.is_symlink() or not self._folder.is_dir():
                raise FormatError("checkpoints: is not a directory")
            self._names = files_named(self._folder, "", ".safetensors", MAX_CHECKPOINTS)
        for name in self._names:
            iteration_in(name.removesuffix(".safetensors"), self._folder / name)
        self.has_final = os.path.lexists(self._final)
        self.size = sum(self._names.values()) + (self._final.lstat().st_size if self.has_final else 0)

    def __len__(self) -> int:
        return len(self._names) + self.has_final

    def __iter__(self) -> Iterator[tuple[str, Checkpoint]]:
        """File names and weights: the checkpoints in the order of their iterations, then the final weights."""
        last = self._read(self._final) if self.has_final else None
        for name in self._names:
            checkpoint = self._read(self._folder / name)
            if name != f"{checkpoint.iteration:09d}.safetensors":
                raise FormatError(f"checkpoints/{name} says that it is of iteration {checkpoint.iteration}")
            if last is not None and last.iteration == checkpoint.iteration and not last.has_weights_of(checkpoint):
                raise FormatError(f"{FINAL}: differs from the checkpoint of its iteration {last.iteration}")
            yield name, checkpoint
        if last is not None:
            yield FINAL, last


def later_certificates(path: Path) -> dict[int, Path]:
    """The files of the certificates along the way by their iterations, in this order; each starts after 0."""
    sizes = files_named(path, "certificate", ".json", MAX_LATER_CERTIFICATES)
    sizes.pop(CERTIFICATE, None)
    if sum(sizes.values()) > MAX_LATER_BYTES:
        raise FormatError(f"{path}: the later certificates have more than {MAX_LATER_BYTES} bytes; certify less often")
    files = {_start_of(path / name): path / name for name in sizes}
    if 0 in files:
        raise FormatError(
            f"{files[0].name}: a later certificate starts after iteration 0; that of 0 is certificate.json"
        )
    return files


def _start_of(file: Path) -> int:
    return iteration_in(file.name.removeprefix("certificate-").removesuffix(".json"), file)


def files_named(folder: Path, start: str, end: str, limit: int) -> dict[str, int]:
    """Names, sorted, and sizes of the entries of a directory whose names start and end so."""
    sizes: dict[str, int] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(start) and entry.name.endswith(end):
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
                    if len(sizes) > limit:
                        raise FormatError(
                            f"{folder}: has more than {limit} files {start}*{end}; remove those not needed"
                        )
    except OSError as error:
        raise FormatError(f"{folder}: cannot be read ({error})") from error
    return dict(sorted(sizes.items()))


def read_steps(path: Path) -> list[float]:
    """The step sizes of trace.jsonl, one of each iteration; the row of the last iterate has none, and may be absent.

    Only ``iteration`` and ``step`` of a row are used. An unfinished last line, of a killed run, counts as absent.

    Raises:
        FormatError: the file is missing, malformed or too large; a row is missing, repeated or out of order; a step is no
            positive finite float, or missing before the last row.
    """
    steps: list[float] = []
    ended = False
    for number, row in enumerate(read_json_lines(path, MAX_TRACE_BYTES)):
        what = f"{path.name}, line {number + 1}"
        if not isinstance(row, dict):
            raise FormatError(f"{what}: not an object")
        record = cast("dict[str, object]", row)
        iteration, step = record.get("iteration"), record.get("step")
        if type(iteration) is not int or iteration != number:
            raise FormatError(f"{what}: iteration is {repr(iteration)[:40]} instead of {number}")
        if ended:
            raise FormatError(f"{what}: the row before it has no step")
        if "step" not in record:
            ended = True
        elif isinstance(step, float) and step > 0.0:  # the reader refuses NaN and infinities
            steps.append(step)
        else:
            raise FormatError(f"{what}: step is {repr(step)[:40]} instead of a positive float")
    return steps


def recorded_status(path: Path) -> str | None:
    """How the run ended by its own record, config.json, which nobody proves; ``None`` where that does not say."""
    try:
        config = read_json(path / "config.json", MAX_CERTIFICATE_BYTES)
    except FormatError:
        return None
    result = config.get("result") if isinstance(config, dict) else None
    status = result.get("status") if isinstance(result, dict) else None
    return status if isinstance(status, str) else None
