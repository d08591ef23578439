"""Mutated run directories: from the bytes of good runs, seeded; most are nonsense, some are one digit from the truth.

``Fuzzer(runs).input(seed)`` is a pure function of the runs and the seed. An input is *sealed* where the hashes that tie the
files to each other were computed anew, so that only the mathematics can tell.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from adding import Runs
from additions import JUDGED, REFUSED, applied
from claims import untrue
from mutations import BOMBS, OF_ARRAYS, OF_BYTES, OF_JSON, bomb, parted
from safetensors.numpy import load
from tamper import StoredRun, Tampering

from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

Files = dict[str, bytes]
CERTIFICATE, PROBLEM, INITIAL, FINAL = (
    "certificate.json",
    "problem.safetensors",
    "initial.safetensors",
    "final.safetensors",
)
LIMIT = 2.0
"""Seconds that a check of these small runs may take, whatever is in them."""


ADDED = 0.15
"""Share of the inputs that have something more than a run writes, instead of something changed."""


@dataclass(frozen=True)
class Input:
    """Files of a run that take the place of the good ones (``None``: removed), and how they came about."""

    run: str
    files: Mapping[str, bytes | None]
    how: str
    sealed: bool


def files_of(directory: Path) -> Files:
    """What the checker reads, with at most one checkpoint besides the final one."""
    checkpoints = sorted((directory / "checkpoints").glob("*.safetensors"))
    paths = [directory / name for name in (CERTIFICATE, PROBLEM, INITIAL, FINAL)] + checkpoints[-2:-1]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths if path.exists()}


def stored_run(files: Files) -> StoredRun:
    """The run that the files are."""
    certificates = {path: json.loads(content) for path, content in files.items() if path.endswith(".json")}
    # sorted, as the package returns arrays in any order
    arrays = {path: dict(sorted(load(text).items())) for path, text in files.items() if path.endswith(".safetensors")}
    return StoredRun(certificates, arrays)


def digests(content: bytes) -> dict[str, str]:
    """The sha256 of each float or integer array, as certificates state it; ``ValueError`` for what is no such file."""
    header, data = parted(content)
    kinds = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
    hashes: dict[str, str] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            described = f"{kinds[entry['dtype']]}{tuple(entry['shape'])}".encode("ascii")
            hashes[name] = hashlib.sha256(described + data[begin:end]).hexdigest()
    return hashes


def sealed(files: Files, before: Files) -> Files:
    """The files with the hashes that follow from their contents: of the arrays in the certificate, and of the certificate in
    the stored weights. What cannot be read is left as it is."""
    files = dict(files)
    certificate = files.get(CERTIFICATE, b"")
    for path, kind in ((PROBLEM, b"problem/"), (INITIAL, b"initial/")):
        if path in files and files[path] != before[path]:
            try:
                old, new = digests(before[path]), digests(files[path])
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
            for name in old.keys() & new.keys():
                line = b'"' + kind + name.encode() + b'": "'
                certificate = certificate.replace(line + old[name].encode(), line + new[name].encode())
    files[CERTIFICATE] = certificate
    owner, new_owner = (hashlib.sha256(text).digest() for text in (before[CERTIFICATE], certificate))
    for path, content in files.items():
        if path not in (CERTIFICATE, PROBLEM, INITIAL):
            files[path] = content.replace(owner, new_owner)
    return files


@dataclass(frozen=True)
class Fuzzer:
    """Mutations of the runs; the donors of a run are the others and ``donors``."""

    runs: Mapping[str, Files]
    donors: tuple[Files, ...] = ()

    @cached_property
    def _stored(self) -> dict[str, StoredRun]:
        return {name: stored_run(files) for name, files in self.runs.items()}

    @cached_property
    def _additions(self) -> dict[str, list[Tampering]]:
        """What each run may be given besides: the additions of content of the corpus."""
        additions: dict[str, list[Tampering]] = {}
        for name, run in self._stored.items():
            runs = Runs(run, run, self._stored)
            cases = (case for family in (*REFUSED.values(), *JUDGED.values()) for case in family(name, runs))
            additions[name] = [case for case in cases if case.after is None]
        return additions

    def input(self, seed: int | str) -> Input:
        """The input of this seed; it differs from the good run in some file."""
        random = Random(seed)
        while True:
            made = self._draw(random)
            if made.files:
                return made

    def _draw(self, random: Random) -> Input:
        name = random.choice(list(self.runs))
        good = self.runs[name]
        if random.random() < ADDED:
            return self._added(random, name)
        others = (*self.donors, *self.runs.values())
        files, hows = dict(good), []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            path = random.choice((CERTIFICATE, *good)) if random.random() < 0.5 else CERTIFICATE
            other = random.choice(others)
            donor = other.get(path, other[CERTIFICATE])
            if random.random() < 0.02:
                how = self._file(random, files, path, other)
            else:
                suited = OF_JSON if path == CERTIFICATE else OF_ARRAYS
                mutation = random.choice(suited if random.random() < 0.8 else OF_BYTES)
                if path == CERTIFICATE and random.random() < BOMBS:
                    mutation = bomb
                files[path] = mutation(random, files.get(path, good[path]), donor)
                how = f"{mutation.__name__} {path}"
            hows.append(how)
        tied = random.random() < 0.7
        if tied:
            files = sealed(files, good)
        changed: dict[str, bytes | None] = {
            path: content for path, content in files.items() if content != good.get(path)
        }
        changed |= dict.fromkeys(good.keys() - files.keys())
        return Input(name, changed, "; ".join(hows), tied)

    def _added(self, random: Random, name: str) -> Input:
        """Several additions together, which may hide each other."""
        cases = random.choices(self._additions[name], k=random.choice((1, 2, 2, 3)))
        return Input(name, applied(cases, self._stored[name]), "; ".join(case.name for case in cases), True)

    def _file(self, random: Random, files: Files, path: str, other: Files) -> str:
        """A file missing, in the place of another, or added under another name."""
        choice = random.randrange(3)
        if choice == 0:
            files.pop(path, None)
            return f"no {path}"
        if choice == 1:
            source = random.choice(list(other))
            files[path] = other[source]
            return f"{source} for {path}"
        added = random.choice(
            (
                *("certificate-000000001.json", "certificate-x.json", "checkpoints/000000000.safetensors"),
                *("checkpoints/000000003.safetensors", "checkpoints/x.safetensors", "certificate_.json"),
                "problem.json",
            )
        )
        files[added] = files.get(CERTIFICATE if added.endswith("json") else random.choice((INITIAL, FINAL)), b"")
        return f"{added} added"


@dataclass(frozen=True)
class Verdict:
    """What the checker said of one input; ``violation`` is empty where that is as it should be."""

    outcome: str
    seconds: float
    violation: str = ""


class Harness:
    """The directories of good runs; each input is written over one, checked, and taken back."""

    def __init__(self, directory: Path, runs: Mapping[str, Files]) -> None:
        self._directory, self._runs = directory, runs
        self._records = {name: json.loads(files[CERTIFICATE]) for name, files in runs.items()}
        for name, files in runs.items():
            (directory / name / "checkpoints").mkdir(parents=True)
            for path, content in files.items():
                (directory / name / path).write_bytes(content)

    def check(self, made: Input) -> Verdict:
        """The verdict on one input: violations are an exception (and a warning, where those are errors), an accepted untruth, and
        more than ``LIMIT`` seconds of the processor."""
        run, good = self._directory / made.run, self._runs[made.run]
        for path, content in made.files.items():
            _put(f"{run}/{path}", content)
        start, violation = time.process_time(), ""
        try:
            outcome = check(run).outcome
            seconds = time.process_time() - start
            if outcome is Outcome.ACCEPT:
                violation = untrue(run, self._records[made.run]) or ""
        except FileNotFoundError as error:
            outcome, seconds = "no verdict", time.process_time() - start
            violation = "" if "problem.json" in made.files else repr(error)  # it says that the data is elsewhere
        except Exception as error:
            outcome, seconds, violation = "exception", time.process_time() - start, repr(error)
        finally:
            for path in made.files:
                _put(f"{run}/{path}", good.get(path))
        if seconds > LIMIT:
            violation = violation or f"took {seconds:.1f} s"
        return Verdict(str(outcome), seconds, violation)


def _put(path: str, content: bytes | None) -> None:
    """Write a file, or remove it."""
    if content is None:
        os.unlink(path)
        return
    with open(path, "wb") as file:
        file.write(content)
