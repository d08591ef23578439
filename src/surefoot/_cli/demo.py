"""What ``surefoot demo`` does: a tour of the systems, each from its conditions to the independent check, on bundled data."""

from __future__ import annotations

import itertools
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .._core.io import RunDirectoryError, refuse_used, unused
from .._core.registry import SYSTEMS
from .._core.validate import unknown
from .._report.comparison import INDEX, Introduction, Note, write_comparison
from .errors import Exit
from .inspection import Demo
from .screen import Screen, print_json
from .tour import NOTHING, Stop, Visit

DEFAULT = "surefoot-demo"
TITLE = "surefoot: a tour of the systems"
ABOUT = (
    "Gradient descent with a certificate, on data that the package brings. At each stop it is said before anything runs what a "
    "theorem guarantees; then it runs, and what happened stands beside it. The titles lead to the reports. None means that "
    "there is nothing to audit or to check."
)


@dataclass(frozen=True)
class Seen:
    """A stop with what came out, in how many seconds."""

    stop: Stop
    visit: Visit
    seconds: float

    def record(self, directory: Path) -> dict[str, Any]:
        """Plain values."""
        visit = self.visit
        return {
            "name": self.stop.name,
            "directory": str(directory / self.stop.name),
            "guaranteed": visit.guaranteed,
            "happened": visit.happened,
            "command": visit.command,
            "audit": visit.audit,
            "check": visit.check,
            "passed": visit.passed,
            "seconds": self.seconds,
            **visit.record,
        }

    @property
    def lines(self) -> dict[str, str]:
        """What was guaranteed and what came out, by name, for screen and page."""
        visit = self.visit
        return {
            "guaranteed": visit.guaranteed,
            "happened": visit.happened,
            "audit, check": f"{visit.audit}, {visit.check}",
        }

    @property
    def note(self) -> Note:
        """What the page says of it."""
        lines = {name.capitalize(): said for name, said in self.lines.items()}
        return Note(f"{self.stop.name}: {self.stop.title}", self.stop.why, lines, self.visit.command)


def stops() -> list[Stop]:
    """The tour: what the systems offer, in their order, but first what is to be first."""
    offered = [stop for system in SYSTEMS if system.tour is not None for stop in import_module(system.tour).STOPS]
    return sorted(offered, key=lambda stop: not stop.first)


def run_demo(options: Demo) -> int:
    """``surefoot demo``."""
    chosen = _chosen(options.stops)
    screen = Screen(silent=options.json)
    directory = directory_for(options.out)
    if options.out is None and directory.name != DEFAULT:
        screen.say(f"{DEFAULT} is there already, so this goes to {directory}.")
    begun, seen, code = time.monotonic(), [], Exit.YES
    screen.say("Gradient descent with a certificate, on data that the package brings.", style="bold")
    if not options.stops:
        screen.say("All stops together take one to two minutes.")
    for place, stop in enumerate(chosen, 1):
        try:
            seen.append(_seen(screen, stop, f"{place}/{len(chosen)}", directory, whole=place == 1))
        except (KeyboardInterrupt, SystemExit) as stopped:
            code = Exit.CTRL_C if isinstance(stopped, KeyboardInterrupt) else Exit(int(stopped.code or 0))
            print(f"surefoot: interrupted at stop {place} of {len(chosen)}, {stop.name}", file=sys.stderr)
            break
    if seen:
        places = [directory / it.stop.name for it in seen]
        known = {place: it.visit.check for place, it in zip(places, seen, strict=True) if it.visit.check != NOTHING}
        notes = {place: it.note for place, it in zip(places, seen, strict=True)}
        page = write_comparison(places, directory / INDEX, known, Introduction(TITLE, ABOUT, "The stops", notes))
        _conclude(screen, seen, directory, page, time.monotonic() - begun)
    passed = code is Exit.YES and all(it.visit.passed for it in seen)
    if options.json:
        print_json({"directory": str(directory), "passed": passed, "stops": [it.record(directory) for it in seen]})
    return code or (Exit.YES if passed else Exit.NO)


def _chosen(names: Sequence[str]) -> list[Stop]:
    """The stops of these names; all where there are none."""
    known = {stop.name: stop for stop in stops()}
    for name in names:
        if name not in known:
            raise unknown("stop", name, list(known))
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


def directory_for(given: str | None) -> Path:
    """A directory that is new or empty, made if need be: the given one, or the first free surefoot-demo, surefoot-demo-2, ...

    Raises:
        RunDirectoryError: it is in use, or cannot be written.
    """
    if given is None:
        names = (DEFAULT if number == 1 else f"{DEFAULT}-{number}" for number in itertools.count(1))
        directory = next(Path(name) for name in names if unused(Path(name)))
    else:
        directory = Path(given)
        refuse_used(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / INDEX).touch()
        (directory / INDEX).unlink()
    except OSError as error:
        raise RunDirectoryError(
            f"{directory} cannot be written ({error.strerror}); choose another directory with --out"
        ) from error
    return directory


def _seen(screen: Screen, stop: Stop, where: str, directory: Path, whole: bool) -> Seen:
    """Go to a stop; say what it is before, and what came out after."""
    begun = time.monotonic()
    screen.heading(stop.title, f"{stop.name}, {where}")
    screen.say(f"  {stop.why}")
    visit = stop.visit(directory / stop.name, screen if whole else Screen(silent=True))
    seen = Seen(stop, visit, time.monotonic() - begun)
    screen.pairs(seen.lines)
    screen.command(visit.command)
    return seen


def _conclude(screen: Screen, seen: Sequence[Seen], directory: Path, page: Path, seconds: float) -> None:
    """The table of all, and what to do next."""
    screen.heading("Summary", f"everything is in {directory}; this took {seconds:.0f} s")
    rows = [
        (it.stop.name, it.visit.guaranteed, it.visit.happened, it.visit.audit, it.visit.check, f"{it.seconds:.1f}")
        for it in seen
    ]
    screen.table(("stop", "guaranteed", "happened", "audit", "check", "seconds"), rows, numeric=(5,))
    if any(NOTHING in (it.visit.audit, it.visit.check) for it in seen):
        screen.say(f"  {NOTHING}: under audit no recorded run to audit, under check nothing to check")
    following: dict[str, str] = {}
    if seen[0].stop.first:
        first = shlex.quote(str(directory / seen[0].stop.name))
        following[f"surefoot check {first}"] = "the independent check of the first, line by line"
        following[f"surefoot train {seen[0].stop.name} --data table.csv --out DIR"] = "the first on your own data"
    following["surefoot list"] = "theorems, step rules, data sets, experiments"
    screen.following(f"open {shlex.quote(str(page))}", following)
