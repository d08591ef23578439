"""certificate.json and counts.safetensors of a holdout certificate, typed; nothing in them is believed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..arrays import FormatError, parse_hex, read_safetensors
from .curve import MOST_POINTS
from .statement import GAPS, HYPOTHESES

FORMAT = "surefoot-holdout/1"
COUNTS, PROBLEMS, SOLUTIONS = "counts.safetensors", "problems.safetensors", "solutions.safetensors"
MOST = 1_000_000
"""Held-out problems."""
MOST_BYTES = 1 << 30
"""Of each file of arrays."""
LIMIT = 1 << 40
"""Iterations; a count of more is none that was counted."""
LONGEST_NAME = 200
FIELDS = {
    *("format", "claims", "status", "statement", "hypotheses", "solver", "problems", "gap", "limit", "coverage"),
    *("confidence", "rank", "iterations", "failures", "coverage_at_limit", "curve", "order_test", "arrays"),
}
OBJECTS = "objects"
"""The kind of problems that are no batches."""
_KINDS = ("lasso-batch", "least-squares-batch", "logistic-batch")
BATCHES = tuple(" and ".join(some) for n in (1, 2, 3) for some in combinations(_KINDS, n))
"""Kinds of problems of batches, of one or several."""
CLAIMS = (["L1"], ["L1", "L2"])


@dataclass(frozen=True)
class Point:
    """At most ``iterations`` are enough for ``problems`` of the held-out ones; lower bounds of the coverage of this number of
    iterations: of this one alone, and of all at once."""

    iterations: int
    problems: int
    pointwise: float
    simultaneous: float


@dataclass(frozen=True)
class Record:
    """A certificate of one solver on n held-out problems; the names are those of the file."""

    solver: str
    solver_sha256: str | None
    kind: str
    count: int
    rows: int | None
    columns: int | None
    gap: float
    relative_to: str
    limit: int
    coverage: float
    confidence: float
    status: str
    statement: str
    claims: tuple[str, ...]
    rank: int
    iterations: int | None
    failures: int
    coverage_at_limit: float
    curve: tuple[Point, ...]
    order_test: float
    arrays: dict[str, str]

    @classmethod
    def of(cls, record: Mapping[str, object]) -> Record:
        """Read the fields; ``FormatError`` names one that is missing, malformed or out of range."""
        _exactly(record, FIELDS, "certificate")
        if record["hypotheses"] != list(HYPOTHESES):
            raise FormatError("certificate: the hypotheses are not those of the format")
        solver = _object(record, "solver", {"name", "sha256"})
        problems = _object(record, "problems", {"kind", "count", "rows", "columns"})
        gap = _object(record, "gap", {"value", "relative_to"})
        claims, curve, arrays = record["claims"], record["curve"], record["arrays"]
        if claims not in CLAIMS:
            raise FormatError("certificate: claims must be L1, or L1 and L2")
        if not isinstance(curve, list) or len(curve) > MOST_POINTS:
            raise FormatError(f"certificate: curve must be a list of at most {MOST_POINTS} points")
        if not isinstance(arrays, dict) or not all(_is_hash(value) for value in arrays.values()):
            raise FormatError("certificate: arrays must map names to sha256")
        if gap["relative_to"] not in tuple(GAPS):
            raise FormatError(f"certificate: a gap is relative to one of {', '.join(GAPS)}")
        if record["status"] not in ("holds", "fails"):
            raise FormatError("certificate: status must be holds or fails")
        _fits(problems, gap, claims)
        limit, count = _integer(record["limit"], "limit", 0, LIMIT), _integer(problems["count"], "count", 1, MOST)
        return cls(
            solver=_text(solver["name"], "solver: name", LONGEST_NAME),
            solver_sha256=None if solver["sha256"] is None else _hash(solver["sha256"], "solver: sha256"),
            kind=cast("str", problems["kind"]),
            count=count,
            rows=_optional(problems["rows"], "problems: rows", 1, LIMIT),
            columns=_optional(problems["columns"], "problems: columns", 1, LIMIT),
            gap=_gap(gap),
            relative_to=cast("str", gap["relative_to"]),
            limit=limit,
            coverage=_share(record["coverage"], "coverage"),
            confidence=_share(record["confidence"], "confidence"),
            status=cast("str", record["status"]),
            statement=_text(record["statement"], "statement", 4 * LONGEST_NAME),
            claims=tuple(cast("list[str]", claims)),
            rank=_integer(record["rank"], "rank", 1, count),
            iterations=_optional(record["iterations"], "iterations", 0, limit),
            failures=_integer(record["failures"], "failures", 0, count),
            coverage_at_limit=_number(record["coverage_at_limit"], "coverage_at_limit", 0.0, 1.0),
            curve=tuple(_point(item, limit, count) for item in cast("list[object]", curve)),
            order_test=_number(record["order_test"], "order_test", 0.0, 1.0),
            arrays=cast("dict[str, str]", arrays),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as the file has them."""
        return {
            "format": FORMAT,
            "claims": list(self.claims),
            "status": self.status,
            "statement": self.statement,
            "hypotheses": list(HYPOTHESES),
            "solver": {"name": self.solver, "sha256": self.solver_sha256},
            "problems": {"kind": self.kind, "count": self.count, "rows": self.rows, "columns": self.columns},
            "gap": {"value": self.gap.hex(), "relative_to": self.relative_to},
            "limit": self.limit,
            "coverage": self.coverage.hex(),
            "confidence": self.confidence.hex(),
            "rank": self.rank,
            "iterations": self.iterations,
            "failures": self.failures,
            "coverage_at_limit": self.coverage_at_limit.hex(),
            "curve": [[p.iterations, p.problems, p.pointwise.hex(), p.simultaneous.hex()] for p in self.curve],
            "order_test": self.order_test.hex(),
            "arrays": self.arrays,
        }


def read_counts(directory: Path, record: Record) -> np.ndarray:
    """The counts (n,) int64, each from -1, which is a problem not solved within the limit, to the limit."""
    arrays = read_safetensors(directory / COUNTS, MOST_BYTES)
    if arrays.keys() != {"counts"}:
        raise FormatError(f"{COUNTS}: holds {', '.join(sorted(arrays)) or 'nothing'} instead of counts")
    counts = arrays["counts"]
    if counts.dtype != np.int64 or counts.shape != (record.count,):
        raise FormatError(
            f"{COUNTS}: counts has dtype {counts.dtype} and shape {counts.shape}, not int64 and ({record.count},)"
        )
    if int(counts.min()) < -1 or int(counts.max()) > record.limit:
        raise FormatError(
            f"{COUNTS}: counts are {counts.min()} .. {counts.max()}; they must lie in -1 .. {record.limit}"
        )
    return counts


def _exactly(record: Mapping[str, object], names: set[str], what: str) -> None:
    if record.keys() != names:
        differing = ", ".join(sorted(record.keys() ^ names))
        raise FormatError(f"{what}: the fields differ from those of the format ({differing})")


def _fits(problems: dict[str, object], gap: dict[str, object], claims: object) -> None:
    """``FormatError`` where problems are neither batches nor objects, or what is said of them is of the other kind."""
    kind, sizes = problems["kind"], (problems["rows"], problems["columns"])
    if not isinstance(kind, str) or kind not in (*BATCHES, OBJECTS):
        raise FormatError(f"certificate: problems: kind must be one of {', '.join((*BATCHES, OBJECTS))}")
    if sizes.count(None) == 1 or (kind == OBJECTS and sizes != (None, None)):
        raise FormatError("certificate: problems: rows and columns must both be there, or neither, as of objects")
    if (kind == OBJECTS) != (gap["relative_to"] == "user"):
        raise FormatError("certificate: gap: relative_to must be user of objects, and of no others")
    if kind == OBJECTS and "L2" in cast("list[str]", claims):
        raise FormatError("certificate: claims are of solutions, and objects have none")


def _object(record: Mapping[str, object], name: str, names: set[str]) -> dict[str, object]:
    value = record[name]
    if not isinstance(value, dict):
        raise FormatError(f"certificate: {name} is not an object")
    _exactly(cast("dict[str, object]", value), names, f"certificate: {name}")
    return cast("dict[str, object]", value)


def _integer(value: object, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:  # bool is an int to isinstance
        raise FormatError(f"certificate: {name} is {repr(value)[:40]}; it must be an integer in {least} .. {most}")
    return value


def _optional(value: object, name: str, least: int, most: int) -> int | None:
    return None if value is None else _integer(value, name, least, most)


def _number(value: object, name: str, least: float, most: float = float("inf")) -> float:
    number = parse_hex(value, f"certificate: {name}")
    if not least <= number <= most or math.copysign(1.0, number) < 0.0:  # no number of the format is -0
        raise FormatError(f"certificate: {name} is {number!r}; it must lie in {least} .. {most}")
    return number


def _share(value: object, name: str) -> float:
    number = _number(value, name, 0.0, 1.0)
    if number in (0.0, 1.0):
        raise FormatError(f"certificate: {name} must lie between 0 and 1")
    return number


def _text(value: object, name: str, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise FormatError(f"certificate: {name} must be a printable text of at most {longest} characters")
    return value


def _gap(gap: dict[str, object]) -> float:
    value = _number(gap["value"], "gap: value", 0.0)
    if value == 0.0 and gap["relative_to"] != "user":
        raise FormatError("certificate: gap: value must be positive")
    return value


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _hash(value: object, name: str) -> str:
    if not _is_hash(value):
        raise FormatError(f"certificate: {name} is not 64 hexadecimal digits")
    return cast("str", value)


def _point(item: object, limit: int, count: int) -> Point:
    if not isinstance(item, list) or len(item) != 4:
        raise FormatError("certificate: a point of the curve must have four entries")
    iterations, problems, pointwise, simultaneous = item
    return Point(
        _integer(iterations, "curve: iterations", 0, limit),
        _integer(problems, "curve: problems", 1, count),
        _number(pointwise, "curve: pointwise", 0.0, 1.0),
        _number(simultaneous, "curve: simultaneous", 0.0, 1.0),
    )
