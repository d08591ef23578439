"""From options to loss and network, and the evaluation on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._core.losses import LinearMapLoss, SquaredLoss
from .._core.softmax import SoftmaxRegression
from .._linear_resnet.network import LinearResNet, sufficient_alpha
from .._two_layer.network import TwoLayerLinear
from . import options as given
from .rows import Table, load


@dataclass(frozen=True)
class Problem:
    """A problem as built from options.

    Attributes:
        net: the network with its initial weights.
        loss: of the train rows.
        facts: what the certificate will speak of, in plain values.
        table: the rows.
    """

    net: nn.Module
    loss: LinearMapLoss
    facts: dict[str, Any]
    table: Table

    def evaluate(self) -> dict[str, float]:
        """Quality of the network on the held-out rows, with that of the loss's minimiser; empty without such rows."""
        held_out, classes = self.table.held_out, self.table.classes
        if held_out is None:
            return {}
        X = held_out.X
        assert isinstance(X, Tensor)
        with torch.no_grad():
            outputs = {"": self.net(X), "optimum_": X @ self.loss.optimum}
        scores: dict[str, float] = {"test_rows": len(X)}
        for prefix, output in outputs.items():
            if classes is not None:
                assert held_out.labels is not None
                predicted = classes[(output + self.table.offset).argmax(1)]
                scores[f"{prefix}test_accuracy"] = float((predicted == held_out.labels).double().mean())
            else:
                assert held_out.Y is not None
                error = output - held_out.Y
                spread = held_out.Y - held_out.Y.mean(0)
                scores[f"{prefix}test_rmse"] = float((error**2).mean().sqrt())
                if float((spread**2).sum()) > 0.0:
                    scores[f"{prefix}test_r2"] = 1.0 - float((error**2).sum() / (spread**2).sum())
        return scores


def build(options: given.TwoLayer | given.LinearResNet) -> Problem:
    """Load, scale, and set the initial weights.

    Raises:
        ValueError: data that cannot be used this way, or options that contradict each other.
    """
    return _two_layer(options) if isinstance(options, given.TwoLayer) else _linear_resnet(options)


def _two_layer(options: given.TwoLayer) -> Problem:
    if options.l2 is not None and options.loss != "softmax":
        raise ValueError("--l2 belongs to --loss softmax; leave it out, or choose that loss")
    table = load(options, labels=options.loss == "softmax")
    loss: LinearMapLoss
    if options.loss == "softmax":
        assert table.classes is not None and table.train.labels is not None
        l2 = 1e-3 if options.l2 is None else options.l2
        labels = torch.searchsorted(table.classes, table.train.labels)
        loss = SoftmaxRegression(table.train.X, labels, l2, len(table.classes))
    else:
        loss = SquaredLoss(table.train.X, table.train.Y)
    n, m = loss.shape
    width = options.width if options.width is not None else max(1000, 2 * (n + m))
    _at_least_one("--width", width)
    std = options.std if options.std is not None else width**-0.5
    net = TwoLayerLinear.gaussian(n, m, width, std=std, seed=options.seed)
    facts = {
        **_facts(table, loss, options.loss),
        "network": f"X W1 W2ᵀ, width {width:,}, weights N(0, {std:.3g}²), seed {options.seed}",
        "width": width,
        "std": std,
        "seed": options.seed,
    }
    return Problem(net, loss, facts, table)


def _linear_resnet(options: given.LinearResNet) -> Problem:
    transform = options.transform
    for name, value, owner in (
        ("alpha", options.alpha, "modified-identity"),
        ("scaling", options.scaling, "gaussian"),
    ):
        if value is not None and transform != owner:
            raise ValueError(f"--{name} belongs to --transform {owner}; leave it out, or choose that transform")
    _at_least_one("--depth", options.depth)
    table = load(options)
    loss = SquaredLoss(table.train.X, table.train.Y)
    d, k = loss.shape
    default = max(1000, 2 * (d + k)) if transform == "gaussian" else d + k
    width = options.width if options.width is not None else default
    _at_least_one("--width", width)
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
        **_facts(table, loss, "squared"),
        "network": f"B (I+W_L) … (I+W_1) A x, depth {options.depth:,}, width {width:,}, W = 0; A and B {shown}",
        "depth": options.depth,
        "width": width,
        "transform": transform,
        **own,
    }
    return Problem(net, loss, facts, table)


def _alpha(alpha: str | None, loss: SquaredLoss) -> float:
    """α as a number; any will do where zero weights are optimal already."""
    if alpha is None or alpha == "sufficient":
        return sufficient_alpha(loss) or 1.0
    try:
        return float(alpha)
    except ValueError:
        raise ValueError(f"--alpha is {alpha!r}; it must be a positive number or 'sufficient'") from None


def _facts(table: Table, loss: LinearMapLoss, name: str) -> dict[str, Any]:
    """Of rows and loss: n inputs, m outputs."""
    n, m = loss.shape
    condition = loss.smoothness / loss.strong_convexity if loss.strong_convexity > 0.0 else None
    rank = loss.reduced.shape[0]
    return {**table.facts, "n": n, "m": m, "rank": rank, "loss": name, "condition_number": condition}


def _at_least_one(option: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{option} is {value}; it must be at least 1")
