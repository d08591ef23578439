"""Tampered run directories: a good run is read, one thing is changed, and the hashes are recomputed or left as is.

With ``seal`` the sha256 of every array is recomputed in
the certificates and that of the certificate in the checkpoints, so that only the mathematics can tell.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._core.certificate import Certificate, CertificateStatus, Condition
from surefoot._core.plans import PLANS
from surefoot_check.arrays import digest, read_safetensors
from surefoot_check.statement import Segment
from surefoot_check.systems import THEOREMS

Array = np.ndarray
Record = dict[str, Any]

DTYPE_NAMES = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<i4": "I32", "|u1": "U8", "|b1": "BOOL"}


def safetensors(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of a safetensors file."""
    header: Record = {}
    data = b""
    for name, array in sorted(arrays.items()):
        content = np.ascontiguousarray(array).tobytes()
        span = [len(data), len(data) + len(content)]
        header[name] = {"dtype": DTYPE_NAMES[array.dtype.str], "shape": list(array.shape), "data_offsets": span}
        data += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@dataclass
class StoredRun:
    """A run directory in memory: certificates by file name, arrays by path."""

    certificates: dict[str, Record]
    arrays: dict[str, dict[str, Array]]
    indent: int | None = 1
    """Of the certificates as the product writes them; a sealed run may have another text."""

    @classmethod
    def read(cls, directory: Path) -> StoredRun:
        """Read the files that the checker reads."""
        files = [*sorted(directory.glob("*.safetensors")), *sorted((directory / "checkpoints").glob("*.safetensors"))]
        return cls(
            {file.name: json.loads(file.read_text()) for file in sorted(directory.glob("certificate*.json"))},
            {str(file.relative_to(directory)): read_safetensors(file) for file in files},
        )

    @property
    def certificate(self) -> Record:
        """The first certificate."""
        return self.certificates["certificate.json"]

    @property
    def phase(self) -> tuple[str, Record]:
        """The first later certificate: file name and content."""
        name = sorted(self.certificates)[0]
        assert name != "certificate.json"
        return name, self.certificates[name]

    @property
    def checkpoint(self) -> str:
        """Path of a checkpoint in the middle of the run."""
        paths = sorted(path for path in self.arrays if path.startswith("checkpoints/"))
        return paths[len(paths) // 2]

    @property
    def weights(self) -> dict[str, Array]:
        """The initial weights."""
        return self.arrays["initial.safetensors"]

    @property
    def problem(self) -> dict[str, Array]:
        """The data."""
        return self.arrays["problem.safetensors"]

    @property
    def final(self) -> dict[str, Array]:
        """The final weights, sealed."""
        return self.arrays["final.safetensors"]

    def seal(self) -> None:
        """Recompute every hash: of the arrays in the certificates, of the certificate in the checkpoints."""
        self.indent = None  # much faster
        for name, certificate in self.certificates.items():
            start = name.removeprefix("certificate").removesuffix(".json").removeprefix("-")
            weights = self.arrays.get(f"checkpoints/{start}.safetensors", self.weights) if start else self.weights
            certificate["arrays"] = {f"problem/{k}": digest(v) for k, v in self.problem.items()}
            certificate["arrays"] |= {f"initial/{k}": digest(v) for k, v in weights.items() if k in self.weights}
        owner = np.frombuffer(hashlib.sha256(encoded(self.certificate, self.indent)).digest(), dtype=np.uint8)
        for path, arrays in self.arrays.items():
            if path not in ("initial.safetensors", "problem.safetensors"):
                arrays["certificate"] = owner

    def write(self, directory: Path) -> None:
        """Write it as a run directory."""
        (directory / "checkpoints").mkdir(parents=True)
        for name, certificate in self.certificates.items():
            (directory / name).write_bytes(encoded(certificate, self.indent))
        for path, arrays in self.arrays.items():
            (directory / path).write_bytes(safetensors(arrays))


def encoded(record: Record, indent: int | None) -> bytes:
    """JSON; with indent 1 as the product writes it."""
    return (json.dumps(record, sort_keys=True, indent=indent) + "\n").encode()


def reevaluated(
    record: Record,
    base: Mapping[str, float],
    choices: Mapping[str, float] | None = None,
    schedule: Sequence[Segment] | None = None,
) -> Record:
    """The certificate with other base quantities or choices, and everything else recomputed by the theorem; or a schedule."""
    theorem = THEOREMS[record["theorem"]]
    sizes = {k: v for k, v in record["problem"].items() if k != "kind"}
    old = {name: float.fromhex(text) for name, text in record["quantities"].items()}
    measured = {name: old[name] for name in theorem.base if name in old} | dict(base)
    q: dict[str, Any] = {**measured, **sizes}
    q |= {name: old[name] for name in theorem.chosen(old)} | dict(choices or {})
    conditions = theorem.conditions(q)
    quantities = {k: float(v) for k, v in {**q, **theorem.derived(q)}.items() if k not in sizes}
    return json.loads(
        Certificate(
            system=record["system"],
            theorem=theorem.id,
            version=theorem.version,
            status=CertificateStatus.HOLDS,
            conditions=tuple(Condition.of(c) for c in conditions),
            quantities=quantities,
            schedule=tuple(PLANS[theorem.id].schedule(q) if schedule is None else schedule),
            optimal_value=float.fromhex(record["optimal_value"]),
            rule=record["rule"],
            claims=theorem.claims,
            problem=record["problem"],
            arrays=record["arrays"],
        ).to_json()
    )


Change = Callable[[StoredRun], None]


@dataclass(frozen=True)
class Tampering:
    """One change to one good run; ``after`` acts on the directory once it is written."""

    name: str
    run: str
    change: Change = lambda run: None
    seal: bool = True
    after: Callable[[Path], None] | None = None

    def apply(self, good: Path, directory: Path) -> None:
        """Write the tampered copy of ``good``."""
        self.write(StoredRun.read(good), directory)

    def write(self, run: StoredRun, directory: Path) -> None:
        """Change a run in memory, and write it."""
        self.change(run)
        if self.seal:
            run.seal()
        run.write(directory)
        if self.after is not None:
            self.after(directory)


def put(record: Any, path: tuple[Any, ...], value: Any) -> None:
    """Set a nested field."""
    for key in path[:-1]:
        record = record[key]
    record[path[-1]] = value


def get(record: Any, path: tuple[Any, ...]) -> Any:
    """A nested field."""
    for key in path:
        record = record[key]
    return record


SCHEDULE = ("conclusion", "schedule")


def split(record: Record, count: int) -> None:
    """Prepend ``count`` copies of the first segment, one iteration each: a valid, needlessly long schedule."""
    schedule = get(record, SCHEDULE)
    first = schedule[0]
    record["conclusion"]["schedule"] = [[i, 1, *first[2:]] for i in range(count)] + [
        [s[0] + count, *s[1:]] for s in schedule
    ]


def lengthen(record: Record, count: int) -> None:
    """Give the first segment ``count`` more iterations: valid, as its rate holds at every lower gap."""
    schedule = get(record, SCHEDULE)
    schedule[0][1] += count
    for segment in schedule[1:]:
        segment[0] += count


def segments(record: Record) -> list[Segment]:
    """The schedule of a certificate."""
    return [Segment(s[0], s[1], *(float.fromhex(x) for x in s[2:])) for s in get(record, SCHEDULE)]
