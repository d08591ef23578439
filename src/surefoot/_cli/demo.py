"""The command ``demo``: the main job on the digits, end to end."""

from __future__ import annotations

import itertools
import shlex
import signal
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

import surefoot_check

from .._core.audit import Audit
from .._core.certificate import Certificate
from .._core.descent import certify
from .._core.run import Run
from .._core.status import RunStatus
from .._feed_forward.command import Train as TrainPlain
from .._report.wording import share
from .._two_layer.command import Train as TrainLinear
from .built import Built
from .errors import Exit
from .options import Json
from .screen import Screen, count, number, print_json
from .training import Trained, Training, refuse_existing, train

TOLERANCE = 1e-10
DEFAULT = "surefoot-demo"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Start here: certify, train, audit, report and check on real data, in under a minute."""

    out: Annotated[
        str | None, arg(metavar="DIR", help_behavior_hint="(default: surefoot-demo, or the next free surefoot-demo-N)")
    ] = None
    """Directory for the runs: new, or empty."""
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return run_demo(self)


@dataclass(frozen=True)
class Case:
    """One of the demo's runs with its independent check."""

    options: Training
    built: Built
    certificate: Certificate
    trained: Trained
    check: surefoot_check.Report

    @property
    def name(self) -> str:
        """That of its directory."""
        return Path(self.options.out).name

    @property
    def passed(self) -> bool:
        """Certified, audited without violation, and accepted by the checker."""
        run = self.trained.run
        return run.certified and run.audit().holds and self.check.outcome is surefoot_check.Outcome.ACCEPT

    def record(self) -> dict[str, Any]:
        """Plain values."""
        run = self.trained.run
        return {
            "name": self.name,
            "directory": self.options.out,
            "condition_number": self.built.facts.get("condition_number"),
            "guaranteed_before": self.certificate.iterations_to(TOLERANCE),
            "guaranteed_along": run.guaranteed_iterations(TOLERANCE),
            "iterations": run.iterations,
            "moved": run.moved,
            "status": run.status.value,
            "seconds": self.trained.seconds,
            "audit_holds": run.audit().holds,
            "check": self.check.outcome.value,
            "evaluation": self.trained.scores,
        }


def run_demo(options: Demo) -> int:
    """``surefoot demo``."""
    start = time.monotonic()
    screen = Screen(silent=options.json)
    directory = directory_for(options.out)
    screen.say("Handwritten digits, gradient descent with a certificate.", style="bold")
    screen.say(
        "A plain network, trained by Adam: does a theorem guarantee, for exactly these weights and data, that an exact fit is "
        "near and that descent reaches it? Ask along the training; then go there, audit, check."
    )
    own = TrainPlain(out=str(directory / "own-network"), samples=30, hidden="50,50", tolerance=TOLERANCE)
    standardised = TrainLinear(out=str(directory / "standardised"), tolerance=TOLERANCE)
    prescribed = TrainLinear(
        out=str(directory / "prescribed"),
        tolerance=TOLERANCE,
        start="certifiable",
        moved=0.01,
        theorem="two-layer/prescribed",
    )
    again = TrainLinear(out=str(directory / "certified-again"), tolerance=TOLERANCE, certify_every=50)
    white = TrainLinear(out=str(directory / "whitened"), tolerance=TOLERANCE, inputs="whiten")
    first = _full(screen, own)
    cases = [
        first,
        _short(screen, standardised, "A two-layer linear network on all rows, certified before its training"),
        _short(screen, prescribed, "The same from certifiable weights, with steps that are fixed before training"),
        _short(
            screen,
            again,
            "From the first weights, certified again every 50 iterations: the guarantee tightens along it",
        ),
        _short(screen, white, "The same on whitened inputs (κ = 1)"),
    ]
    _summary(screen, cases)
    place = shlex.quote(first.options.out)
    screen.following(
        f"everything is in {directory}; this took {time.monotonic() - start:.0f} s",
        {
            f"open {place}/report.html": "plots, bounds and numbers of the first run",
            f"surefoot check {place}": "its independent check, line by line",
            "surefoot train feed-forward --data table.csv --out DIR": "your own data",
            "surefoot list": "theorems, step rules, data sets, experiments",
        },
    )
    passed = all(case.passed for case in cases)
    if options.json:
        print_json({"directory": str(directory), "passed": passed, "runs": [case.record() for case in cases]})
    return Exit.YES if passed else Exit.NO


def directory_for(given: str | None) -> Path:
    """A directory that is new or empty: the given one, or the first free surefoot-demo, surefoot-demo-2, ..."""
    if given is not None:
        refuse_existing(Path(given), "choose another with --out")
        return Path(given)
    names = (DEFAULT if number == 1 else f"{DEFAULT}-{number}" for number in itertools.count(1))
    return next(Path(name) for name in names if not Path(name).exists())


def _full(screen: Screen, options: Training) -> Case:
    """A run with everything that there is to show."""
    built = options.build()
    certificate = certify(built.net, built.loss, options.theorem)
    screen.problem(built.facts["data"], built.shown)
    screen.certificate(certificate)
    trained = train(options, built, certificate, screen, progress=True)
    case = _checked(options, built, certificate, trained)
    screen.heading(
        "Independent check",
        f"{case.check.outcome.value}: {len(case.check.lines)} claims, in rigorous arithmetic, without PyTorch",
    )
    claims = Counter((line.claim, line.outcome.value) for line in case.check.lines)
    meaning = {"L1": "the theorem's hypotheses and its schedule", "L2": "stored checkpoints lie under the bound"}
    screen.table(
        ("", "claim", "checks"),
        [(outcome, f"{claim}  {meaning.get(claim, '')}", count(times)) for (claim, outcome), times in claims.items()],
        numeric=(2,),
    )
    return case


def _short(screen: Screen, options: Training, title: str) -> Case:
    """A run in two lines."""
    built = options.build()
    certificate = certify(built.net, built.loss, options.theorem)
    screen.heading(title)
    trained = train(options, built, certificate, Screen(silent=True), progress=True)
    case = _checked(options, built, certificate, trained)
    run = trained.run
    screen.say(
        f"  guaranteed {count(certificate.iterations_to(TOLERANCE))} before, "
        f"{count(run.guaranteed_iterations(TOLERANCE))} along the run; ran {count(run.iterations)}; "
        f"weights moved by {_moved(run)}; check: {case.check.outcome.value}"
    )
    return case


def _checked(options: Training, built: Built, certificate: Certificate, trained: Trained) -> Case:
    if trained.run.status is RunStatus.INTERRUPTED:
        if trained.run.stopped_by == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(int(Exit.of_signal(trained.run.stopped_by)))
    return Case(options, built, certificate, trained, surefoot_check.check(options.out))


def _moved(run: Run) -> str:
    """By which share of their norm."""
    return "" if run.moved is None else share(run.moved)


def _audited(audit: Audit) -> str:
    """In a word."""
    return "VIOLATED" if audit.violations else "holds" if audit.holds else "does not hold"


def _summary(screen: Screen, cases: list[Case]) -> None:
    screen.heading("Summary", f"iterations to a gap of {TOLERANCE:g} times the initial one")
    screen.table(
        ("run", "κ", "guaranteed before", "along the run", "ran", "moved", "accuracy", "audit", "check"),
        [
            (
                case.name,
                number(case.built.facts["condition_number"]) if "condition_number" in case.built.facts else "",
                count(case.certificate.iterations_to(TOLERANCE)),
                count(case.trained.run.guaranteed_iterations(TOLERANCE)),
                count(case.trained.run.iterations),
                _moved(case.trained.run),
                number(case.trained.scores["test_accuracy"], 3),
                _audited(case.trained.run.audit()),
                case.check.outcome.value,
            )
            for case in cases
        ],
        numeric=(1, 2, 3, 4, 5, 6),
    )
