"""From options to the rows of a table: inputs scaled, targets chosen and centred, split into train and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import data as datasets
from .._core.losses import LinearMapLoss, SquaredLoss
from .options import LinearFit, Rows
from .screen import number

IN_MEMORY = 4 << 30
"""Largest memory-mapped X, in bytes of float64, that is read into memory to be standardised or whitened."""
COLLINEAR = 1e8
"""Condition numbers above this slow gradient descent so much that the inputs should be whitened."""


@dataclass(frozen=True)
class Table:
    """Data as the options ask for it.

    Attributes:
        train: the rows to fit.
        held_out: the test rows, scaled as the train rows were; ``None`` where the data has no split.
        offset: (m,) what centring took from the targets.
        classes: labels by column of the target; ``None`` in a regression.
        facts: the same in plain values.
    """

    train: datasets.Data
    held_out: datasets.Data | None
    offset: Tensor
    classes: Tensor | None
    facts: dict[str, Any]

    def predicted(self, output: Tensor) -> Tensor:
        """Labels (N,) from outputs (N, m): those of the largest columns, or of two classes by one column's nearer value."""
        assert self.classes is not None
        shifted = output + self.offset
        if len(self.classes) == 2 and shifted.shape[1] == 1:
            return self.classes[(shifted[:, 0] > 0.5).long()]
        return self.classes[shifted.argmax(1)]


def load(options: Rows, of_classes: str = "") -> Table:
    """Load and scale.

    Args:
        options: what to load.
        of_classes: the loss, as the option names it, where it fits class labels rather than numbers.

    Raises:
        ValueError: data that cannot be used this way, or options that contradict each other.
    """
    source = options.load()
    table, columns = scaled(source, options.inputs)
    kind = target_kind(table, options.targets, of_classes)
    offset = torch.zeros(1, dtype=torch.float64)
    if kind == "classes":
        assert table.labels is not None
        table = table.one_hot(centred=False)
    if kind == "classes" or options.targets in ("auto", "centred"):
        targets = table.train().Y if table.split is not None else table.Y
        assert targets is not None
        offset = targets.mean(0)
        table = table.centre_targets()
    train = table.train()
    facts = {
        "data": source.name,
        "train_rows": len(train.X),
        "test_rows": len(table.X) - len(train.X),
        "columns": columns,
        "inputs": options.inputs,
        "targets": kind,
        "prepared": "; ".join(train.notes),
    }
    return Table(
        train,
        table.test() if table.split is not None and bool(table.split.any()) else None,
        torch.zeros(1, dtype=torch.float64) if of_classes else offset,
        table.labels.unique() if kind == "classes" and table.labels is not None else None,
        facts,
    )


def scaled(source: datasets.Data, inputs: str) -> tuple[datasets.Data, int]:
    """The data with its inputs scaled, and the number of columns before."""
    columns = _columns(source)
    if inputs != "raw":
        source = in_memory(source, f"{inputs} in memory; pass --inputs raw, which reads it block by block, or scale")
    if inputs == "standardise":
        return source.standardise(), columns
    return (source.whiten() if inputs == "whiten" else source), columns


def in_memory(source: datasets.Data, purpose: str) -> datasets.Data:
    """The data with its inputs as a tensor, unless a memory-mapped file is too large for the purpose."""
    _columns(source)
    if isinstance(source.X, np.memmap) and 8 * source.X.size > IN_MEMORY:
        size = 8 * source.X.size / 2**30
        raise ValueError(f"{source.name} has {size:.0f} GiB, too much to {purpose} the file beforehand")
    return source.in_memory()


def _columns(source: datasets.Data) -> int:
    if isinstance(source.X, Mapping):
        raise ValueError(
            f"--data {source.name} holds photographs of various sizes, not rows of one table; "
            "use digits, diabetes, or a table of your own"
        )
    return source.X.shape[1]


def target_kind(data: datasets.Data, targets: str, of_classes: str = "") -> str:
    """``classes`` or ``numbers``; ``of_classes`` as ``load`` has it."""
    if data.Y is None and data.labels is None:
        raise ValueError(f"{data.name} has no targets; give them too, for example --data X.npy,Y.npy")
    if of_classes:
        if targets not in ("auto", "one-hot"):
            raise ValueError(f"--targets {targets} does not go with --loss {of_classes}, which fits classes")
        if data.labels is None:
            raise ValueError(f"{data.name} has no class labels, which --loss {of_classes} needs; use --loss squared")
        return "classes"
    if targets == "one-hot" or (targets == "auto" and data.Y is None):
        if data.labels is None:
            raise ValueError(f"{data.name} has no class labels for --targets one-hot; use --targets centred")
        return "classes"
    if data.Y is None:
        raise ValueError(f"{data.name} has class labels but no numbers to fit; use --targets one-hot")
    return "numbers"


def squared(options: LinearFit, table: Table) -> SquaredLoss:
    """The squared loss of the train rows.

    Raises:
        TypeError, ValueError: as ``SquaredLoss``.
    """
    return SquaredLoss(
        table.train.X,
        table.train.Y,
        l2=0.0 if options.l2 is None else options.l2,
        rcond=options.rcond,
        intercept=options.intercept,
    )


def table_facts(table: Table, loss: LinearMapLoss, name: str) -> dict[str, Any]:
    """Of rows and loss: n inputs, m outputs."""
    n, m = loss.shape
    condition = loss.smoothness / loss.strong_convexity if loss.strong_convexity > 0.0 else None
    rank = loss.reduced.shape[0]
    return {
        **table.facts,
        "n": n,
        "m": m,
        "rank": rank,
        "loss": name,
        "l2": loss.l2,
        "intercept": loss.has_intercept,
        "condition_number": condition,
    }


def rows_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Rows, loss and network, for people."""
    condition = facts["condition_number"]
    penalty = f" + l2/2 ‖W‖² with l2 = {facts['l2']:g}" if facts["l2"] else ""
    intercept = ", with an intercept" if facts["intercept"] else ""
    items = {
        "rows": f"{facts['train_rows']:,} to train on{held_out(facts)}",
        "inputs": inputs(facts),
        "targets": f"{facts['m']:,} {facts['targets'] if facts['m'] > 1 else 'number'}",
        "loss": f"{facts['loss']}{penalty}{intercept}, condition number κ = K/μ = {number(condition)}",
        "network": facts["network"],
    }
    if condition is not None and condition > COLLINEAR and facts["inputs"] != "whiten":
        items["beware"] = f"columns are nearly collinear or badly scaled (κ = {condition:.2g}): use --inputs whiten"
    if facts["prepared"]:
        items["prepared"] = facts["prepared"]
    return items


def held_out(facts: Mapping[str, Any]) -> str:
    """How many rows are held out, as the end of a sentence."""
    return f"; {facts['test_rows']:,} held out" if facts["test_rows"] else "; none held out"


def inputs(facts: Mapping[str, Any]) -> str:
    """How the inputs are scaled, for people."""
    scaling = {"standardise": "standardised", "whiten": "whitened", "raw": "as they are", "unit": "rows of norm 1"}
    columns = f"{facts['columns']:,} columns"
    if facts["n"] != facts["columns"]:
        columns += f", {facts['n']:,} kept"
    if facts.get("rank", facts["n"]) != facts["n"]:
        columns += f", rank {facts['rank']:,}"
    return f"{scaling[facts['inputs']]} ({columns})"
