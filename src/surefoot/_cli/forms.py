"""The forms that ``certify`` and ``train`` of the systems share, as dataclasses that the parser is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import arg

from .._core.late import late
from .options import Flag, Json, KeepProblem, Quiet

if TYPE_CHECKING:
    from .._core.run import Run
    from .built import Built
    from .screen import Screen


class Question(ABC):
    """Options from which a network and its problem are built: what ``certify`` and ``train`` of a system share.

    Attributes:
        system: name of the system.
        theorem: name of the theorem; ``None`` for the system's default, as where there is no such option.
        batch: rows of a mini-batch; ``None`` for the full gradient, as where there is no such option.
    """

    system: ClassVar[str]
    theorem: str | None = None
    batch: int | None = None
    json: bool

    @abstractmethod
    def build(self) -> Built:
        """Load, scale, and set the initial weights.

        Raises:
            ValueError: data that cannot be used this way, or options that contradict each other.
            NoCertificate: weights that are certified from the start were asked for, and there are none.
        """


@dataclass(frozen=True, kw_only=True)
class Certifying(Question):
    """What ``certify`` has beside the question."""

    step: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="A constant step of your own: the guarantee is for gradient descent with that step.",
            help_behavior_hint="(default: the steps that the theorem speaks of)",
        ),
    ] = None
    json: Json = False

    def run(self, held: ExitStack) -> int:
        """Evaluate and show; the exit code."""
        return late(f"{__package__}.training", "run_certify")(self)


@dataclass(frozen=True, kw_only=True)
class Training(Question):
    """Where the run goes, and how it descends."""

    out: Annotated[str, arg(metavar="DIR")]
    """Run directory to write: new, or empty."""
    resume: Annotated[
        bool,
        arg(
            help="Continue the run in DIR from its newest checkpoint, with the settings stored there; only "
            "--max-iterations and --tolerance may be given anew.",
            help_behavior_hint="",
        ),
    ] = False
    keep_problem: KeepProblem = None
    steps: Annotated[
        str | None, arg(metavar="RULE|NUMBER", help_behavior_hint="(default: the rule that the theorem speaks of)")
    ] = None
    """Step rule, or a number for a constant step; `surefoot list` names the rules."""
    max_iterations: Annotated[int, arg(metavar="N")] = 10_000
    """Limit on the iterations."""
    tolerance: Annotated[float, arg(metavar="NUMBER")] = 1e-10
    """Stop at this gap (loss minus its optimal value), relative to the initial gap."""
    certify_every: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Evaluate the theorem again every so many iterations, and follow it where it guarantees more.",
            help_behavior_hint="(default: never)",
        ),
    ] = None
    require_certificate: Flag = False
    """Do not train, and exit with 1, unless every step carries the guarantee."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        """Certify, train, audit and report; the exit code."""
        return late(f"{__package__}.training", "run_train")(self)

    def engine_name(self) -> str:
        """The engine to descend with."""
        return "auto"

    def show(self, run: Run, screen: Screen) -> None:
        """Print what is to be said of runs of this system alone; nothing by default."""

    def measured(self, run: Run) -> dict[str, Any]:
        """The same for JSON."""
        return {}
