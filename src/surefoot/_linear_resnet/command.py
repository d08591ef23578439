"""The commands ``certify linear-resnet`` and ``train linear-resnet``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from torch import Tensor
from tyro.conf import arg

from .._cli.built import Built, Question, at_least_one, check_seed
from .._cli.options import Batched, Flag, LinearFit, certify_exits, train_exits
from .._cli.rows import load, rows_of, squared, table_facts
from .._cli.training import Certifying, Training
from .._core.losses import SquaredLoss
from .network import LinearResNet, sufficient_alpha
from .system import LinearResNetSystem


@dataclass(frozen=True, kw_only=True)
class Transformed(Batched, LinearFit, Question):
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
    """Seed of gaussian transformations and of batches."""
    project: Flag = False
    """Fit the part of the targets that X can fit: what --batch needs, and gradient descent does not."""
    theorem: Annotated[
        str | None,
        arg(metavar="NAME", help_behavior_hint="(default: linear-resnet/local; with --batch linear-resnet/sgd-local)"),
    ] = None
    """Theorem to evaluate; `surefoot list` names them."""

    def build(self) -> Built:
        return _built(self)


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
            metavar="INT|None",
            help="Evaluate linear-resnet/local again every so many iterations, and follow it where it guarantees more: "
            "a run that is not certified at its start may become so.",
            help_behavior_hint="(default: 10; None: never)",
        ),
    ] = 10


def _built(options: Transformed) -> Built:
    check_seed(options.seed)
    transform = options.transform
    for name, value, owner in (
        ("alpha", options.alpha, "modified-identity"),
        ("scaling", options.scaling, "gaussian"),
    ):
        if value is not None and transform != owner:
            raise ValueError(f"--{name} belongs to --transform {owner}; leave it out, or choose that transform")
    at_least_one("--depth", options.depth)
    table = load(options)
    loss, X = squared(options, table), table.train.X
    assert isinstance(X, Tensor)
    if loss.samples is None and (options.project or options.batch is not None):
        raise ValueError("--batch and --project go with the squares alone; leave out --l2, --rcond and --intercept")
    Y = X @ loss.optimum if options.project else table.train.Y
    if options.project:
        loss = SquaredLoss(X, Y)
    d, k = loss.shape
    default = max(1000, 2 * (d + k)) if transform == "gaussian" else d + k
    width = options.width if options.width is not None else default
    at_least_one("--width", width)
    own: dict[str, Any] = {}
    if transform == "gaussian":
        scaling = options.scaling or "fan"
        net = LinearResNet.gaussian(d, k, width, options.depth, scaling, seed=options.seed)
        own = {"scaling": scaling, "seed": options.seed}
        shown = f"gaussian ({scaling}), seed {options.seed}"
    elif transform == "identity":
        net = LinearResNet.identity(d, k, width, options.depth)
        shown = transform
    else:
        alpha = _alpha(options.alpha, loss)
        net = LinearResNet.modified_identity(d, k, width, options.depth, alpha)
        own = {"alpha": alpha}
        shown = f"{transform}, α = {alpha:.6g}"
    facts = {
        **table_facts(table, loss, "squared"),
        "network": f"B (I+W_L) … (I+W_1) A x, depth {options.depth:,}, width {width:,}, W = 0; A and B {shown}",
        "depth": options.depth,
        "width": width,
        **({} if options.batch is None else {"batch": options.batch}),
        "transform": transform,
        **own,
    }
    drawing = options.drawing(options.seed)
    drawn = loss if drawing is None else LinearResNetSystem().drawn(net, X, Y, drawing)
    shown = rows_of(facts)
    if drawing is not None:
        shown["rows"] += f", batches of {options.batch:,}"
    if options.project:
        shown["targets"] += ", projected onto what X can fit"
    return Built(net, drawn, facts, table, shown)


def _alpha(alpha: str | None, loss: SquaredLoss) -> float:
    """α as a number; any will do where zero weights are optimal already."""
    if alpha is None or alpha == "sufficient":
        return sufficient_alpha(loss) or 1.0
    try:
        return float(alpha)
    except ValueError:
        raise ValueError(f"--alpha is {alpha!r}; it must be a positive number or 'sufficient'") from None
