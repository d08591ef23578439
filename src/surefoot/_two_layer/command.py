"""The commands ``certify two-layer`` and ``train two-layer``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from tyro.conf import arg

from .._cli.built import Built, Question, at_least_one, check_seed
from .._cli.errors import NoCertificate
from .._cli.options import LinearFit, certify_exits, train_exits
from .._cli.rows import load, rows_of, squared, table_facts
from .._cli.training import Certifying, Training
from .._core.losses import LinearMapLoss
from .._core.refusals import NotCertifiable
from .._core.softmax import SoftmaxRegression
from .._report.wording import share
from .command_ratings import RANK
from .command_ratings import built as ratings
from .network import TwoLayerLinear
from .start import movement


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
            metavar="FLOAT",
            help="Weight of the penalty l2/2 ‖W‖² of the linear map.",
            help_behavior_hint="(default: 0; 1e-3 with softmax)",
        ),
    ] = None
    width: Annotated[
        int | None,
        arg(
            metavar="INT",
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
    std: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 1/sqrt(width) with gaussian)")] = (
        None
    )
    """Standard deviation of gaussian weights."""
    scale: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="Multiple of the orthonormal rows: the larger, the fewer iterations are guaranteed, and the less weights move.",
            help_behavior_hint="(default with certifiable: the least that guarantees about as few as any)",
        ),
    ] = None
    moved: Annotated[
        float | None,
        arg(
            metavar="FLOAT",
            help="In its place, how far the weights shall move, relative to their norm; the multiple follows from it.",
            help_behavior_hint="(default: as --scale says)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
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
        return _built(self)


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


def _built(options: TwoLayer) -> Built:
    check_seed(options.seed)
    chosen = (f"start {options.start}", f"loss {options.loss}")
    for name, value, owner in (
        ("std", options.std, "start gaussian"),
        ("scale", options.scale, "start certifiable"),
        ("moved", options.moved, "start certifiable"),
        ("rcond", options.rcond, "loss squared"),
        ("intercept", options.intercept or None, "loss squared"),
    ):
        if value is not None and owner not in chosen:
            raise ValueError(f"--{name} belongs to --{owner}; leave it out, or choose that {owner.split()[0]}")
    if options.loss == "completion":
        if options.l2 is not None:
            raise ValueError("--l2 belongs to --loss squared or softmax; leave it out, or choose one of these")
        return ratings(options, partial(_drawn, options))
    table = load(options, options.loss if options.loss == "softmax" else "")
    loss: LinearMapLoss
    if options.loss == "softmax":
        assert table.classes is not None and table.train.labels is not None
        l2 = 1e-3 if options.l2 is None else options.l2
        labels = torch.searchsorted(table.classes, table.train.labels)
        loss = SoftmaxRegression(table.train.X, labels, l2, len(table.classes))
    else:
        loss = squared(options, table)
    facts = table_facts(table, loss, options.loss)
    net, own = _drawn(options, loss, facts)
    facts |= own
    return Built(net, loss, facts, table, rows_of(facts))


def _drawn(options: TwoLayer, loss: LinearMapLoss, facts: Mapping[str, Any]) -> tuple[TwoLayerLinear, dict[str, Any]]:
    """The network, and its facts; ``facts`` are of the problem."""
    net, own, drawn = _network(options, loss, facts)
    product = "W1 W2ᵀ" if options.loss == "completion" else "X W1 W2ᵀ"
    return net, {
        "network": f"{product}, width {net.width:,}, {drawn}",
        "width": net.width,
        "start": options.start,
        **own,
        "seed": options.seed,
    }


def _network(
    options: TwoLayer, loss: LinearMapLoss, facts: Mapping[str, Any]
) -> tuple[TwoLayerLinear, dict[str, float], str]:
    """The network, what its weights were drawn with, and both in words; ``facts`` are of the problem."""
    n, m = loss.shape
    if options.width is not None:
        at_least_one("--width", options.width)
    if options.start == "gaussian":
        usual = RANK if options.loss == "completion" else max(1000, 2 * (n + m))
        width = options.width if options.width is not None else usual
        std = options.std if options.std is not None else width**-0.5
        net = TwoLayerLinear.gaussian(n, m, width, std=std, seed=options.seed)
        return net, {"std": std}, f"weights N(0, {std:.3g}²), seed {options.seed}"
    chosen = {"theorem": options.theorem, "scale": options.scale, "moved": options.moved}
    try:
        net = TwoLayerLinear.certifiable(loss, options.width, seed=options.seed, **chosen)
    except NotCertifiable as error:
        raise NoCertificate(str(error), facts) from error
    scale = float(net.W1.detach()[0].norm())
    expected = movement(loss, scale)
    drawn = f"rows {scale:.4g} times orthonormal ones, seed {options.seed}; to move by about {share(expected)} of their norm"
    return net, {"scale": scale, "expected_movement": expected}, drawn
