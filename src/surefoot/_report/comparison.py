"""One page over several runs: a table with a link to each report, their gaps in one plot, and what was set differently."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from surefoot_check.checker import check
from surefoot_check.text import chance, counted, visible

from .._core.claims import PRACTICAL, Kind
from .._core.io import make_folder, write_atomic
from .._core.registry import system_named
from .canvas import BOUNDS, DASHES, FAINT, LATER, LOWEST, RUN, logarithmic, rendered
from .document import document, foot
from .entries import Entry, entries
from .markup import (
    Cell,
    Label,
    Markup,
    code,
    command,
    figure,
    folded,
    named,
    numeric,
    paragraph,
    section,
    table,
    text,
    verdict,
)
from .wording import count, number, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INDEX = "index.html"
TIME = 20.0
"""Seconds that the check of one run may take on the way to the page."""
COLOURS = (RUN, BOUNDS[0], BOUNDS[1], BOUNDS[2], BOUNDS[3], LATER)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Of the runs in a plot, in turn; as many of one as not of the other, so that 42 runs differ in one or both."""
POINTS = 300
"""Points of a drawn bound."""
FAR = 12.0
"""From this ratio of the longest to the shortest run on, iterations are on a logarithmic axis."""
EMPTY = "–"


@dataclass(frozen=True)
class Note:
    """What is said of one directory, before the table.

    Attributes:
        title: its heading.
        why: a sentence on its purpose.
        lines: what there is to say of it, by name; text or markup.
        command: what does the same again, for a terminal.
    """

    title: str
    why: str
    lines: Mapping[str, str]
    command: str


@dataclass(frozen=True)
class Introduction:
    """What a page begins with.

    Attributes:
        title: of the page.
        text: what one sees.
        heading: of the notes.
        notes: by directory; in their order.
    """

    title: str
    text: str
    heading: str
    notes: Mapping[Path, Note] = field(default_factory=dict)


def write_comparison(
    directories: Sequence[str | Path],
    page: str | Path,
    checks: Mapping[Path, str] | None = None,
    introduction: Introduction | None = None,
) -> Path:
    """Write one page over the runs in these directories and below them.

    Reports that are missing, or older than their runs, are written; links to them are relative. The page stands alone otherwise.

    Args:
        directories: of runs, or of directories that hold runs.
        page: the file to write; its directory is made.
        checks: outcomes of the independent check, by directory, where they are known; others are checked, each for at most 20
            seconds.
        introduction: the title and what comes before the table; otherwise the title counts the runs.

    Returns:
        The path of the page.

    Raises:
        RunDirectoryError: one of the directories is none, or holds nothing to compare; a run is damaged or of another version.
        OSError: a file could not be written; what stood there before is kept.
    """
    from .. import __version__

    path, found = Path(page), entries(directories)
    make_folder(path.parent)
    known = {directory.resolve(): outcome for directory, outcome in (checks or {}).items()}
    outcomes = [known.get(_asked(entry).resolve()) or _outcome(entry) for entry in found]
    parts = [
        *(_introduced(introduction, found, path.parent) if introduction is not None else ()),
        _overview(found, outcomes, path.parent),
        *_plots(found),
        _differences(found),
    ]
    title = f"Comparison of {counted(sum(entry.run is not None for entry in found), 'run')}"
    title = title if introduction is None else introduction.title
    said = Markup(f"The check was run when this page was written; {code('surefoot check DIR')} repeats it.")
    below = foot(__version__, said)
    write_atomic(path, document(title, parts, below).encode())
    return path


def _asked(entry: Entry) -> Path:
    """The directory whose check is known: that of the training, where the certificate is inside."""
    return entry.directory.parent if entry.directory.name == "certificate" else entry.directory


def _outcome(entry: Entry) -> str:
    """That of the independent check, within ``TIME``; empty where there is nothing to check."""
    if entry.certificate is None and entry.report() is None:
        return ""
    named = None if entry.certificate is None else system_named(entry.certificate.system).checker
    return check(entry.directory, seconds=TIME, systems=() if named is None else (named,)).outcome.value


def _introduced(introduction: Introduction, found: Sequence[Entry], base: Path) -> list[Markup]:
    """What one sees, and each note; its heading leads to the report, where there is one."""
    reports = {_asked(entry).resolve(): entry.report() for entry in found}
    parts = []
    for directory, note in introduction.notes.items():
        heading = _linked(text(note.title), reports.get(directory.resolve()), base)
        lines = [named(name, said) for name, said in note.lines.items()]
        parts += [Markup(f"<h3>{heading}</h3>"), paragraph(note.why), *lines, command(note.command)]
    return [paragraph(introduction.text), *([section(introduction.heading, *parts)] if parts else [])]


def _counted(found: Sequence[Entry]) -> str:
    """How many have a run, who has a certificate alone, and who has neither."""
    runs = [entry for entry in found if entry.run is not None]
    certified = sum(entry.run is not None and entry.run.certified for entry in runs)
    others = [entry for entry in found if entry.run is None]
    alone = [entry.name for entry in others if entry.certificate is not None or entry.report() is not None]
    neither = [entry.name for entry in others if entry.name not in alone]
    said = [f"{counted(len(runs), 'run')}, {certified} of them with a guarantee"] if runs else []
    said += [f"{counted(len(alone), 'certificate')} without a run ({', '.join(alone)})"] if alone else []
    said += [f"{len(neither)} with neither run nor certificate ({', '.join(neither)})"] if neither else []
    return f"{'; '.join(said)}."


def _overview(found: Sequence[Entry], outcomes: Sequence[str], base: Path) -> Markup:
    rows = [
        _row(place, entry, outcome, base) for place, (entry, outcome) in enumerate(zip(found, outcomes, strict=True), 1)
    ]
    note = (
        "Guaranteed and ran are iterations to the run's own target; the final gap is relative to the first. The check is "
        "independent of what wrote the run. The names lead to the reports."
    )
    head = ["run", "hypotheses", "#guaranteed", "#ran", "#final gap", "audit", "check"]
    return section("Runs", paragraph(_counted(found)), paragraph(note, kind="soft"), table(head, rows, "Runs"))


def _row(place: int, entry: Entry, outcome: str, base: Path) -> list[Cell | str]:
    run, certificate = entry.run, entry.certificate
    holds = Cell(EMPTY) if certificate is None else verdict(certificate.holds, no=certificate.status.value)
    measured = [numeric(EMPTY), numeric(EMPTY), numeric(EMPTY), Cell(EMPTY)]
    if run is not None:
        guaranteed = _guaranteed(entry)
        final = number(entry.gaps[-1], 3) if entry.gaps else EMPTY
        measured = [numeric(guaranteed), numeric(count(run.iterations)), numeric(final), _audit(entry)]
    checked = verdict(outcome == "accept", outcome, outcome) if outcome else Cell(EMPTY)
    return [_name(place, entry, base), holds, *measured, checked]


def _guaranteed(entry: Entry) -> str:
    """The number of iterations; of a certified run without one, what is guaranteed in its place."""
    assert entry.run is not None
    if entry.guaranteed < math.inf or not entry.run.certified:
        useless = "; of no practical use" if PRACTICAL < entry.guaranteed < math.inf else ""
        return count(entry.guaranteed) + _sure(entry) + useless
    kind = entry.run.in_force[0].certificate.claim.kind
    return "no number; the gap never rises" if kind is Kind.MONOTONE else "no number: the target is not reached"


def _sure(entry: Entry) -> str:
    """With which probability the number of iterations before it is guaranteed, where that is below 1."""
    probability = 1.0 if entry.run is None else entry.run.probability
    return f" with probability {chance(probability)}" if entry.guaranteed < math.inf and probability < 1.0 else ""


def _name(place: int, entry: Entry, base: Path) -> Cell:
    """Number and name, which is the link to the report where there is one; below them theorem or system, and what there is in
    place of a run."""
    name = _linked(text(entry.name), entry.report(), base)
    about = code(entry.certificate.theorem if entry.certificate is not None else entry.system)
    note = f"<br>{text(entry.note)}" if entry.note else ""
    return Label(Markup(f"<b>{place}</b>&nbsp; {name}<br><small>{about}{note}</small>"), "text")


def _linked(name: Markup, report: Path | None, base: Path) -> Markup:
    """A name as the link to a report, where there is one; relative to the page's directory."""
    if report is None:
        return name
    target = quote(Path(os.path.relpath(report.resolve(), base.resolve())).as_posix())
    return Markup(f'<a href="{text(target)}">{name}</a>')


def _audit(entry: Entry) -> Cell:
    """The verdict on the run; of one without a guarantee nothing is claimed."""
    assert entry.run is not None
    if not entry.run.certified:
        return Cell("not certified")
    audit = entry.run.audit()
    return verdict(audit.holds, no="violated" if audit.violations else "incomplete")


# -- the gaps in one plot --------------------------------------------------------------------------------------------


def _plots(found: Sequence[Entry]) -> list[Markup]:
    """Gaps of objectives on one set of axes; those that mean something else apart."""
    numbered = [(place, entry) for place, entry in enumerate(found, 1) if entry.gaps]
    kinds = sorted({entry.apart for _, entry in numbered})
    drawn = []
    for index, kind in enumerate(kinds):
        of_it = [(place, entry) for place, entry in numbered if entry.apart == kind]
        name = f"gaps-{index + 1}"
        said = _caption(of_it)
        _, svg = rendered(name, lambda of_it=of_it: _figure(of_it), "Relative gaps of the runs, and their bounds", said)
        drawn.append(figure(svg, name, said))
    if not drawn:
        return []
    note = "Gaps relative to the first: each run solid, and its guaranteed bound dashed in its colour, up to the run's target."
    return [section("Gaps", paragraph(note, kind="soft"), *drawn)]


def _caption(of_it: Sequence[tuple[int, Entry]]) -> str:
    ends = "; ".join(
        f"{place} {entry.name}: {number(entry.gaps[-1], 3)} after {count(len(entry.gaps) - 1)}"
        + (f", guaranteed by {count(entry.guaranteed)}{_sure(entry)}" if entry.guaranteed < math.inf else "")
        for place, entry in of_it
    )
    meanings = " or ".join(dict.fromkeys(entry.about for _, entry in of_it))
    return f"Gap: {meanings}. {ends}."


def _figure(of_it: Sequence[tuple[int, Entry]]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    drawn = Figure(figsize=(7.4, 4.4 + 0.2 * len(of_it)), layout="constrained")
    axes: Axes = drawn.add_subplot()
    lengths = [max(len(entry.gaps) - 1, 1) for _, entry in of_it]
    ends = [max(length, _end(entry)) for length, (_, entry) in zip(lengths, of_it, strict=True)]
    far = max(ends) > FAR * min(lengths)
    shift = 1 if far else 0
    lowest = min((gap for _, entry in of_it for gap in entry.gaps if gap > 0.0), default=1.0)
    for index, ((place, entry), end) in enumerate(zip(of_it, ends, strict=True)):
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        label = f"{place}  {visible(entry.name, 60)}"
        values = [gap if 0.0 < gap < math.inf else math.nan for gap in entry.gaps]
        taken = _times(len(values) - 1, far)
        axes.plot(
            [t + shift for t in range(len(values))], values, color=colour, linewidth=2.2, marker=marker, markersize=5,
            markevery=taken[:: max(1, len(taken) // 8)], label=label, zorder=3,
        )  # fmt: skip
        times = _times(end, far)
        bounds = [max(entry.bound(t), LOWEST) for t in times]
        line = {"color": colour, "linewidth": 1.2, "linestyle": DASHES[1], "gid": label}  # hidden with its run
        axes.plot([t + shift for t in times], bounds, **line)
    axes.set_title("Relative gap, and the guaranteed bound dashed")
    axes.set_ylabel("gap / first gap")
    axes.set_xlabel("iteration + 1" if far else "iteration")
    logarithmic(axes, [lowest, 1.0])
    if far:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.axhline(1.0, color=FAINT, linewidth=0.8)
    drawn.legend(loc="outside lower left", ncols=2)
    return drawn


def _end(entry: Entry) -> int:
    """Where the drawn bound ends: at the guaranteed iteration, if there is one that can be reached."""
    return int(entry.guaranteed) if entry.guaranteed < 1e9 else 1


def _times(end: int, far: bool) -> list[int]:
    """Iterations from 0 to ``end``, evenly on the axis."""
    places = [index / POINTS for index in range(POINTS + 1)]
    return sorted({round((end + 1) ** place) - 1 if far else round(end * place) for place in places})


# -- what was set differently ----------------------------------------------------------------------------------------


def _differences(found: Sequence[Entry]) -> Markup:
    """Settings that differ between the runs, for those that have them."""
    names = dict.fromkeys(name for entry in found for name in entry.settings)
    rows = []
    for name in names:
        values = [plain(entry.settings[name]) if name in entry.settings else EMPTY for entry in found]
        if len({*values} - {EMPTY}) > 1:
            rows.append([Label(code(name)), *(Cell(value, "text" if len(value) > 24 else "") for value in values)])
    if not rows:
        return Markup("")
    head = ["setting", *(f"{place} {entry.name}" for place, entry in enumerate(found, 1))]
    opened = f"{counted(len(rows), 'setting')} that differ"
    listed = folded(opened, table(head, rows, "Settings that differ"))
    return section(
        "Differences", paragraph("Settings that several of them have, and not all alike.", kind="soft"), listed
    )
