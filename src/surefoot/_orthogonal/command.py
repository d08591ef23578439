"""The command ``train svd``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.options import Flag, Json, Matrices, Out, Quiet, Resume, train_exits
from .._core.late import late


@train_exits(failed="diverged", kept="a checkpoint of the training")
@dataclass(frozen=True, kw_only=True)
class Train(Matrices):
    """Train the step sizes of the paper's differentiable SVD; compare it with torch.linalg.svd.

    For research: it is tens of times slower and far less accurate, and no theorem speaks of it. sf.linalg.svd is for use.
    DIR gets the network (net.safetensors) and its training (training/)."""

    system: ClassVar[str] = "svd"
    out: Out
    resume: Resume = False
    layers: Annotated[int, arg(metavar="N")] = 10
    """Number of layers, each a step in U and one in V."""
    rank: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: all)")] = None
    """How many singular values."""
    inverse: Annotated[
        str,
        arg(
            metavar="exact|K,L", help="Inverse in each step: a linear solve, or the paper's with K layers of degree L."
        ),
    ] = "exact"
    loss: Annotated[
        Literal["objective", "singular-values"],
        arg(help="The objective of the layers, or the error of their singular values."),
    ] = "objective"
    epochs: Annotated[int, arg(metavar="N")] = 50
    """Steps of training in total, each on --batch matrices; 0 takes the guarded steps as they are."""
    batch: Annotated[int, arg(metavar="N")] = 30
    """Matrices in a step of training."""
    learning_rate: Annotated[float, arg(metavar="NUMBER")] = 0.1
    """Step of Adam."""
    require_certificate: Flag = False
    """Do not train, and exit with 1: no theorem speaks of this network."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_train")(self, held)
