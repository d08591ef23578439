"""Writes the report of a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from .._core.io import write_atomic
from .._core.registry import system_named
from .._core.run import Run
from . import plots
from .facts import Facts
from .markup import Markup
from .page import page

REPORT = "report.html"


@dataclass(frozen=True)
class Part:
    """What ``part(facts)`` of a system's own module (``System.report``) adds to a report.

    Attributes:
        section: what the page shows.
        plots: the bytes of PNG files by name, which are written beside the page; they may be none.

    Example:
        >>> from surefoot.extending import report as sr
        >>> def part(facts: sr.Facts) -> sr.Part:  # in the module System.report
        ...     return sr.Part(sr.section("My units", "All are used."), plots={})
        >>> "All are used." in part(facts=None).section  # of a run in a report facts.run, facts.audit, ...
        True
    """

    section: Markup
    plots: Mapping[str, bytes]


def write(directory: str | Path, data: str | Path | None = None) -> Path:
    """Write ``plots/gap.png``, ``plots/steps.png``, ``plots/conditions.png`` and ``report.html`` into a run directory;
    the plots of the system's own part too, where it has one. No ``steps.png`` of a method that has steps of its own.

    The page stands alone: drawings and style are inside, nothing is fetched, and it can be read without its script. It can be
    written of a run that goes on, was interrupted or diverged. Files are replaced whole.

    Args:
        directory: what ``descend(directory=...)`` or ``Run.save`` wrote.
        data: as for ``Run.load``; a run without its problem's arrays has no other theorems evaluated at its start, and no
            part of its system that needs them.

    Returns:
        The path of ``report.html``.

    Raises:
        RunDirectoryError: the directory is missing, incomplete, damaged, or of another version.
        OSError: a file could not be written; what stood there before is kept.
    """
    from .. import __version__

    path = Path(directory)
    facts = Facts.of(Run.load(path, data))
    drawn = {"gap": plots.gap(facts), "conditions": plots.conditions(facts)}
    if not facts.stepless:
        drawn["steps"] = plots.steps(facts)
    module = system_named(facts.run.certificate.system).report
    own: Part | None = None if module is None else import_module(module).part(facts)
    pictures = {name: png for name, (png, _) in drawn.items()} | ({} if own is None else dict(own.plots))
    drawings = {name: svg for name, (_, svg) in drawn.items()}
    return put(path, page(facts, drawings, __version__, "" if own is None else own.section), pictures)


def put(directory: Path, page: str, pictures: Mapping[str, bytes]) -> Path:
    """Write a page as ``report.html`` and its plots, PNG by name, under ``plots``; the path of the page."""
    (directory / "plots").mkdir(exist_ok=True)
    for name, png in pictures.items():
        write_atomic(directory / "plots" / f"{name}.png", png)
    write_atomic(directory / REPORT, page.encode())
    return directory / REPORT
