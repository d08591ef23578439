"""The tampered corpus of every system: one generator, from what a good run holds and from another run of the same system."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from changes import faster, field, scaled
from tamper import SCHEDULE, Array, Change, Record, StoredRun, Tampering, encoded, get, put, reevaluated

from surefoot._core.plans import PLANS
from surefoot_check.systems import SYSTEMS, THEOREMS

NOT_FINITE: list[Any] = ["nan", "inf", "-inf", math.nan, math.inf, "0x1.0000000000000p+1024", "0x1p99999999"]
NOT_NUMBERS: list[Any] = ["0.5", "1e-3", "", "0x1.8p+0", 0.5, 1, True, None, [], {}]
OTHER_TYPES: list[Any] = [None, True, 1, 1.5, "x", [], {}, [[]]]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below a JSON value; of long lists those of the first two and of the last."""
    for key, below in value.items() if isinstance(value, dict) else [(index, value[index]) for index in ends(value)]:
        yield (*path, key)
        if isinstance(below, dict | list):
            yield from places(below, (*path, key))


def ends(entries: list[Any]) -> list[int]:
    """Indices of a list, of a long one the first two and the last."""
    return list(range(len(entries))) if len(entries) <= 8 else [0, 1, len(entries) - 1]


def is_number(value: Any) -> bool:
    """Whether it is a hexadecimal float."""
    return isinstance(value, str) and value.removeprefix("-").startswith("0x")


def named(path: tuple[Any, ...]) -> str:
    """A path in words."""
    return "/".join(map(str, path))


def owned(change: Change) -> Change:
    """The change, and then the checkpoints sealed with the sha256 of the certificate, whose own hashes stay as they are."""

    def apply(run: StoredRun) -> None:
        change(run)
        run.indent = None
        owner = np.frombuffer(hashlib.sha256(encoded(run.certificate, None)).digest(), dtype=np.uint8)
        for path in stored_weights(run):
            run.arrays[path]["certificate"] = owner

    return apply


def stored_weights(run: StoredRun) -> list[str]:
    """The files of checkpoints and final weights."""
    return [path for path in run.arrays if path not in ("initial.safetensors", "problem.safetensors")]


def drop(path: tuple[Any, ...]) -> Change:
    """Leave out a field or an entry of a list."""

    def change(run: StoredRun) -> None:
        del get(run.certificate, path[:-1])[path[-1]]

    return change


# -- the certificate ---------------------------------------------------------------------------------------------------


def fields(system: str, run: StoredRun, other: StoredRun) -> Iterator[Tampering]:
    """Every field missing, of another type, no number, twice; unknown fields."""

    def case(name: str, change: Change) -> Tampering:
        return Tampering(name, system, owned(change), seal=False)

    record = run.certificate
    for number, path in enumerate(places(record)):
        old = get(record, path)
        where = named(path)
        yield case(f"{where} missing", drop(path))
        # in turn, so that every field has some of each kind
        replaced = OTHER_TYPES[number % 3 :: 3]
        if is_number(old):
            replaced = NOT_FINITE[number % 4 :: 4] + NOT_NUMBERS[number % 4 :: 4]
        for value in replaced:
            if type(value) is not type(old) or value != old:
                yield case(f"{where} is {value!r}", field(path, value))
        if isinstance(old, dict):
            yield case(f"{where} with an unknown field", field((*path, "unknown"), (1.0).hex()))
        if isinstance(old, list):
            yield (
                case(f"{where} without entries", field(path, [])) if old else case(f"{where} of [0]", field(path, [0]))
            )
            for index in ends(old):
                doubled = [*old[: index + 1], *old[index:]]
                yield case(f"{where} with entry {index} twice", field(path, doubled))
    yield case("an unknown field", field(("unknown",), 1))


def hashes(system: str, run: StoredRun, other: StoredRun) -> Iterator[Tampering]:
    """Hashes exchanged, missing, of no array, of the other run, or written otherwise."""
    texts = run.certificate["arrays"]
    names = sorted(texts)

    def exchanged(first: str, second: str) -> Change:
        def change(run: StoredRun) -> None:
            arrays = run.certificate["arrays"]
            arrays[first], arrays[second] = arrays[second], arrays[first]

        return owned(change)

    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            if texts[first] == texts[second]:
                continue
            yield Tampering(f"hashes of {first} and {second} exchanged", system, exchanged(first, second), seal=False)
        for what, text in {
            "of zeros": "0" * 64,
            "in capitals": texts[first].upper(),
            "cut": texts[first][:-1],
            "longer": texts[first] + "0",
            "of the other run": other.certificate["arrays"][first],
        }.items():
            if text != texts[first]:
                yield Tampering(f"hash of {first} {what}", system, owned(field(("arrays", first), text)), seal=False)
    for name in ("problem/Z", "final/x"):
        yield Tampering(f"a hash of {name}", system, owned(field(("arrays", name), "0" * 64)), seal=False)


def claims(system: str, run: StoredRun, other: StoredRun) -> Iterator[Tampering]:
    """A better rate, a looser step, another theorem, quantities in the unsafe direction; with and without new hashes."""
    record = run.certificate
    theorem = THEOREMS[record["theorem"]]
    changes: dict[str, Change] = {
        "rate better": scaled(("conclusion", "rate"), 1 - 1e-9),
        "rate above 1": field(("conclusion", "rate"), (1.5).hex()),
        "rate 0": field(("conclusion", "rate"), (0.0).hex()),
        "gap of the conclusion smaller": scaled(("conclusion", "initial_gap"), 1 - 1e-9),
        "step of the conclusion larger": more(("conclusion", "step_size"), 1.001),
        "status fails": field(("status",), "fails"),
        "claims nothing": field(("claims",), []),
        "claims more": field(("claims",), ["L1", "L2", "L3"]),
    }
    changes |= _schedules(record)
    for name in PLANS:
        if name != theorem.id:
            changes[f"theorem {name}"] = field(("theorem",), name)
            changes[f"theorem and system {name}"] = both(
                field(("theorem",), name), field(("system",), name.split("/")[0])
            )
    for system_name in SYSTEMS:
        if system_name != system:
            changes[f"system {system_name}"] = field(("system",), system_name)
    changes |= {f"version {version!r}": field(("theorem_version",), version) for version in (0, 2, 1.0, True, "1")}
    changes |= {
        f"format {text!r}": field(("format",), text) for text in ("surefoot-certificate/3", "", "surefoot-run/1")
    }
    changes |= _quantities(system, record) | _conditions(record)
    for number, (name, change) in enumerate(changes.items()):
        yield Tampering(name, system, change)
        if number % 3 == 0:
            yield Tampering(f"{name}, hashes as they were", system, change, seal=False)


def _schedules(record: Record) -> dict[str, Change]:
    """Segments that promise more, or are none."""
    changes: dict[str, Change] = {}
    schedule = record["conclusion"]["schedule"]
    for index in ends(schedule):
        changes[f"level {index} smaller"] = scaled((*SCHEDULE, index, 2), 1 - 1e-6)
        changes[f"level {index} 0"] = field((*SCHEDULE, index, 2), (0.0).hex())
        changes[f"decrease {index} larger"] = faster(index, add=1e-6, factor=1 + 1e-6)
        changes[f"decrease {index} close to 1"] = faster(index, add=1.0 - 2.0**-50, factor=0.0)
        changes[f"decrease {index} 1"] = faster(index, add=1.0, factor=0.0)
        changes[f"decrease {index} negative"] = faster(index, add=-0.1, factor=0.0)
        for column in (4, 5):
            for factor in (1.001, 10.0):
                changes[f"step {column} of {index} times {factor}"] = looser(index, column, factor)
            changes[f"step {column} of {index} negative"] = field((*SCHEDULE, index, column), (-0.5).hex())
        for column, values in ((0, (-1, 1, 2**62, 2**64)), (1, (-1, 0, 5, 2**62, 2**64, 10**4000))):
            for value in values:
                if value != schedule[index][column]:
                    changes[f"entry {column} of segment {index} is {str(value)[:24]}"] = field(
                        (*SCHEDULE, index, column), value
                    )
    return changes


def _quantities(system: str, record: Record) -> dict[str, Change]:
    """Base quantities in the unsafe direction, derived ones that do not follow, and missing ones."""
    theorem = THEOREMS[record["theorem"]]
    changes: dict[str, Change] = {}
    for name in record["quantities"]:
        if name in theorem.base:
            changes[f"{name} unsafe by 1e-6, the rest recomputed"] = unsafe(system, name, 1e-6)
            changes[f"{name} unsafe by half, the rest recomputed"] = unsafe(system, name, 0.5)
            changes[f"{name} unsafe by 1e-6, alone"] = unsafe(system, name, 1e-6, alone=True)
        elif name not in theorem.chosen(record["quantities"]) and float.fromhex(record["quantities"][name]) != 0.0:
            for factor in (1 + 1e-6, 1 - 1e-6):
                changes[f"derived {name} times {factor}"] = scaled(("quantities", name), factor)
        changes[f"no {name}"] = drop(("quantities", name))
    return changes


def _conditions(record: Record) -> dict[str, Change]:
    """Other sizes, and conditions that are missing, do not hold or are others."""
    changes: dict[str, Change] = {}
    for name, size in record["problem"].items():
        for value in others_of(size):
            changes[f"{name} of the problem is {value!r}"] = field(("problem", name), value)
    for index in range(len(record["conditions"])):
        changes[f"condition {index} left out"] = drop(("conditions", index))
        for key, value in {"holds": False, "relation": "==", "name": "another"}.items():
            changes[f"condition {index}: {key} {value!r}"] = field(("conditions", index, key), value)
        for side in ("left", "right"):
            changes[f"condition {index}: {side} other"] = more(("conditions", index, side), 2.0)
    return changes


def others_of(size: Any) -> list[Any]:
    """Other values of a size or of the kind of a problem, and what is no size."""
    if isinstance(size, bool):
        return [not size, int(size)]
    return [f"{size}s"] if isinstance(size, str) else [size + 1, float(size)]


def both(*changes: Change) -> Change:
    """Several changes together."""

    def change(run: StoredRun) -> None:
        for step in changes:
            step(run)

    return change


def more(path: tuple[Any, ...], factor: float) -> Change:
    """A number made larger, also where it is 0."""
    return lambda run: put(run.certificate, path, (float.fromhex(get(run.certificate, path)) * factor + 1e-6).hex())


def looser(index: int, column: int, factor: float) -> Change:
    """A larger step of a segment, and of the conclusion where it is the first one."""

    def change(run: StoredRun) -> None:
        segment = get(run.certificate, SCHEDULE)[index]
        step = max(float.fromhex(x) for x in segment[4:]) * factor + 1e-6
        segment[column] = step.hex()
        if index == 0:
            run.certificate["conclusion"]["step_size"] = step.hex()

    return change


def unsafe(system: str, name: str, part: float, alone: bool = False) -> Change:
    """A base quantity moved in the direction that promises more, everything else recomputed by the theorem or as it was."""
    sign = 1.0 if SYSTEMS[system].directions[name] == "lower" else -1.0

    def change(run: StoredRun) -> None:
        value = float.fromhex(run.certificate["quantities"][name])
        moved = {name: value + sign * part * max(abs(value), 1e-3)}
        if not alone:
            with suppress(ValueError, ZeroDivisionError):  # where the theorem has no schedule
                run.certificates["certificate.json"] = reevaluated(run.certificate, moved)
        run.certificate["quantities"][name] = moved[name].hex()

    return change


# -- arrays ------------------------------------------------------------------------------------------------------------


def one_ulp(array: Array) -> Array:
    """The last entry moved to the next float or number."""
    moved = array.copy()
    last = moved.reshape(-1)[-1:]
    last[...] = np.nextafter(last, np.inf) if moved.dtype.kind == "f" else last + 1
    return moved


def with_entry(value: float) -> Callable[[Array], Array]:
    """The first entry replaced."""

    def change(array: Array) -> Array:
        moved = array.astype(np.float64)
        moved.reshape(-1)[0] = value
        return moved

    return change


MALFORMED: dict[str, Callable[[Array], Array]] = {
    "has a NaN": with_entry(math.nan),
    "has an infinity": with_entry(-math.inf),
    "has the largest float": with_entry(1.7e308),
    "has 1e60": with_entry(1e60),
    "is float32": lambda A: A.astype(np.float32),
    "is bytes": lambda A: np.frombuffer(A.tobytes(), dtype=np.uint8),
    "is int64": lambda A: np.frombuffer(A.tobytes(), dtype=np.int64).reshape(A.shape),
    "has another dimension": lambda A: A[..., None],
    "is flat, with an entry more": lambda A: np.append(A.reshape(-1), 1.0),
    "has another row": lambda A: np.concatenate([A, A[:1]]) if A.ndim else np.stack([A, A]),
    "lacks a column": lambda A: A[..., :-1] if A.ndim else np.zeros(0),
    "is empty": lambda A: np.zeros((0, *A.shape[1:])),
}


def arrays(system: str, run: StoredRun, other: StoredRun) -> Iterator[Tampering]:
    """Every array changed by an ulp without new hashes; malformed, missing or of another run, with and without them."""
    weights = set(run.weights)
    for path, stored in run.arrays.items():
        for name, array in stored.items():
            if path not in ("initial.safetensors", "problem.safetensors") and name not in weights:
                continue  # the trainer's state, which nothing is claimed of; iteration and owner are below
            where = f"{path}/{name}"
            if path in ("initial.safetensors", "problem.safetensors"):
                yield Tampering(f"{where} moved by an ulp", system, changed(path, name, one_ulp), seal=False)
                yield Tampering(
                    f"{where} moved by an ulp, checkpoints sealed",
                    system,
                    owned(changed(path, name, one_ulp)),
                    seal=False,
                )
            variants = {
                what: changed(path, name, change) for what, change in MALFORMED.items() if array.dtype == np.float64
            }
            variants["missing"] = lambda run, p=path, n=name: run.arrays[p].pop(n)
            variants["under another name"] = lambda run, p=path, n=name: put(
                run.arrays[p], (f"{n}_",), run.arrays[p].pop(n)
            )
            for number, (what, change) in enumerate(variants.items()):
                yield Tampering(f"{where} {what}", system, change)
                if number % 3 == 0:
                    yield Tampering(f"{where} {what}, hashes as they were", system, change, seal=False)
        if path in ("initial.safetensors", "problem.safetensors"):
            yield Tampering(
                f"{path} with another array", system, lambda run, p=path: put(run.arrays, (p, "Z"), np.ones(3))
            )
        replaced = lambda run, p=path: put(run.arrays, (p,), dict(other.arrays[p]))  # noqa: E731
        yield Tampering(f"{path} of another run, hashes as they were", system, replaced, seal=False)
    for path in stored_weights(run):
        for value in (
            np.array(-1),
            np.array(5.0),
            np.array([5]),
            np.array(True),
            np.array(5, np.int32),
            np.array(2**63 - 1),
        ):
            yield Tampering(
                f"{path} of iteration {value!r}",
                system,
                lambda run, p=path, v=value: put(run.arrays, (p, "iteration"), v),
            )
        for key in ("iteration", "certificate"):
            yield Tampering(
                f"{path} without {key}", system, lambda run, p=path, k=key: run.arrays[p].pop(k), seal=False
            )
        for what, change in {
            "of zeros": np.zeros_like,
            "cut": lambda a: a[:16],
            "of int64": lambda a: a.astype(np.int64),
            "moved by one": one_ulp,
        }.items():
            yield Tampering(f"{path} with an owner {what}", system, changed(path, "certificate", change), seal=False)
        if float.fromhex(run.certificate["conclusion"]["schedule"][0][3]) > 0.0:  # the bound is lower by then
            yield Tampering(
                f"{path} with the weights of the start",
                system,
                lambda run, p=path: put(run.arrays, (p,), {**run.arrays[p], **run.weights}),
            )
        yield Tampering(
            f"{path} of an iteration more", system, changed(path, "iteration", lambda t: np.array(int(t) + 10**6))
        )


def changed(path: str, name: str, change: Callable[[Array], Array]) -> Change:
    """One array changed."""
    return lambda run: put(run.arrays, (path, name), change(run.arrays[path][name]))


# -- files -------------------------------------------------------------------------------------------------------------


def files(system: str, run: StoredRun, other: StoredRun) -> Iterator[Tampering]:
    """Every file cut, extended, doubled, linked, replaced by what is no file, or by another file of the run."""
    names = [*run.certificates, *run.arrays]
    rewritten: dict[str, Callable[[bytes], bytes]] = {
        "with trailing garbage": lambda content: content + b"garbage",
        "with a trailing zero byte": lambda content: content + b"\0",
        "cut in half": lambda content: content[: len(content) // 2],
        "without its end": lambda content: content[:-4],
        "twice": lambda content: content * 2,
        "empty": lambda content: b"",
        "with a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    }
    special: dict[str, Callable[[Path], None]] = {
        "symlinked": _link,
        "a broken symbolic link": _broken_link,
        "a folder": _folder,
        "a named pipe": _pipe,
    }
    for name in names:
        for what, rewrite in rewritten.items():
            yield Tampering(
                f"{name} {what}",
                system,
                after=lambda folder, n=name, r=rewrite: (folder / n).write_bytes(r((folder / n).read_bytes())) and None,
            )
        for what, replace in special.items():
            yield Tampering(f"{name} {what}", system, after=lambda folder, n=name, r=replace: r(folder / n))
        for source in names:
            if source != name and not {source, name} <= set(stored_weights(run)):  # an earlier iterate may be the last
                yield Tampering(
                    f"{name} is {source}", system, after=lambda folder, n=name, s=source: _copy(folder / s, folder / n)
                )
    for name in ("certificate.json", "problem.safetensors", "initial.safetensors"):
        yield Tampering(f"{name} removed", system, after=lambda folder, n=name: (folder / n).unlink())
    text = encoded(run.certificate, 1).decode()
    for key in sorted({path[-1] for path in places(run.certificate) if isinstance(path[-1], str)}):
        doubled = text.replace(f'"{key}":', f'"{key}": null, "{key}":', 1)
        yield Tampering(f"key {key} twice", system, after=lambda folder, t=doubled: _write(folder, t))
        escaped = text.replace(f'"{key}":', f'"\\u{ord(key[0]):04x}{key[1:]}": null, "{key}":', 1)
        yield Tampering(f"key {key} twice, once escaped", system, after=lambda folder, t=escaped: _write(folder, t))
    for path, stored in run.arrays.items():
        for name in stored:
            yield Tampering(
                f"header of {path} with {name} twice",
                system,
                after=lambda folder, p=path, n=name: _double(folder / p, n),
            )
    deep = text.replace('"suggestion": ""', '"suggestion": ' + "[" * 100_000 + "]" * 100_000)
    yield Tampering("nested deeply", system, after=lambda folder: _write(folder, deep))
    yield Tampering("as an array", system, after=lambda folder: _write(folder, f"[{text}]"))


def _link(file: Path) -> None:
    target = file.with_name("elsewhere")
    file.rename(target)
    file.symlink_to(target)


def _broken_link(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.with_name("nowhere"))


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _copy(source: Path, file: Path) -> None:
    shutil.copyfile(source, file)


def _write(folder: Path, text: str) -> None:
    (folder / "certificate.json").write_text(text)


def _double(file: Path, name: str) -> None:
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header: Record = json.loads(content[8 : 8 + length])
    text = content[8 : 8 + length].decode().rstrip()[:-1] + f", {json.dumps(name)}: {json.dumps(header[name])}}}"
    file.write_bytes(len(text).to_bytes(8, "little") + text.encode() + content[8 + length :])


KINDS: dict[str, Callable[[str, StoredRun, StoredRun], Iterator[Tampering]]] = {
    "fields": fields,
    "hashes": hashes,
    "claims": claims,
    "arrays": arrays,
    "files": files,
}
"""The corpus by kind of change."""


def thin(run: StoredRun) -> StoredRun:
    """The run with one checkpoint besides the final one."""
    kept = {path: a for path, a in run.arrays.items() if not path.startswith("checkpoints/") or path == run.checkpoint}
    return StoredRun(run.certificates, kept)


def copied(run: StoredRun) -> StoredRun:
    """A copy of certificates and arrays, in a tenth of the time of ``copy.deepcopy``."""
    return pickle.loads(pickle.dumps(run))
