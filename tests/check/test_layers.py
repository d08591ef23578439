"""Directories of layers: what is true is accepted at both levels, and no changed directory is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import layered
import numpy as np
import pytest
from layered import Files
from named import named

from surefoot_check.checker import check
from surefoot_check.step_sizes.layers import files as reader
from surefoot_check.step_sizes.layers.sectors import admissible, angle
from surefoot_check.verdict import Outcome, lines

Record = dict[str, Any]
Change = Callable[[Files, Record], object]


@pytest.fixture(scope="module", params=layered.BATCHES)
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of each kind of problem."""
    directory = tmp_path_factory.mktemp("layers") / request.param
    layered.trained(request.param, directory)
    return directory


@pytest.mark.parametrize("level", ["fast", "exact"])
def test_a_directory_is_accepted(good: Path, level: str) -> None:
    report = check(good, level)
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report, verbose=True))
    assert {line.claim for line in report.lines} == {"L1", "L2"}


def _scaled(name: str, factor: float) -> Change:
    """A published number times a factor: of the conclusion, or else of the second layer."""

    def change(files: Files, record: Record) -> None:
        target = record["conclusion"] if name in record["conclusion"] else record["layers"][1]
        target[name] = (float.fromhex(target[name]) * factor).hex()

    return change


def _array(file: str, name: str, change: Callable[[np.ndarray], object]) -> Change:
    return lambda files, record: change(files[file][name])


def _set(index: Any, value: float) -> Callable[[np.ndarray], object]:
    return lambda array: array.__setitem__(index, value)


def _other_sector(array: np.ndarray) -> None:
    array[1] = (array[1] + 2) % 4


UNTRUE: dict[str, Change] = {
    "objective": _scaled("objective", 0.999),
    "value": _scaled("value", 0.999),
    "lower bound": _scaled("lower", 1.001),
    "gap": _scaled("gap", 0.5),
    "first objective": _scaled("start", 0.999),
    "last objective": _scaled("final", 0.999),
    "best constant": _scaled("constant", 1.001),
    "beta below the smoothness": _array("layers", "beta", lambda beta: np.multiply(beta, 0.99, out=beta)),
    "range beyond two": lambda files, record: record.update(range=[(0.0).hex(), (2.5).hex()]),
    "a negative weight": _array("layers", "weights", lambda w: w[0, :, :2].__iadd__([2.0, -2.0])),
    "weights that do not sum to one": _array("layers", "weights", lambda w: np.multiply(w, 1.0 + 1e-12, out=w)),
    "another weight": _array("layers", "weights", lambda w: w.__setitem__(1, np.roll(w[1], 1, axis=1))),
    "an iterate moved": _array("iterates", "x", lambda x: x[2].__iadd__(1e-10)),
    "another start": _array("iterates", "x", lambda x: x[0].__iadd__(0.1)),
    "other sectors": _array("iterates", "sectors", lambda s: s[1].__setitem__(..., (s[1] + 1) % layered.SECTORS)),
    "boundaries moved": _array("layers", "boundaries", lambda b: np.multiply(b, 0.5, out=b)),
    "other data": _array("problem", "M", lambda M: np.multiply(M, 0.99, out=M)),
}


def _write_changed(good: Path, change: Change, directory: Path, seal: bool = True) -> Path:
    files, record = layered.read(good)
    change(files, record)
    if seal:
        record["sha256"] = layered.hashes(files)
    layered.write(directory, files, record)
    return directory


def test_untrue_directories_are_not_accepted(good: Path, tmp_path: Path) -> None:
    """The hashes were computed again, so that only the mathematics can tell."""
    rejected = 0
    for name, change in UNTRUE.items():
        with named(name):
            report = check(_write_changed(good, change, tmp_path / name))
            assert report.outcome is not Outcome.ACCEPT
            rejected += report.outcome is Outcome.REJECT
    assert rejected >= len(UNTRUE) - 3
    unchanged = check(_write_changed(good, lambda files, record: None, tmp_path / "as it was"))
    assert unchanged.outcome is Outcome.ACCEPT


def test_every_array_is_hashed_and_needed(good: Path, tmp_path: Path) -> None:
    files, _ = layered.read(good)
    for file, arrays in files.items():
        for name in arrays:

            def by_an_ulp(files: Files, record: Record, file: str = file, name: str = name) -> None:
                array = files[file][name].ravel()
                array[-1] = array[-1] + 1 if array.dtype == np.uint8 else np.nextafter(array[-1], np.inf)

            def gone(files: Files, record: Record, file: str = file, name: str = name) -> None:
                del files[file][name]

            for what, change in (("moved", by_an_ulp), ("missing", gone)):
                with named(f"{file}/{name} {what}"):
                    report = check(_write_changed(good, change, tmp_path / file / name / what, seal=what == "missing"))
                    assert report.outcome is Outcome.REJECT


MALFORMED: dict[str, Change] = {
    "more layers trained than there are": lambda files, record: record["sizes"].update(trained=4),
    "ahead of a number": lambda files, record: record.update(ahead=1),
    "a range of three": lambda files, record: record.update(range=record["range"] * 2),
    "a schedule beyond the range": _array("layers", "schedule", _set(0, 2.5)),
    "a grid that ends within the range": _array("layers", "grid", _set(-1, 1.9)),
    "a range wider than the grid": lambda files, record: record["range"].__setitem__(0, (-0.5).hex()),
    "a best step beyond the range": lambda files, record: record["conclusion"].update(step=(1e300).hex()),
    "another field": lambda files, record: record.update(more=1),
    "no layers": lambda files, record: record.update(layers=[]),
    "layers of numbers": lambda files, record: record.update(layers=[1, 2, 3]),
    "a plain float": lambda files, record: record["layers"][0].update(gap=0.5),
    "NaN": lambda files, record: record["layers"][0].update(gap="nan"),
    "another size": lambda files, record: record["sizes"].update(layers=4),
    "another kind": lambda files, record: record.update(kind="softmax"),
    "an array too many": lambda files, record: files["layers"].update(more=np.zeros(1)),
    "NaN in x": _array("iterates", "x", _set((1, 0, 0), np.nan)),
    "infinite weights": _array("layers", "weights", _set((0, 0, 0), np.inf)),
    "a sector that is not there": _array("iterates", "sectors", _set((0, 0, 0), 3)),
    "float32": lambda files, record: files["iterates"].update(x=files["iterates"]["x"].astype(np.float32)),
    "a grid that falls": lambda files, record: files["layers"].update(grid=files["layers"]["grid"][::-1].copy()),
    "beta of zero": _array("layers", "beta", _set(0, 0.0)),
    "one iterate too few": lambda files, record: files["iterates"].update(x=files["iterates"]["x"][:-1]),
}


def test_malformed_directories_are_rejected(good: Path, tmp_path: Path) -> None:
    for name, change in MALFORMED.items():
        with named(name):
            report = check(_write_changed(good, change, tmp_path / name))
            assert report.outcome is Outcome.REJECT
            assert report.lines[-1].claim == "files"


@pytest.mark.parametrize("limit", ["MOST_WORK", "MOST_AT_ONCE"])
def test_too_much_work_is_refused(limit: str, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, limit, 100)
    report = check(good)
    assert report.outcome is Outcome.REJECT
    assert "at most" in report.lines[-1].name


def test_a_key_that_stands_twice_is_refused(good: Path, tmp_path: Path) -> None:
    _write_changed(good, lambda files, record: None, tmp_path)
    file = tmp_path / "certificate.json"
    file.write_text(file.read_text().replace('"ahead": ', '"ahead": true, "ahead": ', 1))
    assert check(tmp_path).outcome is Outcome.REJECT


def test_mutated_bytes_are_refused_or_true(good: Path, tmp_path: Path) -> None:
    """Where a file of arrays was changed, a hash tells; a changed certificate is accepted only where it claims less."""
    random = Random(good.name)
    names = sorted(path.name for path in good.iterdir())
    original = {name: (good / name).read_bytes() for name in names}
    record = json.loads(original["certificate.json"])
    for path, content in original.items():
        (tmp_path / path).write_bytes(content)
    for seed in range(40):
        name = random.choice(names)
        content = bytearray(original[name])
        for _ in range(random.choice((1, 1, 4))):
            content[random.randrange(len(content))] = random.randrange(256)
        if random.random() < 0.1:
            content = content[: random.randrange(len(content))]
        (tmp_path / name).write_bytes(content)
        with named(f"{name} {seed}"):
            outcome = check(tmp_path).outcome
            if outcome is Outcome.ACCEPT and content != original[name]:
                assert name == "certificate.json"
                changed = json.loads(content)
                assert changed["sha256"] == record["sha256"]
                assert changed["sizes"]["layers"] == record["sizes"]["layers"]
        (tmp_path / name).write_bytes(original[name])
    assert check(tmp_path).outcome is Outcome.ACCEPT


def test_angles_do_not_depend_on_signs_and_scale() -> None:
    x, v = np.array([1.0, -1.0, 3.0, 1.0, 0.0, 2.0, 0.0]), np.array([1.0, -1.0, -1.0, 0.0, 5.0, -0.0, 0.0])
    assert angle(x, v).tolist() == angle(-3.0 * x, -3.0 * v).tolist() == [0.5, 0.5, 1.75, 0.0, 1.0, 0.0, 0.0]


def test_a_pair_near_a_boundary_may_lie_on_both_sides() -> None:
    boundaries = np.array([0.5, 1.0, 1.5])
    x, v = np.array([1.0, 0.0, 1.0, -1.0, 3.0, 0.0]), np.array([1.0, 1.0, 1e-13, -1e-13, 1.0, 1e-13])
    found = [admissible(x, v, np.full(6, 1e-12), boundaries, np.full(6, k)) for k in range(4)]
    both = [{0, 1}, {1, 2}, {0, 3}, {0, 3}, {0}, {0, 1, 2, 3}]
    assert [{k for k in range(4) if found[k][i]} for i in range(6)] == both
