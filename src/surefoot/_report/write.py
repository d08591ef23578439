"""Writes the report of a run directory."""

from __future__ import annotations

from pathlib import Path

from .._core.io import write_atomic
from .._core.run import Run
from . import implicit, plots
from .facts import Facts
from .page import page

REPORT = "report.html"


def write(directory: str | Path, data: str | Path | None = None) -> Path:
    """Write ``plots/gap.png``, ``plots/steps.png``, ``plots/conditions.png`` and ``report.html`` into a run directory;
    for implicit networks ``plots/features.png`` too.

    The page stands alone: drawings and style are inside, nothing is fetched, no script runs. It can be written of a run
    that goes on, was interrupted or diverged. Files are replaced whole.

    Args:
        directory: what ``descend(directory=...)`` or ``Run.save`` wrote.
        data: as for ``Run.load``; a run without its problem's arrays has no other theorems evaluated at its start, and an
            implicit network's no section on its features.

    Returns:
        The path of ``report.html``.

    Raises:
        RunDirectoryError: the directory is missing, incomplete, damaged, or of another version.
        OSError: a file could not be written; what stood there before is kept.
    """
    from .. import __version__

    path = Path(directory)
    facts = Facts.of(Run.load(path, data))
    (path / "plots").mkdir(exist_ok=True)
    drawn = {"gap": plots.gap(facts), "steps": plots.steps(facts), "conditions": plots.conditions(facts)}
    found = implicit.features_of(facts)
    if found is not None:
        drawn["features"] = implicit.plot(found)
    for name, (png, _) in drawn.items():
        write_atomic(path / "plots" / f"{name}.png", png)
    drawings = {name: svg for name, (_, svg) in drawn.items()}
    own = "" if found is None else implicit.features(facts, found, drawings["features"])
    write_atomic(path / REPORT, page(facts, drawings, __version__, own).encode())
    return path / REPORT
