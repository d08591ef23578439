"""The commands, as dataclasses from which the parser and the help texts are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg, subcommand

from .deblur_options import Deblur
from .deconvolution_options import TrainDeconvolution
from .inverse_options import CertifyInverse, TrainInverse
from .options import (
    CertifyImplicit,
    CertifyLinearResNet,
    CertifyTwoLayer,
    Flag,
    Json,
    TrainImplicit,
    TrainLinearResNet,
    TrainSystem,
    TrainTwoLayer,
)
from .step_sizes_options import CertifyStepSizes, TrainStepSizes
from .svd_options import TrainSVD

AnyTrain = TrainSystem | TrainStepSizes | TrainInverse | TrainSVD | TrainDeconvolution
"""The options of ``train`` for any system."""
RunDirectory = Annotated[Positional[str], arg(metavar="DIR", help="Directory of a run.")]
ProblemFile = Annotated[
    str | None,
    arg(
        metavar="FILE",
        help="Arrays of a problem of more than 256 MiB, which its run does not hold, as `surefoot train --keep-problem FILE` or "
        "Run.save_problem wrote them.",
        help_behavior_hint="(default: those in DIR)",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Evaluate a convergence theorem on your data and initial weights, before training."""

    system: (
        Annotated[CertifyTwoLayer, subcommand("two-layer")]
        | Annotated[CertifyLinearResNet, subcommand("linear-resnet")]
        | Annotated[CertifyImplicit, subcommand("implicit")]
        | Annotated[CertifyStepSizes, subcommand("step-sizes")]
        | Annotated[CertifyInverse, subcommand("inverse")]
    )


@dataclass(frozen=True, kw_only=True)
class Train:
    """Certify, train, audit, and write a run directory with a report."""

    system: (
        Annotated[TrainTwoLayer, subcommand("two-layer")]
        | Annotated[TrainLinearResNet, subcommand("linear-resnet")]
        | Annotated[TrainImplicit, subcommand("implicit")]
        | Annotated[TrainStepSizes, subcommand("step-sizes")]
        | Annotated[TrainInverse, subcommand("inverse")]
        | Annotated[TrainSVD, subcommand("svd")]
        | Annotated[TrainDeconvolution, subcommand("deconvolution")]
    )


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check the certificates and checkpoints of a run, independently and rigorously.

    Exit code: 0 accept, 1 reject, 3 undecided."""

    directory: RunDirectory
    level: Annotated[
        Literal["fast", "exact"],
        arg(
            help="fast trusts numpy's matrix products within their a-priori error bounds; exact trusts integers instead, "
            "and takes some twenty times as long."
        ),
    ] = "fast"
    replay: Flag = False
    """Also replay exact gradient descent of a linear network, rigorously, and compare the stored weights (claim L3)."""
    time_limit: float | None = None
    """Seconds after which what is not decided is undecided."""
    system: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(
            metavar="MODULE",
            help="Also check runs of the SYSTEM of this module, whose code is then run; may be given again.",
            help_behavior_hint="",
        ),
    ] = ()
    data: ProblemFile = None
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write report.html and PNG plots of a run into its directory."""

    directory: RunDirectory
    data: ProblemFile = None


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Reproduce a figure or table of a paper: our numbers beside the paper's."""

    name: Annotated[Positional[str], arg(metavar="PAPER/FIGURE")]
    """Experiment; `surefoot list` names them."""
    full: Flag = False
    """The paper's sizes and repeats, which takes longer, instead of a quick version."""
    out: Annotated[str | None, arg(metavar="DIR", help_behavior_hint="(default: print only)")] = None
    """Directory for numbers and plots: new, empty, or of the same experiment, whose finished runs are then kept."""
    data: Annotated[
        str | None,
        arg(
            metavar="DIR",
            help="Directory with the image files of the implicit and deconvolution experiments.",
            help_behavior_hint="(default: bundled data)",
        ),
    ] = None
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="A network for deconvolution/table4, as net.safetensors of `surefoot train deconvolution`.",
            help_behavior_hint="(default: trained briefly)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the random data and weights."""
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class List:
    """List systems, theorems, step rules, data sets and experiments."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Start here: certify, train, audit, report and check on real data, in under a minute."""

    out: Annotated[
        str | None, arg(metavar="DIR", help_behavior_hint="(default: surefoot-demo, or the next free surefoot-demo-N)")
    ] = None
    """Directory for the runs: new, or empty."""
    json: Json = False


Command = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Certify, subcommand("certify")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Check, subcommand("check", description="Check a run, independently and rigorously.")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Deblur, subcommand("deblur")]
    | Annotated[Reproduce, subcommand("reproduce")]
    | Annotated[List, subcommand("list")]
)
