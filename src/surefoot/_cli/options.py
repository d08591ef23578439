# ruff: noqa: TID253 - only the program itself imports this module
"""The commands and their options, as dataclasses from which the parser and the help texts are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, arg, subcommand

Flag = Annotated[bool, arg(help_behavior_hint="")]
Json = Annotated[bool, arg(help="Print JSON, and nothing else, on standard output.", help_behavior_hint="")]
RunDirectory = Annotated[Positional[str], arg(metavar="DIR", help="Directory of a run.")]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Which data."""

    data: Annotated[
        str,
        arg(
            metavar="NAME|PATH",
            help="Data set: digits, diabetes, or a path: table.csv, file.npz, file.npz:NAME, X.npy,Y.npy, "
            "images.gz,labels.gz (IDX), matrix.mtx, or a folder of images.",
        ),
    ] = "digits"


@dataclass(frozen=True, kw_only=True)
class Rows(Source):
    """Which data, and what to fit to what."""

    inputs: Annotated[
        Literal["standardise", "whiten", "raw"],
        arg(
            help="Columns of X, from the train rows: standardise to mean 0 and variance 1 (constant columns are "
            "dropped), whiten to principal axes of variance 1 (condition number 1), or raw."
        ),
    ] = "standardise"
    targets: Annotated[
        Literal["auto", "one-hot", "centred", "raw"],
        arg(
            help="What the squared loss fits: classes as one-hot columns, centred; numbers, centred; or raw numbers. "
            "auto takes the numbers where the data has any, else the classes."
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class TwoLayer(Rows):
    """Which data and loss, which initial weights, which theorem."""

    system: ClassVar[str] = "two-layer"
    loss: Annotated[
        Literal["squared", "softmax"],
        arg(help="½‖XW - Y‖², or the softmax cross-entropy of the classes with an l2 penalty."),
    ] = "squared"
    l2: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 1e-3 with softmax)")] = None
    """Weight of the softmax loss's penalty."""
    width: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="Width h. From inputs + outputs on, random weights almost surely fulfil the default theorem.",
            help_behavior_hint="(default: 1000, or 2 (inputs + outputs) if that is more)",
        ),
    ] = None
    std: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 1/sqrt(width))")] = None
    """Standard deviation of the random initial weights."""
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the initial weights."""
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: two-layer/drift)")] = None
    """Theorem to evaluate; `surefoot list` names them."""


@dataclass(frozen=True, kw_only=True)
class LinearResNet(Rows):
    """Which data, which fixed transformations, which theorem."""

    system: ClassVar[str] = "linear-resnet"
    depth: Annotated[int, arg(metavar="INT")] = 10
    """Number of trained layers, all zero at the start."""
    width: Annotated[
        int | None,
        arg(
            metavar="INT",
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
            metavar="FLOAT|sufficient",
            help="Scale α of the modified identity; sufficient is the smallest that certifies linear-resnet/local "
            "before the first step.",
            help_behavior_hint="(default: sufficient with modified-identity)",
        ),
    ] = None
    scaling: Annotated[
        Literal["fan", "unit"] | None,
        arg(
            metavar="{fan,unit}",
            help="Variances of gaussian entries: fan 1/width in A and 1/outputs in B, or unit.",
            help_behavior_hint="(default: fan with gaussian)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of gaussian transformations."""
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: linear-resnet/local)")] = None
    """Theorem to evaluate; `surefoot list` names them."""


@dataclass(frozen=True, kw_only=True)
class Implicit(Source):
    """Which rows of which data, which initial weights, which theorem."""

    system: ClassVar[str] = "implicit"
    classes: Annotated[
        str | None,
        arg(
            metavar="A,B[,...]",
            help="Keep the rows of these classes only, for example 0,1.",
            help_behavior_hint="(default: all rows)",
        ),
    ] = None
    samples: Annotated[
        int,
        arg(
            metavar="INT",
            help="Rows to train on, drawn from the train rows with the classes in proportion; all, if there are fewer. "
            "The paper takes 1000 of two classes.",
        ),
    ] = 100
    inputs: Annotated[
        Literal["auto", "unit", "standardise", "whiten", "raw"],
        arg(
            help="unit scales every row to norm 1, as the paper does; standardise and whiten act on columns, by the drawn "
            "rows: to mean 0 and variance 1, or to principal axes of variance 1 (certified in the fewest iterations, but "
            "useless on held-out rows where there are more columns than rows); raw takes the rows as they are. "
            "auto is standardise, or unit with --gamma."
        ),
    ] = "auto"
    targets: Annotated[
        Literal["auto", "classes", "centred", "raw"],
        arg(
            help="What the squared loss fits: classes as one column of 0 and 1 if there are two, else as one-hot "
            "columns; numbers, centred; or raw numbers. auto takes the numbers where the data has any, else the classes."
        ),
    ] = "auto"
    merge: Annotated[
        bool,
        arg(
            help="Merge duplicate and parallel rows and drop all-zero ones, which leaves the gradient of the loss as it "
            "is: no certificate holds with such rows.",
            help_behavior_hint="",
        ),
    ] = False
    width: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="Width m. Certificates need at least as many units as rows; 2 to 4 times as many do well.",
            help_behavior_hint="(default: 4 x rows but at most 2000, and at least the inputs)",
        ),
    ] = None
    gamma: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Weight of the fixed-point equation, below 1: the initial weights are then those of the paper, "
            "W ~ N(0, 1/m), A = I, b = 0, which no theorem covers at usual sizes.",
            help_behavior_hint="(default: gamma and the scale of W and A are chosen so that the default theorem holds)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the drawn rows and the initial weights."""
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: implicit/spectral)")] = None
    """Theorem to evaluate; `surefoot list` names them."""


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    """Which problems, which network, which theorem."""

    system: ClassVar[str] = "step-sizes"
    problem: Annotated[
        Literal["least-squares", "lasso", "logistic"],
        arg(
            help="Random problems: ½‖Mx - y‖²; the same + λ‖x‖₁, y = Mx̂ + noise with a sparse x̂; or logistic regression "
            "+ λ‖x‖₁. M is Gaussian, with columns of norm 1 but for logistic."
        ),
    ] = "least-squares"
    size: Annotated[str, arg(metavar="ROWSxCOLUMNS")] = "20x32"
    """Rows and columns of each M."""
    problems: Annotated[int, arg(metavar="INT")] = 32
    """Number of problems in a batch."""
    lam: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 0.1 with lasso and logistic)")] = (
        None
    )
    """Weight λ of the l1 penalty."""
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
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the problems and the initial weights."""
    theorem: Annotated[
        str | None,
        arg(metavar="NAME", help_behavior_hint="(default: step-sizes/monotone; prox-monotone with a penalty)"),
    ] = None
    """Theorem to evaluate; `surefoot list` names them."""


@dataclass(frozen=True, kw_only=True)
class CertifyTwoLayer(TwoLayer):
    """Evaluate a theorem on a two-layer linear network, X W1 W2ᵀ. Nothing is trained.

    Exit code: 0 the theorem holds, 1 it does not."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class CertifyLinearResNet(LinearResNet):
    """Evaluate a theorem on a deep linear ResNet, B (I+W_L) … (I+W_1) A x with A, B fixed. Nothing is trained.

    Exit code: 0 the theorem holds, 1 it does not."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class CertifyImplicit(Implicit):
    """Evaluate a theorem on an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb. Nothing is trained.

    Exit code: 0 the theorem holds, 1 it does not, or no scale of the weights makes it hold."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class CertifyStepSizes(StepSizes):
    """Evaluate a theorem on learned step sizes: it holds for every network with this range. Nothing is trained.

    Exit code: 0 the theorem holds, 1 it does not."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Training:
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
    steps: Annotated[
        str | None, arg(metavar="RULE|FLOAT", help_behavior_hint="(default: the rule that the theorem speaks of)")
    ] = None
    """Step rule, or a number for a constant step; `surefoot list` names the rules."""
    max_iterations: Annotated[int, arg(metavar="INT")] = 10_000
    """Limit on the iterations."""
    tolerance: Annotated[float, arg(metavar="FLOAT")] = 1e-10
    """Stop at this gap (loss minus its optimal value), relative to the initial gap."""
    certify_every: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="Evaluate the theorem again every so many iterations, and follow it where it guarantees more.",
            help_behavior_hint="(default: never)",
        ),
    ] = None
    require_certificate: Flag = False
    """Do not train, and exit with 1, unless every step carries the guarantee."""
    quiet: Flag = False
    """Print only the outcome."""
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class TrainTwoLayer(Training, TwoLayer):
    """Certify, train, audit and evaluate a two-layer linear network, X W1 W2ᵀ.

    Exit code: 0 done (certified or not: it says which), 1 no guarantee under --require-certificate,
    4 diverged or no step lowers the loss, 130 after Ctrl-C, 143 after SIGTERM (both keep a checkpoint)."""

    engine: Annotated[
        Literal["auto", "gram", "weights"],
        arg(help="Iterate in Gram space, whose cost depends on neither width nor rows, or on the weights themselves."),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class TrainLinearResNet(Training, LinearResNet):
    """Certify, train, audit and evaluate a deep linear ResNet, B (I+W_L) … (I+W_1) A x with A, B fixed.

    Exit code: 0 done (certified or not: it says which), 1 no guarantee under --require-certificate,
    4 diverged or no step lowers the loss, 130 after Ctrl-C, 143 after SIGTERM (both keep a checkpoint)."""

    certify_every: Annotated[
        int | None,
        arg(
            metavar="INT|None",
            help="Evaluate linear-resnet/local again every so many iterations, and follow it where it guarantees more: "
            "a run that is not certified at its start may become so.",
            help_behavior_hint="(default: 10; None: never)",
        ),
    ] = 10
    engine: ClassVar[Literal["auto"]] = "auto"


@dataclass(frozen=True, kw_only=True)
class TrainImplicit(Training, Implicit):
    """Certify, train, audit and evaluate an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb.

    Exit code: 0 done (certified or not: it says which), 1 no guarantee (at any scale, or with --require-certificate),
    4 diverged, collapsed, ill posed or stuck, 130 after Ctrl-C, 143 after SIGTERM (both keep a checkpoint)."""

    steps: Annotated[
        str | None,
        arg(
            metavar="RULE|FLOAT",
            help="Step rule, or a number for a constant step; `surefoot list` names the rules. certified-constant takes "
            "the step of the certificate, and steps that lower the loss (Armijo's rule) while none holds.",
        ),
    ] = "certified-constant"
    tolerance: Annotated[float, arg(metavar="FLOAT")] = 1e-3
    """Stop at this loss, relative to the initial loss."""
    engine: ClassVar[Literal["auto"]] = "auto"


@dataclass(frozen=True, kw_only=True)
class TrainStepSizes(StepSizes):
    """Train a network that chooses step sizes; then solve fresh problems with it, certified, and compare.

    DIR gets the network (net.safetensors), its training (training/), and the run on the fresh problems, for `surefoot check`
    and `surefoot report`.

    Exit code: 0 done (certified or not: it says which), 1 no guarantee under --require-certificate,
    4 diverged, 130 after Ctrl-C, 143 after SIGTERM (both keep a checkpoint of the training)."""

    out: Annotated[str, arg(metavar="DIR")]
    """Directory to write: new, or empty."""
    resume: Annotated[
        bool,
        arg(
            help="Continue the training in DIR with the settings stored there; only --epochs may be given anew.",
            help_behavior_hint="",
        ),
    ] = False
    iterations: Annotated[int, arg(metavar="INT")] = 100
    """Iterations of the solver, in training and on the fresh problems."""
    epochs: Annotated[int, arg(metavar="INT")] = 100
    """Steps of training in total; 0 takes --weights as they are."""
    optimizer: Annotated[
        Literal["lbfgs", "adam", "sgd", "armijo"],
        arg(help="lbfgs and armijo search along the direction on the loss itself, and need the exact gradient."),
    ] = "lbfgs"
    learning_rate: Annotated[
        float | None,
        arg(metavar="FLOAT", help_behavior_hint="(default: 1 with lbfgs and armijo, 1e-3 with adam, 1e-7 with sgd)"),
    ] = None
    """Step of adam and sgd; first trial of lbfgs and armijo."""
    gradient: Annotated[
        Literal["exact", "detached"],
        arg(help="detached leaves out how the network's inputs depend on it: the paper's rule, and not a gradient."),
    ] = "exact"
    expansion: Annotated[
        float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 1; the weights themselves with --weights)")
    ] = None
    """Factor of the orthogonal initial weights; the paper takes 100."""
    require_certificate: Flag = False
    """Do not train, and exit with 1, unless the theorem holds."""
    quiet: Flag = False
    """Print only the outcome."""
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Evaluate a convergence theorem on your data and initial weights, before training."""

    system: (
        Annotated[CertifyTwoLayer, subcommand("two-layer")]
        | Annotated[CertifyLinearResNet, subcommand("linear-resnet")]
        | Annotated[CertifyImplicit, subcommand("implicit")]
        | Annotated[CertifyStepSizes, subcommand("step-sizes")]
    )


@dataclass(frozen=True, kw_only=True)
class Train:
    """Certify, train, audit, and write a run directory with a report."""

    system: (
        Annotated[TrainTwoLayer, subcommand("two-layer")]
        | Annotated[TrainLinearResNet, subcommand("linear-resnet")]
        | Annotated[TrainImplicit, subcommand("implicit")]
        | Annotated[TrainStepSizes, subcommand("step-sizes")]
    )


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check the certificates and checkpoints of a run, independently and rigorously.

    Exit code: 0 accept, 1 reject, 3 undecided."""

    directory: RunDirectory
    level: Annotated[
        Literal["fast"], arg(help="fast trusts numpy's matrix products within their a-priori error bounds.")
    ] = "fast"
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write report.html and PNG plots of a run into its directory."""

    directory: RunDirectory


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
            help="Directory with the image files of the implicit experiments.",
            help_behavior_hint="(default: the bundled digits)",
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


CertifySystem = CertifyTwoLayer | CertifyLinearResNet | CertifyImplicit
TrainSystem = TrainTwoLayer | TrainLinearResNet | TrainImplicit
Command = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Certify, subcommand("certify")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Check, subcommand("check", description="Check a run, independently and rigorously.")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Reproduce, subcommand("reproduce")]
    | Annotated[List, subcommand("list")]
)
