"""Changes to stored runs that the corpora of tampered runs of all systems share, and the check of a changed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tamper import SCHEDULE, Array, Change, StoredRun, get, put, reevaluated

from surefoot_check.checker import check
from surefoot_check.verdict import Report

GoodRun = Callable[[str], Path]


def once(factory: pytest.TempPathFactory, make: Callable[[str, Path], None]) -> GoodRun:
    """The directory of a run by its name, which ``make`` writes at the first call."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            path = factory.mktemp(name) / "run"
            make(name, path)
            made[name] = path
        return made[name]

    return run


def check_changed(good: Path, change: Change, directory: Path) -> Report:
    """The checker's report on a changed and sealed copy of ``good``."""
    run = StoredRun.read(good)
    change(run)
    run.seal()
    run.write(directory)
    return check(directory)


def field(path: tuple[Any, ...], value: Any) -> Change:
    """Set a field of the first certificate."""
    return lambda run: put(run.certificate, path, value)


def scaled(path: tuple[Any, ...], factor: float) -> Change:
    """Multiply a hexadecimal field of the first certificate by a factor."""
    return lambda run: put(run.certificate, path, (float.fromhex(get(run.certificate, path)) * factor).hex())


def reevaluate(choices: Mapping[str, float] | None = None, **base: float) -> Change:
    """Published base quantities and free choices multiplied by factors, everything else recomputed by the theorem."""

    def change(run: StoredRun) -> None:
        old = run.certificate["quantities"]
        multiplied = [
            {name: float.fromhex(old[name]) * factor for name, factor in factors.items()}
            for factors in (base, choices or {})
        ]
        run.certificates["certificate.json"] = reevaluated(run.certificate, *multiplied)

    return change


def faster(index: int = 0, add: float = 0.0, factor: float = 1.0) -> Change:
    """Another decrease of a segment, and the rate that goes with it."""

    def change(run: StoredRun) -> None:
        segment = get(run.certificate, SCHEDULE)[index]
        decrease = float.fromhex(segment[3]) * factor + add
        segment[3] = decrease.hex()
        if index == 0:
            run.certificate["conclusion"]["rate"] = (1.0 - decrease).hex()

    return change


def edit(path: str, name: str, change: Callable[[Array], Array]) -> Change:
    """Change one array; ``path`` may be "checkpoint": one in the middle."""

    def apply(run: StoredRun) -> None:
        arrays = run.arrays[run.checkpoint if path == "checkpoint" else path]
        arrays[name] = change(arrays[name])

    return apply


def everywhere(name: str, change: Callable[[Array], Array]) -> Change:
    """Change a weight in the initial file and all checkpoints alike."""

    def apply(run: StoredRun) -> None:
        for path, arrays in run.arrays.items():
            if path != "problem.safetensors":
                arrays[name] = change(arrays[name])

    return apply


def bumped(array: Array, by: float = 0.01) -> Array:
    """``by`` added to the first entry."""
    result = array.copy()
    result.flat[0] += by
    return result
