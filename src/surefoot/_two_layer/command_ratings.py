"""``--loss completion``: a table of row, column and value, such as ratings of items by users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import data as datasets
from .._cli.built import Built
from .._cli.options import Rows
from .._cli.rows import Table, held_out, in_memory
from .._cli.screen import number
from .._core.completion import MatrixCompletion
from .network import TwoLayerLinear


@dataclass(frozen=True)
class Ratings(Built):
    """Built of such a table: the scores are those of the observations held out."""

    net: TwoLayerLinear

    def evaluate(self) -> dict[str, float]:
        """Error on the observations held out, and R², which compares it with their mean; empty where there are none."""
        unseen = self.table.held_out
        if unseen is None:
            return {}
        assert isinstance(unseen.X, Tensor) and unseen.Y is not None
        rows, columns = unseen.X.long().unbind(1)
        with torch.no_grad():
            error = (self.net.W1[rows] * self.net.W2[columns]).sum(1) - unseen.Y[:, 0]
        scores = {"test_rows": len(error), "test_rmse": float((error**2).mean().sqrt())}
        spread = float(((unseen.Y - unseen.Y.mean()) ** 2).sum())
        return scores | ({"test_r2": 1.0 - float((error**2).sum()) / spread} if spread > 0.0 else {})


def numbered(options: Rows) -> tuple[MatrixCompletion, Table]:
    """The loss of the train observations, and all of them with rows and columns counted from 0, values less their mean.

    Raises:
        ValueError: data that is no such table, or options that do not go with it.
    """
    if options.inputs == "whiten" or options.targets == "one-hot":
        raise ValueError(
            "--loss completion takes numbers of rows and columns, and values: no whitening, no one-hot targets"
        )
    source = in_memory(options.load(), "number")
    X, Y = source.X, source.Y
    assert isinstance(X, Tensor)
    if X.shape[1] != 2 or Y is None or Y.shape[1] != 1 or not bool((X.round() == X).all()):
        raise ValueError(
            f"{source.name} has {X.shape[1]} columns beside the targets; --loss completion needs a table of three: the whole "
            "numbers that tell rows and columns of the matrix, and the value"
        )
    ids = [column.unique(return_inverse=True) for column in X.T]
    entries = torch.stack([inverse for _, inverse in ids], 1)
    split = torch.zeros(len(X), dtype=torch.bool) if source.split is None else source.split
    mean = torch.zeros(1, dtype=Y.dtype) if options.targets == "raw" else Y[~split].mean(0)

    def part(rows: Tensor) -> datasets.Data:
        return datasets.Data(entries[rows].double(), Y[rows] - mean, name=source.name)

    train = part(~split)
    facts = {
        "data": source.name,
        "train_rows": len(train.X),
        "test_rows": int(split.sum()),
        "columns": 2,
        "inputs": "raw",
        "targets": "numbers",
        "prepared": "; ".join(source.notes),
    }
    seen = entries[~split]
    loss = MatrixCompletion(seen[:, 0], seen[:, 1], (Y[~split] - mean)[:, 0], [len(names) for names, _ in ids])
    return loss, Table(train, part(split) if bool(split.any()) else None, mean, None, facts)


def built(
    options: Rows, network: Callable[[MatrixCompletion, dict[str, Any]], tuple[TwoLayerLinear, dict[str, Any]]]
) -> Ratings:
    """Loss and table of the options; ``network`` is of the loss and the facts, and returns its own facts too."""
    loss, table = numbered(options)
    n, m = loss.shape
    condition = loss.smoothness / loss.strong_convexity
    facts = {**table.facts, "n": n, "m": m, "rank": n, "loss": "completion", "condition_number": condition}
    net, own = network(loss, facts)
    shown = {
        "rows": f"{facts['train_rows']:,} observations to train on{held_out(facts)}",
        "matrix": f"{n:,} rows and {m:,} columns, {len(loss.values) / (n * m):.2%} of its entries observed",
        "targets": "numbers as they are"
        if options.targets == "raw"
        else f"numbers less their mean, {float(table.offset):.4g}",
        "loss": f"completion, condition number κ = K/μ = {number(condition)}",
        "network": own["network"],
    }
    if facts["prepared"]:
        shown["prepared"] = facts["prepared"]
    return Ratings(net, loss, facts | own, table, shown)
