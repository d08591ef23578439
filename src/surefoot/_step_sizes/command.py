"""The commands ``certify step-sizes`` and ``train step-sizes``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.options import Flag, Json, KeepProblem, Out, Quiet, Resume, certify_exits, train_exits
from .._core.late import late
from .command_problems import RandomProblems


@dataclass(frozen=True, kw_only=True)
class StepSizes(RandomProblems):
    """Which problems, which network, which theorem."""

    system: ClassVar[str] = "step-sizes"
    range: Annotated[
        str | None,
        arg(
            metavar="LO,HI",
            help="The network's steps lie between LO/β and HI/β. HI up to 2 is certified never to raise an objective; "
            "a rate needs LO > 0 and HI < 2.",
            help_behavior_hint="(default: 0,2, or the range of --weights)",
        ),
    ] = None
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="A network to start from, as net.safetensors of an earlier run.",
            help_behavior_hint="(default: random)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the problems and the initial weights."""
    theorem: Annotated[
        str | None,
        arg(metavar="NAME", help_behavior_hint="(default: step-sizes/monotone; prox-monotone with a penalty)"),
    ] = None
    """Theorem to evaluate; `surefoot list` names them."""


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class Certify(StepSizes):
    """Evaluate a theorem on learned step sizes: it holds for every network with this range. Nothing is trained."""

    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_certify")(self)


@train_exits(failed="diverged", kept="a checkpoint of the training")
@dataclass(frozen=True, kw_only=True)
class Train(StepSizes):
    """Train a network that chooses step sizes; then solve fresh problems with it, certified, and compare.

    DIR gets the network (net.safetensors), its training (training/), and the run on the fresh problems, for `surefoot check`
    and `surefoot report`."""

    out: Out
    resume: Resume = False
    keep_problem: KeepProblem = None
    iterations: Annotated[int, arg(metavar="N")] = 100
    """Iterations of the solver, in training and on the fresh problems."""
    epochs: Annotated[int, arg(metavar="N")] = 100
    """Steps of training in total; 0 takes --weights as they are."""
    optimizer: Annotated[
        Literal["lbfgs", "adam", "sgd", "armijo"],
        arg(help="lbfgs and armijo search along the direction on the loss itself, and need the exact gradient."),
    ] = "lbfgs"
    learning_rate: Annotated[
        float | None,
        arg(metavar="NUMBER", help_behavior_hint="(default: 1 with lbfgs and armijo, 1e-3 with adam, 1e-7 with sgd)"),
    ] = None
    """Step of adam and sgd; first trial of lbfgs and armijo."""
    gradient: Annotated[
        Literal["exact", "detached"],
        arg(help="detached leaves out how the network's inputs depend on it: the paper's rule, and not a gradient."),
    ] = "exact"
    expansion: Annotated[
        float | None, arg(metavar="NUMBER", help_behavior_hint="(default: 1; the weights themselves with --weights)")
    ] = None
    """Factor of the orthogonal initial weights; the paper takes 100."""
    require_certificate: Flag = False
    """Do not train, and exit with 1, unless the theorem holds."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_train")(self, held)
