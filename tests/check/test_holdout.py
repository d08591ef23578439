"""The checker of holdout certificates: what is honest is accepted; every change, sealed or not, and hostile input is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tamper import safetensors

import surefoot as sf
from surefoot._holdout.bounds import evaluate
from surefoot.learned import Lasso, LeastSquares, Logistic, Problems, certify_holdout
from surefoot_check import Outcome, check
from surefoot_check.__main__ import main
from surefoot_check.arrays import FormatError, digest, read_safetensors
from surefoot_check.holdout.record import Record
from surefoot_check.holdout.statement import SAID, statement

ASKED: dict[str, Any] = {"coverage": 0.8, "confidence": 0.9, "iterations": 400, "progress": False}
Parts = tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]
"""The record and the arrays of each file."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 24 least-squares problems, one of them not solved, with solutions."""
    problems = LeastSquares.random(24, 6, 9, seed=1)
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 8))
    path = tmp_path_factory.mktemp("holdout") / "good"
    asked: dict[str, Any] = {**ASKED, "iterations": 110}
    certify_holdout(net, problems, gap=1e-3, relative_to="start", keep_solutions=True, **asked).save(path)
    return path


def read(path: Path) -> Parts:
    """What a directory holds."""
    files = ("counts", "problems", "solutions")
    arrays = {
        name: read_safetensors(path / f"{name}.safetensors")
        for name in files
        if (path / f"{name}.safetensors").exists()
    }
    return json.loads((path / "certificate.json").read_text()), arrays


def write(parts: Parts, path: Path, seal: bool = False) -> Path:
    """A directory of it; with ``seal`` hashes and statement are made anew, so that only the mathematics can tell."""
    record, arrays = parts
    if seal:
        record["arrays"] = {f"{file}/{name}": digest(a) for file, some in arrays.items() for name, a in some.items()}
        fields = Record.of(record)
        record["statement"] = statement(**{name: getattr(fields, name) for name in SAID})
    path.mkdir()
    (path / "certificate.json").write_text(json.dumps(record))
    for file, some in arrays.items():
        (path / f"{file}.safetensors").write_bytes(safetensors(some))
    return path


def test_the_good_one_is_accepted_at_both_levels(good: Path, tmp_path: Path) -> None:
    for level in ("fast", "exact"):
        report = check(good, level)
        assert report.outcome is Outcome.ACCEPT, [str(line) for line in report.lines]
    assert any("exchangeably" in note for note in report.notes)
    assert any("not that the solver has it" in note for note in report.notes)
    record, _ = read(good)
    assert record["failures"] == 1
    assert check(write(read(good), tmp_path / "copy", seal=True)).outcome is Outcome.ACCEPT
    assert main([str(good)]) == 0


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value that is no object or list, and every empty one."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, item in items:
        found = True
        yield from leaves(item, (*path, key))
    if not found:
        yield path, value


def changed(value: Any) -> list[Any]:
    """Other values of the same kind, and of others."""
    if value is None:
        return [1, "a" * 64]
    if isinstance(value, int):
        return [value + 1, value - 1, True, None, -(10**18)]
    if value.startswith("0x"):
        number = float.fromhex(value)
        return [
            (number * (1.0 + 1e-8)).hex(),
            (number * (1.0 - 1e-8)).hex(),
            (-number).hex(),
            "nan",
            "inf",
            number,
            None,
        ]
    other = ("0" if value[0] != "0" else "1") + value[1:]
    return [other, value + " ", "", None, 7]


def test_every_field_that_is_changed_is_rejected(good: Path, tmp_path: Path) -> None:
    original, arrays = read(good)
    number = 0
    for path, value in leaves(original):
        if path[0] == "curve" and path[1] > 2:
            continue  # the others are like the first
        for other in (x for x in changed(value) if x != value):
            record = json.loads(json.dumps(original))
            place = record
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = other
            hashed = path[0] == "arrays"
            kept = arrays if hashed else {"counts": arrays["counts"]}  # L2 takes the longest, and is looked at last
            report = check(write((record, kept), tmp_path / str(number)))
            rejected = [line.name for line in report.lines if line.outcome is Outcome.REJECT]
            assert any(hashed or "problems.safetensors" not in name for name in rejected), (path, other)
            number += 1
    assert number > 150


def test_every_field_is_needed_and_there_are_no_others(good: Path, tmp_path: Path) -> None:
    original, arrays = read(good)
    for name in original:
        record = {k: v for k, v in original.items() if k != name}
        assert check(write((record, arrays), tmp_path / name)).outcome is Outcome.REJECT
    assert check(write(({**original, "more": 1}, arrays), tmp_path / "more")).outcome is Outcome.REJECT


def later(record: dict[str, Any], by: int) -> None:
    record["iterations"] += by


def to(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        record[name] = value.hex()

    return change


def raised(place: int) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        point = record["curve"][3]
        point[place] = (float.fromhex(point[place]) + 1e-3).hex()

    return change


SEALED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "fewer iterations": lambda record: later(record, -1),
    "more iterations": lambda record: later(record, 1),
    "more coverage": to("coverage", 0.85),
    "less coverage": to("coverage", 0.7),
    "more confidence": to("confidence", 0.95),
    "less confidence": to("confidence", 0.5),
    "coverage at the limit": to("coverage_at_limit", 0.99),
    "order test": to("order_test", 1.0),
    "pointwise": raised(2),
    "simultaneous": raised(3),
    "a lower rank": lambda record: record.update(rank=record["rank"] - 1),
    "a higher rank": lambda record: record.update(rank=record["rank"] + 1),
    "no failures": lambda record: record.update(failures=0),
    "fails": lambda record: record.update(status="fails"),
    "a point less": lambda record: record["curve"].pop(),
    "another gap": lambda record: record["gap"].update(value=(1e-6).hex()),
    "a gap relative to the optimum": lambda record: record["gap"].update(relative_to="optimum"),
    "an absolute gap": lambda record: record["gap"].update(relative_to="nothing"),
    "another kind": lambda record: record["problems"].update(kind="lasso-batch"),
    "other rows": lambda record: record["problems"].update(rows=7),
}


@pytest.mark.parametrize("name", SEALED)
def test_numbers_that_do_not_follow_are_rejected_with_all_hashes_right(good: Path, tmp_path: Path, name: str) -> None:
    record, arrays = read(good)
    SEALED[name](record)
    if name == "an absolute gap":  # of 1e-3 of it, which is less than of the first gap in every problem here
        assert check(write((record, arrays), tmp_path / "c", seal=True)).outcome is not Outcome.ACCEPT
    else:
        assert check(write((record, arrays), tmp_path / "c", seal=True)).outcome is Outcome.REJECT


def test_counts_that_are_edited_are_rejected(good: Path, tmp_path: Path) -> None:
    record, arrays = read(good)
    counts = arrays["counts"]["counts"]
    largest = int(np.argmax(counts))
    for number, (index, value) in enumerate([(largest, 5), (0, int(counts[0]) + 1), (int(np.argmin(counts)), 3)]):
        for seal in (False, True):
            edited = counts.copy()
            edited[index] = value
            parts = json.loads(json.dumps(record)), {**arrays, "counts": {"counts": edited}}
            assert check(write(parts, tmp_path / f"{number}{seal}", seal)).outcome is Outcome.REJECT


def test_counts_made_up_with_all_that_follows_are_rejected_by_the_solutions(good: Path, tmp_path: Path) -> None:
    """L1 cannot tell; that a problem which has no solution is solved, L2 can."""
    record, arrays = read(good)
    counts = arrays["counts"]["counts"]
    counts[counts < 0] = 100
    for claims in (["L1"], ["L1", "L2"]):
        found = evaluate(counts, record["limit"], 0.8, 0.9)
        fields = replace(Record.of(record), **found, claims=tuple(claims)).to_dict()
        kept = arrays if "L2" in claims else {"counts": arrays["counts"]}
        report = check(write((fields, kept), tmp_path / str(len(claims)), seal=True))
        assert report.outcome is (Outcome.REJECT if "L2" in claims else Outcome.ACCEPT)
        assert any("no solutions are stored" in note for note in report.notes) == (claims == ["L1"])


def test_solutions_that_are_moved_are_rejected(good: Path, tmp_path: Path) -> None:
    record, arrays = read(good)
    solved = np.flatnonzero(arrays["counts"]["counts"] >= 0)
    for number, size in enumerate((0.3, 1e3, 1e30)):
        x = arrays["solutions"]["x"].copy()
        x[solved[number]] += size
        parts = record, {**arrays, "solutions": {"x": x}}
        report = check(write(parts, tmp_path / str(number), seal=True))
        assert report.outcome is Outcome.REJECT
        assert any(line.claim == "L2" and f"problem {solved[number]}" in line.name for line in report.lines)


def test_a_poor_witness_proves_nothing(good: Path, tmp_path: Path) -> None:
    record, arrays = read(good)
    problems = {**arrays["problems"], "optimum": np.zeros_like(arrays["problems"]["optimum"])}
    assert (
        check(write((record, {**arrays, "problems": problems}), tmp_path / "c", seal=True)).outcome
        is not Outcome.ACCEPT
    )


def put(file: str, name: str, value: np.ndarray | None) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        if value is None:
            del parts[1][file][name]
        else:
            parts[1][file][name] = value

    return change


def drop(file: str) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        del parts[1][file]

    return change


def claim(value: Any) -> Callable[[Parts], None]:
    return lambda parts: parts[0].update(claims=value)


HOSTILE: dict[str, Callable[[Parts], Any]] = {
    "no counts": drop("counts"),
    "no problems": drop("problems"),
    "no solutions": drop("solutions"),
    "counts that are floats": put("counts", "counts", np.ones(24)),
    "counts that are bools": put("counts", "counts", np.ones(24, bool)),
    "counts of 32 bits": put("counts", "counts", np.ones(24, np.int32)),
    "negative counts": put("counts", "counts", np.full(24, -2)),
    "counts beyond the limit": put("counts", "counts", np.full(24, 2**62)),
    "no counts at all": put("counts", "counts", np.zeros(0, np.int64)),
    "a table of counts": put("counts", "counts", np.ones((24, 1), np.int64)),
    "arrays beside the counts": put("counts", "more", np.ones(3)),
    "solutions that are no numbers": put("solutions", "x", np.full((24, 9), np.nan)),
    "solutions of another shape": put("solutions", "x", np.zeros((24, 8))),
    "solutions by another name": put("solutions", "y", np.zeros((24, 9))),
    "matrices that are no numbers": put("problems", "M", np.full((24, 6, 9), np.inf)),
    "matrices of another size": put("problems", "M", np.ones((24, 7, 9))),
    "no right sides": put("problems", "Y", None),
    "another array": put("problems", "lam", np.ones(24)),
    "only L2": claim(["L2"]),
    "L3": claim(["L1", "L2", "L3"]),
    "no claims": claim([]),
    "claims that are no list": claim("L1"),
    "solutions that are not claimed": claim(["L1"]),
    "a million problems": lambda parts: parts[0]["problems"].update(count=10**6),
    "more problems than are read": lambda parts: parts[0]["problems"].update(count=10**17),
    "problems that are true": lambda parts: parts[0]["problems"].update(count=True),
    "a long curve": lambda parts: parts[0].update(curve=parts[0]["curve"] * 100),
    "a curve of texts": lambda parts: parts[0].update(curve=["x"] * 5),
    "certain coverage": lambda parts: parts[0].update(coverage=(1.0).hex()),
    "certain confidence": lambda parts: parts[0].update(confidence=(1.0).hex()),
    "a name that moves the cursor": lambda parts: parts[0]["solver"].update(name="\x1b[2J"),
    "a long name": lambda parts: parts[0]["solver"].update(name="x" * 201),
    "a hash that is none": lambda parts: parts[0]["arrays"].update({"counts/counts": "0" * 63}),
    "a hash too many": lambda parts: parts[0]["arrays"].update({"more/x": "0" * 64}),
    "arrays that are a list": lambda parts: parts[0].update(arrays=[]),
    "gap that is a number": lambda parts: parts[0].update(gap=0.5),
    "a limit below the count": lambda parts: parts[0].update(limit=parts[0]["iterations"] - 1),
    "a gap below zero": lambda parts: parts[0]["gap"].update(value=(-1.0).hex()),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_rejected(good: Path, tmp_path: Path, name: str) -> None:
    parts = read(good)
    HOSTILE[name](parts)
    assert check(write(parts, tmp_path / "c")).outcome is Outcome.REJECT


UNFIT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a kind that is none": ({"kind": "all problems"}, {}, "kind must be one of"),
    "objects with sizes": ({"kind": "objects"}, {"relative_to": "user"}, "rows and columns"),
    "rows without columns": ({"columns": None}, {}, "rows and columns"),
    "counts of users, of a batch": ({}, {"relative_to": "user"}, "must be user of objects"),
    "an optimum of objects": ({"kind": "objects", "rows": None, "columns": None}, {}, "must be user of objects"),
    "solutions of objects": (
        {"kind": "objects", "rows": None, "columns": None},
        {"relative_to": "user"},
        "objects have none",
    ),
    "no gap": ({}, {"value": (0.0).hex()}, "value must be positive"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_fields_that_do_not_fit_each_other_are_refused(good: Path, name: str) -> None:
    record, _ = read(good)
    problems, gap, message = UNFIT[name]
    record["problems"].update(problems)
    record["gap"].update(gap)
    with pytest.raises(FormatError, match=message):
        Record.of(record)


def test_links_are_refused(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "c"
    shutil.copytree(good, path)
    (path / "counts.safetensors").unlink()
    (path / "counts.safetensors").symlink_to(good / "counts.safetensors")
    assert check(path).outcome is Outcome.REJECT


@pytest.mark.parametrize("coverage", [0.5, 1.0 - 2.0**-53])
@pytest.mark.parametrize("count", [5_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_counts_are_checked(coverage: float, count: int, tmp_path: Path) -> None:
    """And a coverage that so many problems cannot show is rejected."""
    counts = np.arange(count, dtype=np.int64) % 977
    record = replace(
        Record.of(_plain(evaluate(counts, 1000, 0.5, 0.9))), coverage=coverage, arrays={"counts/counts": digest(counts)}
    )
    report = check(write((record.to_dict(), {"counts": {"counts": counts}}), tmp_path / "c", seal=True))
    assert report.outcome is (Outcome.ACCEPT if coverage == 0.5 else Outcome.REJECT)


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """The file's form of what counts of any objects give."""
    rest = {"solver": "f", "solver_sha256": None, "kind": "objects", "rows": None, "columns": None, "gap": 0.1}
    made = Record(**found, **rest, relative_to="user", claims=("L1",), statement="-", arrays={})
    return json.loads(json.dumps(made.to_dict()))


def test_a_certificate_that_fails_claims_nothing_and_says_what_holds(tmp_path: Path) -> None:
    certificate = certify_holdout(lambda v: v if v < 20 else None, list(range(30)), gap=0.1, **ASKED)
    assert not certificate.holds
    certificate.save(tmp_path / "c")
    report = check(tmp_path / "c")
    assert report.outcome is Outcome.REJECT
    (reason,) = [line for line in report.lines if line.outcome is Outcome.REJECT]
    assert "status is fails" in reason.name
    assert reason.detail == certificate.statement


@pytest.mark.parametrize(
    "problems", [Lasso.random(12, 10, 16, sparsity=0.5, seed=2), Logistic.random(12, 10, 4, l2=0.1, seed=2)]
)
@pytest.mark.parametrize("relative_to", ["optimum", "start", None])
def test_solutions_of_penalised_problems(problems: Problems, relative_to: Any, tmp_path: Path) -> None:
    asked = {**ASKED, "coverage": 0.7}
    certify_holdout("FISTA", problems, gap=1e-2, relative_to=relative_to, keep_solutions=True, **asked).save(
        tmp_path / "c"
    )
    report = check(tmp_path / "c")
    assert report.outcome is Outcome.ACCEPT, [str(line) for line in report.lines]
    record, arrays = read(tmp_path / "c")
    record["gap"]["value"] = (1e-4).hex()
    assert check(write((record, arrays), tmp_path / "less", seal=True)).outcome is Outcome.REJECT
