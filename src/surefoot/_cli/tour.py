"""A stop of the tour that ``surefoot demo`` takes: what the systems offer, each in the ``command_tour.py`` of its room."""

from __future__ import annotations

import dataclasses
import io
import json
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import surefoot_check

from .._core.descent import certify
from .._core.run import Run
from .._core.status import RunStatus
from .._report.wording import iterations
from .errors import Exit
from .options import TrainOptions
from .screen import Screen, count, number
from .training import Training, train

NOTHING = "none"
"""In the place of an audit or a check where there is nothing to audit or check."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What came out at a stop.

    Attributes:
        guaranteed: what, before anything ran, in a few words.
        happened: what did, in as few.
        audit: the verdict in a word, or ``NOTHING``.
        check: the outcome, or ``NOTHING``.
        command: what does the same, or goes on from here.
        record: plain values for programs.
    """

    guaranteed: str
    happened: str
    command: str
    audit: str = NOTHING
    check: str = NOTHING
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing that was audited is violated and nothing that was checked is not accepted."""
        return self.audit in (NOTHING, "holds") and self.check in (NOTHING, surefoot_check.Outcome.ACCEPT.value)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """One stop.

    Attributes:
        name: of its directory.
        title: what is shown.
        why: what one would want it for.
        visit: does it in a directory; what there is to show at length goes to the screen, which is mostly a silent one.
        first: whether it is the one to begin with.
    """

    name: str
    title: str
    why: str
    visit: Callable[[Path, Screen], Visit]
    first: bool = False


def descent(options: Callable[[str], Training]) -> Callable[[Path, Screen], Visit]:
    """The visit that certifies, descends, audits, reports and checks, as ``surefoot train`` does with these options."""

    def visit(directory: Path, screen: Screen) -> Visit:
        return _descended(options(str(directory)), screen)

    return visit


def _descended(options: Training, screen: Screen) -> Visit:
    built = options.build()
    certificate = certify(built.net, built.loss, options.theorem)
    screen.problem(built.facts["data"], built.shown)
    screen.certificate(certificate)
    trained = train(options, built, certificate, screen, progress=True)
    run = trained.run
    if run.status is RunStatus.INTERRUPTED:
        interrupted(Exit.of_signal(run.stopped_by))
    report = surefoot_check.check(options.out)
    _show_check(screen, report)
    screen.heading("In short")
    accuracy = trained.scores.get("test_accuracy")
    scored = "" if accuracy is None else f"; accuracy {number(accuracy, 3)} on unseen rows"
    bound = run.guaranteed_iterations(options.tolerance)
    return Visit(
        guaranteed=f"{iterations(bound)} to {options.tolerance:g} of the first gap",
        happened=f"{iterations(run.iterations)}{scored}" if run.status is RunStatus.CONVERGED else run.status.text,
        audit=audited(run),
        check=report.outcome.value,
        command=command(options),
        record={
            "theorem": certificate.theorem,
            "guaranteed_before": certificate.iterations_to(options.tolerance),
            "guaranteed_along": bound,
            "iterations": run.iterations,
            "moved": run.moved,
            "status": run.status.value,
            "certified": run.certified,
            "seconds": trained.seconds,
            "evaluation": trained.scores,
        },
    )


def _show_check(screen: Screen, report: surefoot_check.Report) -> None:
    claims = Counter((line.claim, line.outcome.value) for line in report.lines)
    meaning = {"L1": "the theorem's hypotheses and its schedule", "L2": "stored checkpoints lie under the bound"}
    screen.heading(
        "Independent check",
        f"{report.outcome.value}: {len(report.lines)} claims, in rigorous arithmetic, without PyTorch",
    )
    screen.table(
        ("", "claim", "checks"),
        [(outcome, f"{claim}  {meaning.get(claim, '')}", count(times)) for (claim, outcome), times in claims.items()],
        numeric=(2,),
    )


def audited(run: Run) -> str:
    """The verdict on a run in a word; one without a guarantee claims none of what is audited."""
    audit = run.audit()
    if not run.certified:
        return NOTHING
    return "VIOLATED" if audit.violations else "holds" if audit.holds else "incomplete"


def checked(directory: Path) -> str:
    """The outcome of the independent check of a directory."""
    return surefoot_check.check(directory).outcome.value


def recorded(options: TrainOptions) -> dict[str, Any]:
    """Run the command with these options, among them ``json``, and return what it prints."""
    printed = io.StringIO()
    with ExitStack() as held, redirect_stdout(printed):
        code = options.run(held)
    if code in (Exit.CTRL_C, Exit.TERMINATED, Exit.HANGUP):
        interrupted(Exit(code))
    return json.loads(printed.getvalue())


def interrupted(code: Exit) -> None:
    """Raise what ends the program after a signal that a training has heeded."""
    if code is Exit.of_signal(signal.SIGINT):
        raise KeyboardInterrupt
    raise SystemExit(int(code))


def command(options: TrainOptions) -> str:
    """The command line of these options: those that differ from their defaults, and DIR where the tour has its directory."""
    said = ["surefoot", "train", options.system]
    for of_field in dataclasses.fields(options):
        value, name = getattr(options, of_field.name), f"--{of_field.name.replace('_', '-')}"
        if of_field.name in ("json", "quiet") or value == of_field.default:
            continue
        said += (
            ["--out", "DIR"] if of_field.name == "out" else [name] if value is True else [name, shlex.quote(str(value))]
        )
    return " ".join(said)
