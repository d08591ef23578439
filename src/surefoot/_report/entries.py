"""What directories hold that is compared on one page: runs, certificates of no run, and trainings without a certificate."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from surefoot_check.run_files import CERTIFICATE

from .._core.certificate import Certificate
from .._core.io import RunDirectoryError, read_json
from .._core.registry import SYSTEMS, system_named
from .._core.run import RUN_FORMAT, Run, read_certificate
from .formats import writer_of
from .wording import flat
from .write import REPORT, write

CONFIG, SETTINGS = "config.json", "settings.json"
DEPTH = 4
"""So many levels of directories are searched."""


@dataclass(frozen=True)
class Entry:
    """One directory.

    Attributes:
        directory: where it is.
        name: what it is called on the page.
        run: its run, if it has one.
        certificate: that of the run, or the only thing that there is.
        note: what there is in place of a run.
    """

    directory: Path
    name: str
    run: Run | None = None
    certificate: Certificate | None = None
    note: str = ""

    @property
    def system(self) -> str:
        """The name of its system; empty where it is of none."""
        if self.certificate is not None:
            return self.certificate.system
        return str(self.settings.get("system", ""))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting that is on record, nested ones with a dot in their names, but what is measured."""
        found: dict[str, Any] = {}
        if self.run is not None:
            found = {**self.run.config, "rule": self.run.rule, "engine": self.run.engine}
        elif (self.directory / SETTINGS).exists():
            content = read_json(self.directory / SETTINGS)
            found = content if isinstance(content, dict) else {}
        return dict(flat({name: value for name, value in found.items() if name not in MEASURED}))

    @property
    def guaranteed(self) -> float:
        """The iterations that are guaranteed to suffice for the run's target."""
        return math.inf if self.run is None else self.run.guaranteed_to(self.run.target)

    @property
    def gaps(self) -> list[float]:
        """The gap at every iterate, relative to the first; empty where there is none to compare."""
        gaps = [] if self.run is None else self.run.gaps
        return [gap / gaps[0] for gap in gaps] if len(gaps) > 1 and 0.0 < gaps[0] < math.inf else []

    @property
    def about(self) -> str:
        """What its gap is the name of."""
        if self.certificate is None:
            return ""
        return system_named(self.certificate.system).words.gap_of(self.certificate.problem.get("kind"))[0]

    @property
    def apart(self) -> str:
        """What its gap means, where that is no distance of an objective to its least value, with which it cannot be compared."""
        assert self.certificate is not None
        kind = str(self.certificate.problem.get("kind"))
        return self.about if kind in system_named(self.certificate.system).words.apart else ""

    def bound(self, iteration: int) -> float:
        """The guaranteed relative gap at an iteration: by the newest certificate of the run by then; NaN where there is none."""
        assert self.run is not None
        held = [phase for phase in self.run.in_force if phase.iteration <= iteration]
        return held[-1].bound(iteration) / self.run.gaps[0] if held else math.nan

    def report(self) -> Path | None:
        """Its report, which is written where there is none, or an older one than the run; ``None`` of what has none."""
        page, writer = self.directory / REPORT, write if self.run is not None else writer_of(self.directory)
        if writer is None:
            return None
        sources = [file for name in (CERTIFICATE, CONFIG, "trace.jsonl") if (file := self.directory / name).exists()]
        if not page.exists() or page.stat().st_mtime < max(file.stat().st_mtime for file in sources):
            return writer(self.directory)
        return page


MEASURED = {"evaluation", "format", "resolution", "reduced", "advice", "rule_certified"}
"""What stands among the settings of a run and is none."""


def entries(directories: Sequence[str | Path]) -> list[Entry]:
    """What is in these directories and below them, in the order of their names, which are relative to what all are in.

    Raises:
        RunDirectoryError: one of them is none, or has nothing to compare in it; a run is damaged or of another version.
    """
    if not directories:
        raise RunDirectoryError("no directory is given; pass directories of runs, or one that holds several")
    found: dict[Path, Path] = {}
    for given in map(Path, directories):
        if not given.is_dir():
            raise RunDirectoryError(f"{given} is not a directory; pass directories of runs, or one that holds several")
        inside = list(below(given))
        if not inside:
            raise RunDirectoryError(f"{given} holds no run, and none below it; pass directories of runs")
        for directory in inside:
            found.setdefault(directory.resolve(), directory)
    shared = os.path.commonpath([path.parent for path in found])
    return [_entry(directory, path.relative_to(shared).as_posix()) for path, directory in found.items()]


def several(directory: Path) -> bool:
    """Whether it holds runs, certificates or trainings below it, and is none itself."""
    return directory.is_dir() and next(below(directory), directory) != directory


def below(directory: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Every directory with a run, a certificate or a training, in the order of their names; nothing below one."""
    if _label(directory) == RUN_FORMAT or (directory / CERTIFICATE).is_file() or (directory / SETTINGS).is_file():
        yield directory
        return
    for inner in sorted(directory.iterdir()):
        if depth and inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
            yield from below(inner, depth - 1)


def _label(directory: Path) -> object:
    """The format of its config.json; ``None`` where there is none."""
    if not (directory / CONFIG).is_file():
        return None
    content = read_json(directory / CONFIG)
    return content.get("format") if isinstance(content, dict) else None


def _entry(directory: Path, name: str) -> Entry:
    if _label(directory) == RUN_FORMAT:
        run = Run.load(directory)
        return Entry(directory, name, run, run.certificate)
    if (directory / SETTINGS).is_file():
        inner = directory / "certificate"
        if (inner / CERTIFICATE).is_file():
            return Entry(inner, name, None, read_certificate(inner / CERTIFICATE), "a certificate; no run")
        content = read_json(directory / SETTINGS)
        system = content.get("system") if isinstance(content, Mapping) else None
        reasons = [s.no_trajectory for s in SYSTEMS if s.name == system]
        return Entry(directory, name, note=next(filter(None, reasons), "a training without a certificate"))
    if writer_of(directory) is not None:
        return Entry(directory, name, note="a certificate of its own kind: its report says what it is about")
    return Entry(directory, name, None, read_certificate(directory / CERTIFICATE), "a certificate; no run")
