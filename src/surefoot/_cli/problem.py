"""From options to data, loss and network, and the evaluation on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import data as datasets
from .._core.losses import Loss, SquaredLoss
from .._core.softmax import SoftmaxRegression
from .._two_layer.network import TwoLayerLinear
from .options import TwoLayer

IN_MEMORY = 4 << 30
"""Largest memory-mapped X, in bytes of float64, that is read into memory to be standardised or whitened."""


@dataclass(frozen=True)
class Problem:
    """A two-layer problem as built from options.

    Attributes:
        net: the network with its initial weights.
        loss: of the train rows.
        facts: what the certificate will speak of, in plain values.
        held_out: the test rows, scaled as the train rows were; ``None`` where the data has no split.
        offset: (m,) what centring took from the targets.
        classes: labels by column of the output; ``None`` in a regression.
    """

    net: TwoLayerLinear
    loss: Loss
    facts: dict[str, Any]
    held_out: datasets.Data | None
    offset: Tensor
    classes: Tensor | None

    def evaluate(self) -> dict[str, float]:
        """Quality of the network on the held-out rows, with that of the loss's minimiser; empty without such rows."""
        if self.held_out is None:
            return {}
        X = self.held_out.X
        assert isinstance(X, Tensor)
        with torch.no_grad():
            outputs = {"": self.net(X), "optimum_": X @ self.loss.optimum}
        scores: dict[str, float] = {"test_rows": len(X)}
        for prefix, output in outputs.items():
            if self.classes is not None:
                assert self.held_out.labels is not None
                predicted = self.classes[(output + self.offset).argmax(1)]
                scores[f"{prefix}test_accuracy"] = float((predicted == self.held_out.labels).double().mean())
            else:
                assert self.held_out.Y is not None
                error = output - self.held_out.Y
                spread = self.held_out.Y - self.held_out.Y.mean(0)
                scores[f"{prefix}test_rmse"] = float((error**2).mean().sqrt())
                if float((spread**2).sum()) > 0.0:
                    scores[f"{prefix}test_r2"] = 1.0 - float((error**2).sum() / (spread**2).sum())
        return scores


def build(options: TwoLayer) -> Problem:
    """Load, scale, and draw the weights.

    Raises:
        ValueError: data that cannot be used this way, or options that contradict each other.
    """
    source = datasets.load(options.data)
    scaled, columns = _scaled(source, options.inputs)
    kind = _target_kind(scaled, options)
    offset = torch.zeros(1, dtype=torch.float64)
    if kind == "classes":
        assert scaled.labels is not None
        scaled = scaled.one_hot(centred=False)
    if kind == "classes" or options.targets in ("auto", "centred"):
        targets = scaled.train().Y if scaled.split is not None else scaled.Y
        assert targets is not None
        offset = targets.mean(0)
        scaled = scaled.centre_targets()
    train = scaled.train()
    classes = scaled.labels.unique() if kind == "classes" and scaled.labels is not None else None
    loss = _loss(train, classes, options)
    if options.loss == "softmax":
        offset = torch.zeros(1, dtype=torch.float64)
    n, m = loss.shape
    width = options.width if options.width is not None else max(1000, 2 * (n + m))
    if width < 1:
        raise ValueError(f"--width is {width}; it must be at least 1")
    std = options.std if options.std is not None else width**-0.5
    net = TwoLayerLinear.gaussian(n, m, width, std=std, seed=options.seed)
    rank = loss.reduced.shape[0]
    facts = {
        "data": source.name,
        "train_rows": len(train.X),
        "test_rows": len(scaled.X) - len(train.X),
        "columns": columns,
        "inputs": options.inputs,
        "n": n,
        "m": m,
        "rank": rank,
        "targets": kind,
        "loss": options.loss,
        "condition_number": loss.smoothness / loss.strong_convexity if loss.strong_convexity > 0.0 else None,
        "width": width,
        "std": std,
        "seed": options.seed,
    }
    held_out = scaled.test() if scaled.split is not None and bool(scaled.split.any()) else None
    return Problem(net, loss, facts, held_out, offset, classes)


def _scaled(source: datasets.Data, inputs: str) -> tuple[datasets.Data, int]:
    """The data with its inputs scaled, and the number of columns before."""
    if isinstance(source.X, Mapping):
        raise ValueError(
            f"--data {source.name} holds photographs of various sizes, not rows of one table; "
            "for two-layer networks use digits, diabetes, or a table of your own"
        )
    columns = source.X.shape[1]
    if isinstance(source.X, np.memmap) and inputs != "raw":
        size = 8 * source.X.size
        if size > IN_MEMORY:
            raise ValueError(
                f"{source.name} has {size / 2**30:.0f} GiB, too much to {inputs} in memory; "
                "pass --inputs raw, which reads it block by block, or scale the file beforehand"
            )
        source = source.in_memory()
    if inputs == "standardise":
        return source.standardise(), columns
    return (source.whiten() if inputs == "whiten" else source), columns


def _target_kind(data: datasets.Data, options: TwoLayer) -> str:
    """``classes`` or ``numbers``."""
    if data.Y is None and data.labels is None:
        raise ValueError(f"{data.name} has no targets; give them too, for example --data X.npy,Y.npy")
    if options.loss == "softmax":
        if options.targets not in ("auto", "one-hot"):
            raise ValueError(f"--targets {options.targets} does not go with --loss softmax, which fits classes")
        if data.labels is None:
            raise ValueError(f"{data.name} has no class labels, which --loss softmax needs; use --loss squared")
        return "classes"
    if options.l2 is not None:
        raise ValueError("--l2 belongs to --loss softmax; leave it out, or choose that loss")
    if options.targets == "one-hot" or (options.targets == "auto" and data.Y is None):
        if data.labels is None:
            raise ValueError(f"{data.name} has no class labels for --targets one-hot; use --targets centred")
        return "classes"
    if data.Y is None:
        raise ValueError(f"{data.name} has class labels but no numbers to fit; use --targets one-hot")
    return "numbers"


def _loss(train: datasets.Data, classes: Tensor | None, options: TwoLayer) -> Loss:
    if options.loss == "squared":
        return SquaredLoss(train.X, train.Y)
    assert classes is not None and train.labels is not None
    l2 = 1e-3 if options.l2 is None else options.l2
    return SoftmaxRegression(train.X, torch.searchsorted(classes, train.labels), l2, len(classes))
