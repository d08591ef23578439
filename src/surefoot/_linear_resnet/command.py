"""The commands ``certify linear-resnet`` and ``train linear-resnet``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.forms import Certifying, Question, Training
from .._cli.options import Batched, Flag, LinearFit, certify_exits, train_exits
from .._core.late import late

if TYPE_CHECKING:
    from .._cli.built import Built


@dataclass(frozen=True, kw_only=True)
class Transformed(Batched, LinearFit, Question):
    """Which data, which fixed transformations, which theorem."""

    system: ClassVar[str] = "linear-resnet"
    depth: Annotated[int, arg(metavar="N")] = 10
    """Number of trained layers, all zero at the start."""
    width: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Width of every layer: the more, the earlier gaussian is certified; modified-identity does not depend "
            "on it.",
            help_behavior_hint="(default: inputs + outputs; with gaussian 1000, or 2 (inputs + outputs) if that is more)",
        ),
    ] = None
    transform: Annotated[
        Literal["modified-identity", "identity", "gaussian"],
        arg(
            help="The fixed A (width, inputs) and B (outputs, width): modified-identity [I; 0] and α [0, I] with BA = 0, "
            "identity [I; 0] and sqrt(width/outputs) [I, 0], or gaussian, random."
        ),
    ] = "modified-identity"
    alpha: Annotated[
        str | None,
        arg(
            metavar="NUMBER|sufficient",
            help="Scale α of the modified identity; sufficient is the smallest that certifies linear-resnet/local "
            "before the first step.",
            help_behavior_hint="(default: sufficient with modified-identity)",
        ),
    ] = None
    scaling: Annotated[
        Literal["fan", "unit"] | None,
        arg(
            metavar="fan|unit",
            help="Variances of gaussian entries: fan 1/width in A and 1/outputs in B, or unit.",
            help_behavior_hint="(default: fan with gaussian)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of gaussian transformations and of batches."""
    project: Flag = False
    """Fit the part of the targets that X can fit: what --batch needs, and gradient descent does not."""
    theorem: Annotated[
        str | None,
        arg(metavar="NAME", help_behavior_hint="(default: linear-resnet/local; with --batch linear-resnet/sgd-local)"),
    ] = None
    """Theorem to evaluate; `surefoot list` names them."""

    def build(self) -> Built:
        return late(f"{__package__}.command_run", "built")(self)


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class Certify(Certifying, Transformed):
    """Evaluate a theorem on a deep linear ResNet, B (I+W_L) … (I+W_1) A x with A, B fixed. Nothing is trained."""


@train_exits()
@dataclass(frozen=True, kw_only=True)
class Train(Training, Transformed):
    """Certify, train, audit and evaluate a deep linear ResNet, B (I+W_L) … (I+W_1) A x with A, B fixed."""

    certify_every: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Evaluate linear-resnet/local again every so many iterations, and follow it where it guarantees more: "
            "a run that is not certified at its start may become so.",
            help_behavior_hint="(default: 10)",
        ),
    ] = 10
