"""Fields, entries, arrays and choices that the files of a run did not hold."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from adding import (
    CONTROLS,
    FINAL,
    Runs,
    case,
    certified,
    changed,
    checkpoint,
    iterated,
    iterations,
    later,
    with_arrays,
    with_certificate,
)
from claims import GAP
from every_system import both, owned, places
from tamper import Array, Change, Record, StoredRun, Tampering, get, put, reevaluated, segments

from surefoot_check.arrays import digest
from surefoot_check.statement import Segment
from surefoot_check.systems import THEOREMS

KEYS = ("unknown", "", "L3", "Rule", "rule ", "\u0072ule\u200b", "__metadata__", CONTROLS)


def more_fields(system: str, runs: Runs) -> Iterator[Tampering]:
    """A field more in any object of a certificate, the first or a later one; an entry more in any list.

    Refused: a certificate has exactly the fields of its format, and the quantities, conditions and hashes of its theorem.
    """
    run = runs.run
    times = [t for t in iterations(run) if t]
    records = {"certificate.json": run.certificate}
    if times and run.certificate["system"] in GAP:
        records[later(times[0])] = certified(run, times[0])
    for name, record in records.items():
        objects = [(), *(path for path in places(record) if isinstance(get(record, path), dict | list))]
        for number, path in enumerate(objects):
            old = get(record, path)
            where = f"{name}: {'/'.join(map(str, path))}"
            if isinstance(old, dict):
                sample = next(iter(old.values()))
                for key in KEYS if path == () else KEYS[number % 3 :: 3]:  # in turn, so that there is some of each kind
                    value = (1.0).hex() if number % 2 else copy.deepcopy(sample)
                    yield case(system, f"{where} with {key!r}", _replaced(name, record, (*path, key), value))
            else:
                for value in ((None, 0, (0.0).hex(), CONTROLS)[number % 4], *copy.deepcopy(old[-1:])):
                    yield case(system, f"{where} and {str(value)[:20]!r}", _replaced(name, record, path, [*old, value]))
        for key in ("problem/Z", "initial/Z", "final/x", "checkpoints/000000005", "initial/" + CONTROLS):
            extra = _replaced(name, record, ("arrays", key), next(iter(record["arrays"].values())))
            yield case(system, f"{name}: a hash of {key!r}", extra)
        for key in ("n", "N", "d", "iterations", "radius", "eta_max", "residual[65]", "mass[128]", CONTROLS):
            if key not in record["quantities"]:
                yield case(
                    system, f"{name}: quantity {key!r}", _replaced(name, record, ("quantities", key), (1.0).hex())
                )
            if key not in record["problem"]:
                yield case(system, f"{name}: size {key!r}", _replaced(name, record, ("problem", key), 1))


def _replaced(name: str, record: Record, path: tuple[Any, ...], value: Any) -> Change:
    change = with_certificate(name, changed(record, path, value))
    return owned(change) if name == "certificate.json" else change


NAMES = (
    "Z",
    "",
    " ",
    "w1",
    "net.W1",
    "initial/W1",
    "../W1",
    "iteration2",
    "engine.step",
    "W1\x00",
    CONTROLS,
    "é",
    "e\u0301",
)


def more_inputs(system: str, runs: Runs) -> Iterator[Tampering]:
    """An array more among those that the certificate speaks of, with and without its hash.

    Refused: the problem and the initial weights have exactly the arrays of their kind, each with a hash.
    """
    run = runs.run
    for path in ("problem.safetensors", "initial.safetensors"):
        kind = path.partition(".")[0]
        own = sorted(run.arrays[path])
        for name in (
            *NAMES,
            own[0].swapcase(),
            f"net.{own[0]}",
            f"{own[0]}\u200b",
            "iteration",
            "certificate",
            "optimum",
        ):
            if name in run.arrays[path]:
                continue
            array = np.array(run.arrays[path][own[0]])
            change = with_arrays(path, {**run.arrays[path], name: array})
            yield case(system, f"{path} with {name!r}", change)
            hashed = owned(both(change, with_certificate("certificate.json", _hashed(run, f"{kind}/{name}", array))))
            yield case(system, f"{path} with {name!r} and its hash", hashed)


def _hashed(run: StoredRun, key: str, array: Array) -> Record:
    return changed(run.certificate, ("arrays", key), digest(array))


@iterated
def more_state(system: str, runs: Runs) -> Iterator[Tampering]:
    """An array more beside stored weights; it may be anything.

    Ignored: the trainer keeps its state there, of which nothing is claimed.
    """
    run = runs.run
    for path in (FINAL, checkpoint(iterations(run)[0])):
        for number, name in enumerate((*NAMES, "problem/X", "rule.state", "phases")):
            if name not in run.weights:
                array = (np.array([np.nan]), np.zeros((0, 3)), np.arange(3))[number % 3]
                state = with_arrays(path, {**run.arrays[path], name: array})
                yield case(system, f"{path} with {name!r} {array.dtype}{array.shape}", state)


def metadata(system: str, runs: Runs) -> Iterator[Tampering]:
    """Metadata in the header of a file of arrays.

    Ignored where it maps names to texts, as the format has it; nothing of it is read or printed.
    """
    for path in runs.run.arrays:
        for content in ({}, {"format": "pt"}, {"claim": "converged"}, {CONTROLS: CONTROLS}, {"iteration": "9", "": ""}):
            yield case(system, f"{path} with {content!r}", after=_with_header(path, {"__metadata__": content}))


def odd_headers(system: str, runs: Runs) -> Iterator[Tampering]:
    """Entries of a header that hold no array, or one that another entry holds.

    Refused: a file of arrays is what its format says, byte by byte.
    """
    for path in runs.run.arrays:
        for content in (None, [], "x", {"a": 1}, {"a": None}, {"a": {}}):
            yield case(system, f"{path} with metadata {content!r}", after=_with_header(path, {"__metadata__": content}))
        for entry in (
            {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
            {"dtype": "F16", "shape": [0], "data_offsets": [0, 0]},
            {"dtype": "F64", "shape": [0], "data_offsets": [0, 0], "note": CONTROLS},
            {"dtype": CONTROLS, "shape": [0], "data_offsets": [0, 0]},
            {"dtype": "F64", "shape": [CONTROLS], "data_offsets": [0, 0]},
        ):
            for name in ("Z", CONTROLS):
                yield case(system, f"{path} with {name!r}: {entry!r}", after=_with_header(path, {name: entry}))


def _with_header(path: str, entries: Mapping[str, Any]) -> Callable[[Path], None]:
    def after(folder: Path) -> None:
        content = (folder / path).read_bytes()
        length = int.from_bytes(content[:8], "little")
        text = json.dumps({**json.loads(content[8 : 8 + length]), **entries}).encode()
        (folder / path).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    return after


# -- free choices ------------------------------------------------------------------------------------------------------

ADMISSIBLE: dict[tuple[str, str], Callable[[float], bool]] = {
    ("two-layer/corrected", "d"): lambda d: d > 1.0,
    ("two-layer/sharp", "initial_step"): lambda step: step == 0.0,
    **{
        (f"implicit/{theorem}", name): lambda tolerance: tolerance == 0.0
        for theorem in ("measured", "spectral")
        for name in ("tau", "delta")
    },
}
"""Choices of which the theorem is true all the same."""


def absurd_choices(system: str, runs: Runs) -> Iterator[Tampering]:
    """Each free choice that a theorem publishes replaced by what it cannot be, the rest as it was or recomputed.

    Refused: every published number is one that the theorem asks for, or that makes no promise false.
    """
    record = runs.run.certificate
    theorem = THEOREMS[record["theorem"]]
    old = {name: float.fromhex(record["quantities"][name]) for name in theorem.choices}
    for name, value in old.items():
        for other in (-1.0, 1e300, -1e300, -value, 0.0, value * 1e6, *([value + 0.5] if name == "horizon" else [])):
            if other == value or ADMISSIBLE.get((theorem.id, name), lambda _: False)(other):
                continue
            yield case(
                system,
                f"{name} is {other}",
                owned(lambda run, n=name, v=other: put(run.certificate, ("quantities", n), v.hex())),
            )
            try:
                made = reevaluated(record, {}, {name: other}, _with_step(record, name, other))
            except (ValueError, ZeroDivisionError, OverflowError, AssertionError, TypeError):
                continue  # the theorem says nothing there
            yield case(
                system, f"{name} is {other}, the rest recomputed", owned(with_certificate("certificate.json", made))
            )


def _with_step(record: Record, choice: str, value: float) -> list[Segment] | None:
    """The schedule of the record; where the choice is the step, with that step and without a decrease. The theorem's own may be
    endless for an absurd choice; it is taken only where the choice says how long it is."""
    if choice == "horizon":
        return None
    if choice not in ("eta", "initial_step"):
        return segments(record)
    return [replace(segment, main_step=value, decrease=0.0) for segment in segments(record)]
