"""The command ``certify holdout``: how many iterations a solver needs on most problems, from counts on held-out ones."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import arg

from .._cli.options import Json, certify_exits
from .._core.late import late
from .._step_sizes.command_problems import RandomProblems


@certify_exits(no="less is proved than was asked for, or the order of the problems matters")
@dataclass(frozen=True, kw_only=True)
class Holdout(RandomProblems):
    """How many iterations does a solver need on most problems? A statement with a confidence, from problems held out for it.

    Any distribution of problems, any solver; what it rests on is that new problems are drawn like those held out."""

    solver: Annotated[
        str,
        arg(
            metavar="NAME|FILE",
            help="A trained network: net.safetensors of `surefoot train step-sizes`, layers.safetensors of `surefoot train "
            "layers`; LassoSolver, LogisticSolver; or a method without learning, as FISTA: `surefoot list` names them.",
        ),
    ]
    problems: Annotated[int, arg(metavar="N")] = 600
    """Number of held-out problems; a coverage and a confidence of 0.99 need 459."""
    gap: Annotated[
        float,
        arg(
            metavar="NUMBER",
            help="A problem is solved when F - F* is at most this share of F*; with least-squares, of F(0) - F*.",
        ),
    ] = 1e-4
    coverage: Annotated[float, arg(metavar="NUMBER")] = 0.99
    """Share of the new problems that the statement is about."""
    confidence: Annotated[float, arg(metavar="NUMBER")] = 0.99
    """Probability, over the draw of the held-out problems, that the statement is true."""
    iterations: Annotated[int, arg(metavar="N")] = 1000
    """Most iterations that a problem may take, and the steps of a schedule; a problem that takes more is not solved."""
    seed: Annotated[int, arg(metavar="N")] = 100
    """Seed of the held-out problems: another than that of the training, which would draw its matrices again."""
    shift: Annotated[
        str | None,
        arg(
            metavar="ROWSxCOLUMNS",
            help="Also try the solver on as many problems of this size, and test whether they are like those held out. The exit "
            "code does not depend on it.",
            help_behavior_hint="(default: no)",
        ),
    ] = None
    out: Annotated[
        str | None,
        arg(
            metavar="DIR",
            help="Keep certificate, counts and report there: new, or empty.",
            help_behavior_hint="(default: print only)",
        ),
    ] = None
    keep_solutions: Annotated[
        bool,
        arg(
            help="Keep problems and solutions too, so that `surefoot check DIR` proves the gap of each.",
            help_behavior_hint="",
        ),
    ] = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_holdout")(self)


def solvers() -> list[dict[str, Any]]:
    """What ``--solver`` may name, with the problems that it is for."""
    return late(f"{__package__}.command_run", "solvers")()
