"""From options to the samples of an implicit network: drawn, scaled, targets chosen, parallel rows found or merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .. import data as datasets
from .._cli.rows import Table, held_out, in_memory, inputs, scaled, target_kind
from .._cli.screen import count, number
from .._data.parallel_rows import RowReport, merge_rows, parallel_rows
from .command import Drawn

LISTED = 5
ROUNDING = 1e-12
"""Losses below this part of the sum of squares of the targets are rounding."""


@dataclass(frozen=True)
class Samples:
    """The drawn rows.

    Attributes:
        table: what to fit, and the held-out rows.
        unmerged: duplicate, parallel and all-zero rows among those to fit, in words; empty if there are none.
    """

    table: Table
    unmerged: str


def load_samples(options: Drawn, unit: bool, seed: int) -> Samples:
    """Load, draw, scale and, if asked to, merge.

    Args:
        options: what to draw.
        unit: whether inputs ``auto`` are unit rows.
        seed: of the draw.

    Raises:
        ValueError: data that cannot be used this way, or options that contradict each other.
    """
    if options.samples < 1:
        raise ValueError(f"--samples is {options.samples}; it must be at least 1")
    source = in_memory(options.load(), "draw rows from; cut")
    places = torch.arange(len(source.X))
    labels: Sequence[int] | None = None
    if options.classes is not None:
        labels = _labels(options.classes)
        if source.labels is not None:
            places = places[torch.isin(source.labels, torch.tensor(labels))]
        source = source.classes(*labels)
    kind = _kind(source, options.targets)
    if kind == "classes" and labels is None:
        assert source.labels is not None
        labels = source.labels.unique().tolist()
    available = len(places) if source.split is None else int((~source.split).sum())
    drawn, places = _drawn(source, places, kind, options.samples, seed)
    assert isinstance(drawn.X, Tensor)
    columns = drawn.X.shape[1]
    scaling: str = options.inputs
    if scaling == "auto":
        scaling = "unit" if unit else "standardise"
    data = _unit(drawn) if scaling == "unit" else scaled(drawn, scaling)[0]
    data, offset, classes = _with_targets(data, kind, options.targets)
    train = data.train()
    assert isinstance(train.X, Tensor) and train.Y is not None
    report = parallel_rows(train.X)
    merged, unmerged = "", ""
    if report and options.merge:
        smaller = merge_rows(train.X, train.Y)
        merged = f"{len(train.X):,} rows became {len(smaller.X):,}"
        if smaller.constant > ROUNDING * float((train.Y**2).sum()):
            merged += f"; conflicting labels, or those of all-zero rows, leave a loss of {smaller.constant:.6g} besides"
        train = replace(train, X=smaller.X, Y=smaller.Y, labels=None, split=None)
    elif report:
        unmerged = _described(report, places)
    facts = {
        "data": source.name,
        "train_rows": len(train.X),
        "drawn_rows": len(places),
        "available_rows": available,
        "test_rows": len(data.X) - len(places),
        "columns": columns,
        "inputs": scaling,
        "targets": kind,
        "classes": list(labels) if kind == "classes" and labels is not None else None,
        "parallel_groups": len(report.groups),
        "zero_rows": len(report.zero_rows),
        "prepared": "; ".join(data.notes),
        "merged": merged,
        "unmerged": unmerged,
    }
    test = data.test() if data.split is not None and bool(data.split.any()) else None
    return Samples(Table(train, test, offset, classes, facts), unmerged)


def _labels(text: str) -> list[int]:
    try:
        labels = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--classes is {text!r}; name class labels, separated by commas, for example 0,1") from None
    if len(labels) < 2:
        raise ValueError(f"--classes is {text!r}; name at least two classes, for example 0,1")
    return labels


def _kind(source: datasets.Data, targets: str) -> str:
    """``classes`` or ``numbers``."""
    if targets == "classes" and source.labels is None:
        raise ValueError(f"{source.name} has no class labels for --targets classes; use --targets centred")
    if targets != "classes" and source.Y is None and source.labels is not None and targets != "auto":
        raise ValueError(f"{source.name} has class labels but no numbers to fit; use --targets classes")
    kind = target_kind(source, {"classes": "one-hot"}.get(targets, targets))
    if kind == "classes":
        assert source.labels is not None
        if len(source.labels.unique()) < 2:
            raise ValueError(f"{source.name} has one class only; there is nothing to tell apart")
    return kind


def _drawn(source: datasets.Data, places: Tensor, kind: str, samples: int, seed: int) -> tuple[datasets.Data, Tensor]:
    """The data with the drawn train rows and all test rows, and where the drawn rows stand in the file."""
    split = torch.zeros(len(places), dtype=torch.bool) if source.split is None else source.split
    train = (~split).nonzero().flatten()
    if len(train) == 0:
        raise ValueError(f"{source.name} has no train rows among those asked for")
    groups = [train]
    if kind == "classes":
        assert source.labels is not None
        groups = [train[source.labels[train] == label] for label in source.labels.unique()]
        groups = [group for group in groups if len(group)]
        if samples < len(groups):
            raise ValueError(
                f"--samples is {samples}, fewer than the {len(groups)} classes; use at least one row of each"
            )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.cat(
        [
            group[torch.randperm(len(group), generator=generator)[:quota]]
            for group, quota in zip(groups, quotas([len(g) for g in groups], samples), strict=True)
        ]
    )
    keep = split.clone()
    keep[chosen] = True
    assert isinstance(source.X, Tensor)
    data = replace(
        source,
        X=source.X[keep],
        Y=None if source.Y is None else source.Y[keep],
        labels=None if source.labels is None else source.labels[keep],
        split=split[keep],
    )
    return data, places[chosen.sort().values]


def quotas(sizes: Sequence[int], total: int) -> list[int]:
    """How many of each group to draw so that there are ``total``: in proportion to the sizes, at least one of each."""
    if total >= sum(sizes):
        return list(sizes)
    exact = [total * size / sum(sizes) for size in sizes]
    quotas = [max(1, int(share)) for share in exact]
    while sum(quotas) != total:
        missing = [share - quota for share, quota in zip(exact, quotas, strict=True)]
        if sum(quotas) < total:
            quotas[missing.index(max(missing))] += 1
        else:
            quotas[min((i for i in range(len(quotas)) if quotas[i] > 1), key=lambda i: missing[i])] -= 1
    return quotas


def _unit(data: datasets.Data) -> datasets.Data:
    """Every row divided by its norm, all-zero rows as they are."""
    assert isinstance(data.X, Tensor)
    largest = data.X.abs().amax(dim=1, keepdim=True)
    rows = data.X / torch.where(largest > 0.0, largest, 1.0)  # so that no square overflows or underflows
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return replace(data, X=rows / torch.where(norms > 0.0, norms, 1.0))


def _with_targets(data: datasets.Data, kind: str, targets: str) -> tuple[datasets.Data, Tensor, Tensor | None]:
    """The data with Y; what centring took from it; and the labels that columns stand for."""
    none = torch.zeros(1, dtype=torch.float64)
    if kind == "classes":
        assert data.labels is not None
        classes = data.labels.unique()
        if len(classes) == 2:
            return replace(data, Y=(data.labels == classes[1]).double()[:, None]), none, classes
        return data.one_hot(centred=False), none, classes
    if targets == "raw":
        return data, none, None
    centred = data.centre_targets()
    assert centred.Y is not None and data.Y is not None
    return centred, data.Y[0] - centred.Y[0], None


def _described(report: RowReport, places: Tensor) -> str:
    """Parallel and all-zero rows by where they stand in the file."""
    parts = []
    for group in report.groups[:LISTED]:
        relation = "equal" if group.duplicates else "positive multiples of each other"
        parts.append(f"rows {_listed(places[list(group.rows)].tolist())} are {relation}")
    if len(report.groups) > LISTED:
        parts.append(f"so are those of {len(report.groups) - LISTED} more groups")
    if report.zero_rows:
        zero = places[list(report.zero_rows)].tolist()
        parts.append(f"row{'s' if len(zero) > 1 else ''} {_listed(zero)} {'are' if len(zero) > 1 else 'is'} all zero")
    return f"{'; '.join(parts)} (counted from 0)"


def _listed(rows: Sequence[int]) -> str:
    more = f" and {len(rows) - LISTED} more" if len(rows) > LISTED else ""
    return ", ".join(str(row) for row in rows[:LISTED]) + more


def shown(facts: Mapping[str, Any]) -> dict[str, str]:
    """The problem, for people."""
    drawn, available = facts["drawn_rows"], facts["available_rows"]
    rows = f"all {available:,} to train on" if drawn == available else f"{drawn:,} drawn of {available:,} to train on"
    classes = facts["classes"]
    if classes is None:
        targets = f"{facts['m']:,} numbers" if facts["m"] > 1 else "1 number"
    elif facts["m"] == 1:
        targets = f"1 column: 0 for class {classes[0]}, 1 for class {classes[1]}"
    else:
        targets = f"{len(classes)} classes, one-hot"
    items = {"rows": f"{rows}{held_out(facts)}", "inputs": inputs(facts), "targets": targets}
    if facts["prepared"]:
        items["prepared"] = facts["prepared"]
    if facts["merged"]:
        items["merged"] = facts["merged"]
    if facts["unmerged"]:
        items["beware"] = f"{facts['unmerged']}; --merge merges them"
    items |= {
        "loss": "squared; the guarantees speak of its way to 0",
        "network": facts["network"],
        "contraction": f"γ‖A‖ at most {number(facts['contraction'], towards='up')} (below 1: the equilibrium exists)",
    }
    items |= {name: facts[name] for name in ("trained", "finished") if facts.get(name)}
    if facts["dead_units"]:
        items["dead units"] = f"{count(facts['dead_units'])} of {count(facts['width'])} are 0 on every row"
    return items
