"""The command ``demo``: the main job on the digits, end to end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count as counting
from pathlib import Path
from typing import Any

import surefoot_check

from .._core.certificate import Certificate
from .._core.descent import certify
from .._core.io import make_directory
from .errors import Exit
from .options import Demo, TrainTwoLayer
from .problem import Problem, build
from .screen import Screen, count, number, print_json
from .training import Trained, train

TOLERANCE = 1e-10
DIRECTORY = "surefoot-demo"


@dataclass(frozen=True)
class Case:
    """One of the demo's runs with its independent check."""

    name: str
    problem: Problem
    certificate: Certificate
    trained: Trained
    check: surefoot_check.Report
    check_seconds: float

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
            "directory": str(run.directory),
            "condition_number": self.problem.facts["condition_number"],
            "guaranteed_before": self.certificate.iterations_to(TOLERANCE),
            "guaranteed_along": run.guaranteed_iterations(TOLERANCE),
            "iterations": run.iterations,
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
    directory = Path(options.out) if options.out is not None else _free_directory()
    make_directory(directory, subdirectories=())
    screen.say("Handwritten digits, a two-layer linear network, gradient descent with a certificate.", style="bold")
    screen.say("Before training: does a convergence theorem hold for exactly this network and data? Then train, audit, check.")
    cases = [
        _case(screen, directory, "standardised", TrainTwoLayer(out="")),
        _case(screen, directory, "certified-again", TrainTwoLayer(out="", certify_every=50)),
        _case(screen, directory, "whitened", TrainTwoLayer(out="", inputs="whiten")),
    ]
    screen.heading("Summary", f"iterations to a gap of {TOLERANCE:g} times the initial one")
    screen.table(
        ("run", "κ", "guaranteed before", "along the run", "run", "accuracy", "audit", "check"),
        [
            (
                case.name,
                number(case.problem.facts["condition_number"]),
                count(case.certificate.iterations_to(TOLERANCE)),
                count(case.trained.run.guaranteed_iterations(TOLERANCE)),
                count(case.trained.run.iterations),
                number(case.trained.scores["test_accuracy"], 3),
                "holds" if case.trained.run.audit().holds else "VIOLATED",
                case.check.outcome.value,
            )
            for case in cases
        ],
        numeric=(1, 2, 3, 4, 5),
    )
    screen.heading("Next", f"everything is in {directory}; it took {time.monotonic() - start:.0f} s")
    first = directory / cases[0].name
    screen.pairs(
        {
            f"open {first / 'report.html'}": "plots, bounds and numbers of the first run",
            f"surefoot check {first}": "check it again, line by line",
            "surefoot certify two-layer --data table.csv": "your own data",
            "surefoot list": "theorems, step rules, data sets, experiments",
        }
    )
    passed = all(case.passed for case in cases)
    if options.json:
        print_json({"directory": str(directory), "passed": passed, "runs": [case.record() for case in cases]})
    return Exit.YES if passed else Exit.NO


def _case(screen: Screen, directory: Path, name: str, template: TrainTwoLayer) -> Case:
    """Certify, train, check."""
    import dataclasses

    options = dataclasses.replace(template, out=str(directory / name), tolerance=TOLERANCE)
    return _run_case(screen, name, options)
