"""The options of each system, as dataclasses from which the parser and the help texts are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc
from typing import Annotated, ClassVar, Literal, TypeVar

from tyro.conf import arg

Flag = Annotated[bool, arg(help_behavior_hint="")]
Json = Annotated[bool, arg(help="Print JSON, and nothing else, on standard output.", help_behavior_hint="")]
KeepProblem = Annotated[
    str | None,
    arg(
        metavar="FILE",
        help="Write the problem's arrays there if they take more than 256 MiB, for `surefoot check DIR --data FILE`; smaller "
        "ones are in DIR.",
        help_behavior_hint="(default: only their hashes are kept)",
    ),
]
Options = TypeVar("Options")


def certify_exits(one: str = "it does not") -> Callable[[type[Options]], type[Options]]:
    """End the help text of a form of ``certify`` with its exit codes; ``one`` says what 1 means."""
    return _ending(f"Exit code: 0 the theorem holds, 1 {one}.")


def train_exits(
    one: str = "no guarantee under --require-certificate",
    four: str = "diverged or no step lowers the loss",
    kept: str = "a checkpoint",
) -> Callable[[type[Options]], type[Options]]:
    """End the help text of a form of ``train`` with its exit codes; ``kept`` says what a signal leaves behind."""
    return _ending(
        f"Exit code: 0 done (certified or not: it says which), 1 {one},\n"
        f"4 {four}, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP (all keep {kept})."
    )


def _ending(text: str) -> Callable[[type[Options]], type[Options]]:
    """A decorator that adds a paragraph to the docstring, which is the help text."""

    def add(options: type[Options]) -> type[Options]:
        options.__doc__ = f"{cleandoc(options.__doc__ or '')}\n\n{text}"
        return options

    return add


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


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class CertifyTwoLayer(TwoLayer):
    """Evaluate a theorem on a two-layer linear network, X W1 W2ᵀ. Nothing is trained."""

    json: Json = False


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class CertifyLinearResNet(LinearResNet):
    """Evaluate a theorem on a deep linear ResNet, B (I+W_L) … (I+W_1) A x with A, B fixed. Nothing is trained."""

    json: Json = False


@certify_exits("it does not, or no scale of the weights makes it hold")
@dataclass(frozen=True, kw_only=True)
class CertifyImplicit(Implicit):
    """Evaluate a theorem on an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb. Nothing is trained."""

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
    keep_problem: KeepProblem = None
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


@train_exits()
@dataclass(frozen=True, kw_only=True)
class TrainTwoLayer(Training, TwoLayer):
    """Certify, train, audit and evaluate a two-layer linear network, X W1 W2ᵀ."""

    engine: Annotated[
        Literal["auto", "gram", "weights"],
        arg(help="Iterate in Gram space, whose cost depends on neither width nor rows, or on the weights themselves."),
    ] = "auto"


@train_exits()
@dataclass(frozen=True, kw_only=True)
class TrainLinearResNet(Training, LinearResNet):
    """Certify, train, audit and evaluate a deep linear ResNet, B (I+W_L) … (I+W_1) A x with A, B fixed."""

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


@train_exits("no guarantee (at any scale, or with --require-certificate)", "diverged, collapsed, ill posed or stuck")
@dataclass(frozen=True, kw_only=True)
class TrainImplicit(Training, Implicit):
    """Certify, train, audit and evaluate an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb."""

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


CertifySystem = CertifyTwoLayer | CertifyLinearResNet | CertifyImplicit
TrainSystem = TrainTwoLayer | TrainLinearResNet | TrainImplicit
