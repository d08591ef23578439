"""The commands of no system, but for ``deblur`` and ``completion``, which load what they need when they run."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from .._core.late import late
from .errors import Exit
from .options import Flag, Json

if TYPE_CHECKING:
    from surefoot_experiments.result import Cell, Experiment

NUMBERS = "numbers.json"
"""What ``reproduce --out`` writes beside the plots."""


RunDirectory = Annotated[
    Positional[str],
    arg(
        metavar="DIR",
        help="Directory of a run or certificate, as --out of `surefoot train` and `surefoot certify holdout` names it.",
    ),
]
ProblemFile = Annotated[
    str | None,
    arg(
        metavar="FILE",
        help="Arrays of a problem of more than 256 MiB, which its run does not hold, as `surefoot train --keep-problem FILE` or "
        "Run.save_problem wrote them.",
        help_behavior_hint="(default: those in DIR)",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Start here: a tour of what there is, each part certified, run, audited, reported and checked on bundled data.

    It takes one to two minutes. With the names of stops it goes to these alone; the first is shown at length."""

    stops: Annotated[
        Positional[tuple[str, ...]],
        arg(
            name="stops",
            metavar="[STOP ...]",
            help="Names of stops, as the tour prints them.",
            help_behavior_hint="(default: all)",
        ),
    ] = ()
    out: Annotated[
        str | None, arg(metavar="DIR", help_behavior_hint="(default: surefoot-demo, or the next free surefoot-demo-N)")
    ] = None
    """Directory for the runs: new, or empty."""
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.demo", "run_demo")(self)


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check what a directory claims, independently and rigorously: the certificates and checkpoints of a run, a certificate of
    unseen problems (`certify holdout`), of trained layers (`train layers`), or of a learned inverse.

    Exit code: 0 accept, 1 reject, 3 undecided."""

    directory: RunDirectory
    level: Annotated[
        Literal["fast", "exact"],
        arg(
            help="fast trusts numpy's matrix products within their a-priori error bounds; exact trusts integers instead, "
            "and takes some twenty times as long."
        ),
    ] = "fast"
    replay: Flag = False
    """Also replay exact gradient descent of a linear network, rigorously, and compare the stored weights (claim L3)."""
    time_limit: Annotated[float | None, arg(metavar="SECONDS", help_behavior_hint="(default: no limit)")] = None
    """Seconds after which what is not decided is undecided."""
    system: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(
            metavar="MODULE",
            help="Also check runs of the SYSTEM of this module, whose code is then run; may be given again.",
            help_behavior_hint="",
        ),
    ] = ()
    data: ProblemFile = None
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return run_check(self)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write report.html and PNG plots into the directory of a run, of `certify holdout` or of `train layers`.

    Of several directories, or of one that holds several runs: one page that compares them, and every report that is missing."""

    directories: Annotated[
        Positional[tuple[str, ...]],
        arg(
            name="directories",
            metavar="DIR ...",
            help="Directories of runs or certificates, or of several of them.",
            help_behavior_hint="(one or more)",
        ),
    ]
    out: Annotated[
        str | None,
        arg(
            metavar="PAGE",
            help="Where the page goes that compares several.",
            help_behavior_hint="(default: DIR/index.html; comparison.html here for several directories)",
        ),
    ] = None
    data: ProblemFile = None

    def run(self, held: ExitStack) -> int:
        return run_report(self)


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Reproduce a figure or table of a paper: our numbers beside the paper's."""

    name: Annotated[Positional[str], arg(metavar="PAPER/FIGURE")]
    """Experiment; `surefoot list` names them."""
    quick: Flag = False
    """A quick version of it, which is the default."""
    full: Flag = False
    """The paper's sizes and repeats, which takes longer, instead of a quick version."""
    out: Annotated[str | None, arg(metavar="DIR", help_behavior_hint="(default: print only)")] = None
    """Directory for numbers and plots: new, empty, or of the same experiment, whose finished runs are then kept."""
    data: Annotated[
        str | None,
        arg(
            metavar="DIR",
            help="Directory with the files of the experiments that read some (docs/experiments.md).",
            help_behavior_hint="(default: bundled data)",
        ),
    ] = None
    weights: Annotated[
        str | None,
        arg(
            metavar="bundled|FILE",
            help="A trained network for an experiment that takes one: 'bundled' for the one that comes with the package, or "
            "net.safetensors of `surefoot train`.",
            help_behavior_hint="(default: trained briefly)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the random data and weights."""
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return run_reproduce(self)


@dataclass(frozen=True, kw_only=True)
class List:
    """List systems, theorems, step rules, data sets and experiments."""

    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.listing", "run_list")(self)


def run_check(options: Check) -> int:
    """``surefoot check``."""
    import json as as_json

    from surefoot_check.checker import check
    from surefoot_check.verdict import lines

    report = check(options.directory, options.level, options.data, options.replay, options.time_limit, options.system)
    # as surefoot-check prints it: this command is to start as fast
    print(as_json.dumps(report.to_dict(), indent=1) if options.json else "\n".join(lines(report)))
    return report.outcome.exit_code


def run_report(options: Report) -> int:
    """``surefoot report``."""
    from surefoot_check.text import visible

    from .._report.entries import several
    from .._report.formats import writer_of
    from .training import write_report

    if not options.directories:
        raise ValueError("there is no directory; name that of a run, or several")
    first = Path(options.directories[0])
    if len(options.directories) > 1 or several(first):
        return _compare(options)
    if options.out is not None:
        raise ValueError(f"--out is of the page that compares several runs, and {first} is one; leave it out")
    write = writer_of(first)
    if write is None:
        _refuse_without_trajectory(first)
        if (first / "config.json").is_file():  # on stderr: the files alone are for programs
            print(
                visible(f"writing the report of {first}: its page and plots, in a few seconds"),
                file=sys.stderr,
                flush=True,
            )
        path = write_report(first, options.data)
    elif options.data is not None:
        raise ValueError(f"{first} holds its arrays itself, if any; leave out --data")
    else:
        path = write(first)
    for file in (path, *sorted((path.parent / "plots").glob("*.png"))):
        print(visible(str(file)), flush=True)
    print(f"open {visible(shlex.quote(str(path)))}", file=sys.stderr)
    return Exit.YES


def _compare(options: Report) -> int:
    """Write the page over several runs."""
    from surefoot_check.text import visible

    from .._report.comparison import INDEX, write_comparison

    if options.data is not None:
        raise ValueError("--data has the arrays of one run; leave it out, or report on that run alone")
    alone = len(options.directories) == 1
    page = options.out or (Path(options.directories[0]) / INDEX if alone else "comparison.html")
    print(visible(str(write_comparison(options.directories, page))))
    return Exit.YES


def _refuse_without_trajectory(directory: Path) -> None:
    """Raise ``RunDirectoryError`` for directories of networks whose training has no trajectory that a theorem speaks of."""
    from .._core.io import RunDirectoryError, read_json
    from .._core.registry import SYSTEMS
    from .training import SETTINGS

    settings = directory / SETTINGS
    if (directory / "config.json").exists() or not settings.exists():
        return
    content = read_json(settings)
    name = content.get("system") if isinstance(content, dict) else None
    certificate = directory / "certificate"
    proof = f"; `surefoot check {certificate}` proves its certificate" if certificate.is_dir() else ""
    for system in SYSTEMS:
        if system.name == name and system.no_trajectory:
            raise RunDirectoryError(
                f"{directory} is of `surefoot train {name}`, whose training has no guaranteed trajectory to report: "
                f"{system.no_trajectory}{proof}"
            )


def run_reproduce(options: Reproduce) -> int:
    """``surefoot reproduce``."""
    import surefoot_experiments

    from .._core.io import write_json
    from .._core.validate import unknown
    from .screen import print_json

    if options.quick and options.full:
        raise ValueError("--quick and --full contradict each other; leave one of them out")
    known = list(surefoot_experiments.names())
    if options.name not in known:
        raise unknown("experiment", options.name, known)
    directory = None if options.out is None else Path(options.out)
    if directory is not None:
        _refuse_other(directory, options.name)
    experiment = surefoot_experiments.reproduce(
        options.name,
        full=options.full,
        directory=directory,
        progress=_say_on_terminal,
        seed=options.seed,
        data=options.data,
        weights=options.weights,
    )
    if directory is not None:
        write_json(directory / NUMBERS, experiment.to_dict())
    if options.json:
        print_json(experiment.to_dict())
    else:
        _show(experiment, directory)
    return Exit.YES


def _refuse_other(directory: Path, name: str) -> None:
    """Raise ``RunDirectoryError`` unless the directory is new, empty, or keeps runs of this very experiment.

    An experiment that was cut short leaves its finished runs and no numbers; the same one goes on with them.
    """
    from surefoot_experiments import RUNS

    from .._core.io import read_json, refuse_used

    if (directory / RUNS).is_dir():
        numbers = directory / NUMBERS
        content = read_json(numbers) if numbers.exists() else {"name": name}
        if isinstance(content, dict) and content.get("name") == name:
            return
    refuse_used(directory)


def _say_on_terminal(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def _show(experiment: Experiment, directory: Path | None) -> None:
    from .screen import Screen

    screen = Screen()
    screen.heading(experiment.name, experiment.title)
    screen.say(experiment.reference, style="dim")
    for table in experiment.tables:
        screen.heading(table.title)
        numeric = [
            index for index in range(len(table.columns)) if all(not isinstance(row[index], str) for row in table.rows)
        ]
        screen.table(table.columns, [[_cell(value) for value in row] for row in table.rows], numeric)
    screen.heading("The paper's claims, and what was measured")
    verdicts = {True: "agrees", False: "differs", None: "open"}
    screen.table(
        ("", "claim", "measured", "why"),
        [(verdicts[f.agrees], f.claim, f.measured, f.why) for f in experiment.findings],
    )
    where = f"plots and {NUMBERS} are in {directory}" if directory is not None else "--out DIR keeps plots and numbers"
    screen.say(f"\nsettings: {_settings(experiment)}\n{experiment.seconds:.1f} s; {where}", style="dim")


def _settings(experiment: Experiment) -> str:
    return ", ".join(f"{name} = {value}" for name, value in experiment.settings.items())


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    from .screen import number

    return number(value) if isinstance(value, float) else value
