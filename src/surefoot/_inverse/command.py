"""The commands ``certify inverse`` and ``train inverse``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.options import Flag, Json, Matrices, Out, Quiet, Resume, certify_exits, train_exits
from .._core.late import late


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """Which coefficients, which interval, which theorem."""

    system: ClassVar[str] = "inverse"
    interval: Annotated[
        str | None,
        arg(
            metavar="L,U",
            help="Where the nonzero σ²/c0 lie, for singular values σ of the matrices and the c0 that they are scaled by.",
            help_behavior_hint="(default: that of --weights, else 1e-3,1)",
        ),
    ] = None
    layers: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 4)")] = None
    """Number K of layers."""
    degree: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 4)")] = None
    """Degree L of a layer's residual: the number of its coefficients."""
    coefficients: Annotated[
        Literal["chebyshev", "ones"] | None,
        arg(
            metavar="chebyshev|ones",
            help="chebyshev has the smallest worst residual on the interval; ones converges for every σ²/c0 below 2.",
            help_behavior_hint="(default: chebyshev)",
        ),
    ] = None
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="Coefficients of an earlier run, as its net.safetensors.",
            help_behavior_hint="(default: none)",
        ),
    ] = None
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: inverse/interval)")] = None
    """Theorem to evaluate; `surefoot list` names them."""


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class Certify(Inverse):
    """The worst error of a matrix inverse by products alone, over all matrices with singular values in an interval."""

    out: Annotated[str | None, arg(metavar="DIR", help_behavior_hint="(default: print only)")] = None
    """Write the certificate there, for `surefoot check`: new, or empty."""
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_certify")(self)


@train_exits(failed="diverged", kept="a checkpoint of the training")
@dataclass(frozen=True, kw_only=True)
class Train(Inverse, Matrices):
    """Train the coefficients of a matrix inverse on matrices like yours; certify them on their interval, and compare.

    DIR gets the network (net.safetensors), its training (training/), and the certificate (certificate/) for `surefoot check`."""

    out: Out
    resume: Resume = False
    epochs: Annotated[int, arg(metavar="N")] = 1000
    """Steps of training in total; 0 takes the coefficients as they are."""
    optimizer: Annotated[Literal["adam", "sgd"], arg(help="sgd at 1e-4 is the paper's.")] = "adam"
    learning_rate: Annotated[
        float | None, arg(metavar="NUMBER", help_behavior_hint="(default: 1e-2 with adam, 1e-4 with sgd)")
    ] = None
    """Its step."""
    require_certificate: Flag = False
    """Exit with 1 unless the theorem holds for the trained coefficients."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_train")(self, held)
