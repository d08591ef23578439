"""What becomes of a table: targets chosen, rows dropped, categories made columns, missing values filled; all of it noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from surefoot_check.text import counted

from .arrays import whole_labels
from .cells import Cells, TableOptions, listed, shown
from .dataset import Data
from .errors import DataError
from .holdout import holdout
from .sizes import ALWAYS, EXPANSION

MOST_CATEGORIES = 1000
"""Of one column: more are names or numbers of things."""
Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def prepared(cells: Cells, options: TableOptions, split_seed: int, test_fraction: float) -> Data:
    """The data of a table. Means and categories are those of the train rows.

    Raises:
        DataError: text or missing values where the options do not take them, or a target that is not there.
    """
    targets = cells.find(options.target)
    notes = [_chosen(cells, targets)] if options.target is not None else []
    _require_numbers(cells, options)
    gaps = cells.missing
    incomplete: Mask = np.any(gaps, axis=1)
    if options.missing == "drop" and incomplete.any():
        if incomplete.all():
            raise DataError(f"{cells.source}: each of the {len(gaps)} rows has a missing value; fill them in")
        notes.append(f"{int(incomplete.sum())} of {len(gaps)} rows dropped, which have a missing value")
        cells = cells.rows(~incomplete)
        gaps = gaps[~incomplete]
    elif options.missing == "error" and incomplete.any():
        raise _missing(cells, gaps)
    elif gaps[:, targets].any():
        raise _missing(cells, gaps & np.isin(np.arange(gaps.shape[1]), targets), "a target cannot be filled in: ")
    split = holdout(len(gaps), test_fraction, split_seed)
    train = np.ones(len(gaps), dtype=bool) if split is None else ~split.numpy()
    inputs = [column for column in range(gaps.shape[1]) if column not in targets]
    X, names, said = _inputs(cells, inputs, gaps, train)
    Y, labels, classes = _targets(cells, targets)
    if classes is not None:
        said.append(f"classes {', '.join(map(str, range(min(len(classes), 10))))} of the target are {listed(classes)}")
    return Data(
        X=torch.from_numpy(X),
        Y=Y,
        labels=labels,
        split=split,
        name=cells.name,
        feature_names=names,
        class_names=classes,
        notes=(*notes, *said),
    )


def _chosen(cells: Cells, targets: Sequence[int]) -> str:
    """Which columns the targets are."""
    if len(targets) == 1:
        return f"the target is {cells.column(targets[0])}"
    return f"the targets are {' and '.join(cells.column(column) for column in targets)}"


def _require_numbers(cells: Cells, options: TableOptions) -> None:
    """Refuse text unless categories are taken."""
    if options.categories == "one-hot" or not cells.texts:
        return
    column = min(cells.texts)
    texts = cells.texts[column]
    row = next((row for row, text in enumerate(texts) if text is not None), 0)
    several = f" ({len(cells.texts)} columns hold text: {_labels(cells, sorted(cells.texts))})"
    raise DataError(
        f"{cells.place(row)}, {cells.column(column)}: {shown(texts[row] or '')} is not a number"
        f"{several if len(cells.texts) > 1 else ''}; categories='one-hot' takes text as categories (--categories on the command "
        f"line){cells.hint}"
    )


def _labels(cells: Cells, columns: Sequence[int], counts: Mapping[int, int] | None = None) -> str:
    """Columns by name, with what each counts."""
    some = [cells.label(column) + (f" ({counts[column]})" if counts else "") for column in columns[:5]]
    return ", ".join(some) + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")


def _missing(cells: Cells, gaps: Mask, why: str = "") -> DataError:
    """The error about missing values: the first, and how many rows and which columns have any."""
    row, column = (int(index) for index in np.argwhere(gaps)[0])
    counts = {int(index): int(gaps[:, index].sum()) for index in np.flatnonzero(gaps.any(axis=0))}
    many = int(gaps.any(axis=1).sum())
    verb = "has" if many == 1 else "have"
    spelled = "" if why else cells.spelled
    return DataError(
        f"{cells.place(row)}, {cells.column(column)}: missing value{spelled}; {many} of {len(gaps)} rows {verb} one, in "
        f"{_labels(cells, list(counts), counts)}; {why}missing='drop' leaves out such rows"
        + ("" if why else ", missing='mean' fills them in with means of the train rows")
        + " (--missing on the command line)"
    )


def _inputs(
    cells: Cells, columns: Sequence[int], gaps: Mask, train: Mask
) -> tuple[Numbers, tuple[str, ...] | None, list[str]]:
    """X (N, n), names of its columns, and what was done to make it."""
    said: list[str] = []
    coded = {column: _categories(cells, column, train) for column in columns if column in cells.texts}
    _require_room(cells, len(columns) - len(coded) + sum(map(len, coded.values())))
    blocks = {column: _one_hot(cells.texts[column], texts) for column, texts in coded.items()}
    if coded:
        made = "; ".join(f"{cells.label(column)}: {listed(texts)}" for column, texts in coded.items())
        said.append(f"categories became columns of 0 and 1 ({made})")
    for column, block in blocks.items():
        unseen = int((~gaps[:, column] & (block.sum(axis=1) == 0)).sum())
        if unseen:
            said.append(
                f"{counted(unseen, 'held-out row')} with a category of {cells.label(column)} that no train row has: 0 in all of "
                "its columns"
            )
    counts = gaps.sum(axis=0)
    filled = {column: int(counts[column]) for column in columns if counts[column]}
    for column in filled:
        blocks[column] = _filled(cells, column, blocks.get(column, cells.numbers[:, [column]]), gaps[:, column], train)
    if filled:
        said.append(
            f"{counted(sum(filled.values()), 'missing value')} filled in with means of the train rows, in "
            f"{_labels(cells, list(filled), filled)}"
        )
    X = cells.numbers[:, columns]
    if blocks:
        X = np.concatenate([blocks.get(column, cells.numbers[:, [column]]) for column in columns], axis=1)
    names = None
    if cells.names or coded:
        names = tuple(_name(cells, column, text) for column in columns for text in coded.get(column, [""]))
    return np.ascontiguousarray(X), names, said


def _name(cells: Cells, column: int, category: str) -> str:
    """Of a column of X."""
    name = cells.names[column] if cells.names else f"column {column + 1}"
    return f"{name}={category}" if column in cells.texts else name


def _filled(cells: Cells, column: int, block: Numbers, gaps: Mask, train: Mask) -> Numbers:
    """The columns (N, C) made of one, with means of the train rows where it is missing: of categories, their shares."""
    known = block[train & ~gaps]
    if len(known) == 0:
        raise DataError(
            f"{cells.source}: {cells.column(column)} has no value in any train row, and so no mean; leave the column out"
        )
    return np.where(gaps[:, None], (known / len(known)).sum(axis=0), block)  # so that no sum overflows


def _categories(cells: Cells, column: int, train: Mask | None = None) -> list[str]:
    """The categories of a column, sorted; of the train rows, if these are told."""
    texts = cells.texts[column]
    rows: Sequence[int] = range(len(texts)) if train is None else np.flatnonzero(train).tolist()
    found = sorted({text for text in (texts[row] for row in rows) if text is not None})
    if len(found) > MOST_CATEGORIES:
        raise DataError(
            f"{cells.source}: {cells.column(column)} has {len(found)} categories in {len(rows)} rows, and at most "
            f"{MOST_CATEGORIES} are taken; leave the column out if it is a name or a number of something"
        )
    return found


def _one_hot(texts: Sequence[str | None], categories: Sequence[str]) -> Numbers:
    """(N, C): 1 where the row has that category."""
    codes = {text: code for code, text in enumerate(categories)}
    block = np.zeros((len(texts), len(categories)))
    for row, text in enumerate(texts):
        if text in codes:
            block[row, codes[text]] = 1.0
    return block


def _require_room(cells: Cells, width: int) -> None:
    """Refuse columns beyond all proportion to the table."""
    rows, given = cells.numbers.shape
    if 8 * rows * width > ALWAYS and width > EXPANSION * given:
        raise DataError(
            f"{cells.source}: its categories would make {width} columns of {given}, {8 * rows * width} bytes; leave out those of "
            "most categories"
        )


def _targets(cells: Cells, columns: Sequence[int]) -> tuple[Tensor | None, Tensor | None, tuple[str, ...] | None]:
    """Y (N, m) of numbers, labels (N,) of whole numbers or text, and the names of the latter's classes."""
    text = [column for column in columns if column in cells.texts]
    if text and len(columns) > 1:
        raise DataError(
            f"{cells.source}: {cells.column(text[0])} is text, which is a target of its own only; choose numbers, or that alone"
        )
    if text:
        classes = _categories(cells, text[0])
        codes = {name: code for code, name in enumerate(classes)}
        return None, torch.tensor([codes[cell or ""] for cell in cells.texts[text[0]]]), tuple(classes)
    Y = np.ascontiguousarray(cells.numbers[:, columns])
    labels = whole_labels(Y[:, 0]) if len(columns) == 1 else None
    return torch.from_numpy(Y), None if labels is None else torch.from_numpy(labels), None
