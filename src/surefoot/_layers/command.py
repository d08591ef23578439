"""The command ``train layers``: a network for learned steps whose training comes with a guarantee."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.options import Json, Quiet
from .._core.late import late
from .._step_sizes.command_problems import RandomProblems


@dataclass(frozen=True, kw_only=True)
class Layers(RandomProblems):
    """Train layers one after the other, each to a certified gap: proved on the training problems, and not only measured.

    Deterministic and done in seconds to minutes, so that there is no --resume: after a signal the layers that were not trained
    are those of the schedule that training starts from, and what is proved still holds.

    Exit code: 0 done, 130 after Ctrl-C, SIGTERM or SIGHUP (once the first layer is reached, all keep a whole network)."""

    system: ClassVar[str] = "layers"
    resume: ClassVar[bool] = False

    out: Annotated[str, arg(metavar="DIR", help="Directory to write: new, or empty.")]
    layers: Annotated[int, arg(metavar="N")] = 10
    """Layers, each one iteration of the solver."""
    range: Annotated[
        str,
        arg(metavar="LO,HI", help="Steps lie between LO/β and HI/β; up to 2 no layer ever raises an objective."),
    ] = "0,2"
    sectors: Annotated[
        int, arg(metavar="N", help="Sectors of the plane of a coordinate and its gradient; each has a step.")
    ] = 4
    steps: Annotated[
        int | None,
        arg(metavar="N", help="Steps in the grid.", help_behavior_hint="(default: 2 with least-squares, else 9)"),
    ] = None
    objective: Annotated[
        Literal["last", "next"],
        arg(help="What a layer is trained for: the objective after all of them, or after the layer itself."),
    ] = "last"
    tolerance: Annotated[float, arg(metavar="NUMBER")] = 1e-6
    """Duality gap, relative to F - F*, with which a layer stays a constant step."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the problems; the next one is that of fresh problems."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_layers")(self)
