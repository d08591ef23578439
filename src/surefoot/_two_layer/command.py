"""The commands ``certify two-layer`` and ``train two-layer``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.forms import Certifying, Question, Training
from .._cli.options import LinearFit, certify_exits, train_exits
from .._core.late import late

if TYPE_CHECKING:
    from .._cli.built import Built

RANK = 10
"""Width of the network by default, with --loss completion."""


@dataclass(frozen=True, kw_only=True)
class TwoLayer(LinearFit, Question):
    """Which data and loss, which initial weights, which theorem."""

    system: ClassVar[str] = "two-layer"
    loss: Annotated[
        Literal["squared", "softmax", "completion"],
        arg(
            help="½‖XW - Y‖²; the mean softmax cross-entropy of the classes; or completion, half the squares of the observed "
            "entries of a matrix, from a table of three columns: row, column and value, such as user, item and rating."
        ),
    ] = "squared"
    l2: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Weight of the penalty l2/2 ‖W‖² of the linear map.",
            help_behavior_hint="(default: 0; 1e-3 with softmax)",
        ),
    ] = None
    width: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Width h. From inputs + outputs on, random weights almost surely fulfil the default theorem.",
            help_behavior_hint="(default: 1000, or 2 (inputs + outputs) if that is more; inputs + outputs with certifiable; "
            f"{RANK} with completion)",
        ),
    ] = None
    start: Annotated[
        Literal["gaussian", "certifiable"],
        arg(
            help="Initial weights: independent normal ones, or certifiable, a multiple of orthonormal rows, from which far fewer "
            "iterations are guaranteed; training is lazier, and says by how much the weights moved."
        ),
    ] = "gaussian"
    std: Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="(default: 1/sqrt(width) with gaussian)")] = (
        None
    )
    """Standard deviation of gaussian weights."""
    scale: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Multiple of the orthonormal rows: the larger, the fewer iterations are guaranteed, and the less weights move.",
            help_behavior_hint="(default with certifiable: the least that guarantees about as few as any)",
        ),
    ] = None
    moved: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="In its place, how far the weights shall move, relative to their norm; the multiple follows from it.",
            help_behavior_hint="(default: as --scale says)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the initial weights."""
    theorem: Annotated[
        str | None,
        arg(
            metavar="NAME",
            help_behavior_hint="(default: two-layer/drift; from certifiable weights two-layer/prescribed with --loss squared)",
        ),
    ] = None
    """Theorem to evaluate; `surefoot list` names them."""

    def build(self) -> Built:
        return late(f"{__package__}.command_run", "built")(self)


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class Certify(Certifying, TwoLayer):
    """Evaluate a theorem on a two-layer linear network, X W1 W2ᵀ. Nothing is trained."""


@train_exits()
@dataclass(frozen=True, kw_only=True)
class Train(Training, TwoLayer):
    """Certify, train, audit and evaluate a two-layer linear network, X W1 W2ᵀ."""

    engine: Annotated[
        Literal["auto", "gram", "weights"],
        arg(help="Iterate in Gram space, whose cost depends on neither width nor rows, or on the weights themselves."),
    ] = "auto"

    def engine_name(self) -> str:
        return self.engine
