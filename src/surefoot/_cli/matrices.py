"""The matrices that a learned inverse or a learned SVD is trained on: from a file, or random."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from tyro.conf import arg

from .._data.numpy_files import UNREADABLE
from .built import at_least_one
from .errors import message_of

SIZE, COUNT = (50, 100), 100


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """Which matrices."""

    matrices: Annotated[
        str | None,
        arg(
            metavar="FILE.npy",
            help="Matrices to train on, N x rows x columns; a fifth of them is held out to test on.",
            help_behavior_hint="(default: random)",
        ),
    ] = None
    size: Annotated[str | None, arg(metavar="ROWSxCOLUMNS", help_behavior_hint="(default: 50x100)")] = None
    """Size of the random matrices, with independent N(0, 1) entries."""
    count: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 100)")] = None
    """Number of random matrices to train on; as many again are held out to test on."""
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of whatever is random."""


@dataclass(frozen=True)
class Split:
    """Matrices (N, m, n) to train on and to test on, float64, and what they are in plain values."""

    train: Tensor
    test: Tensor
    facts: dict[str, Any]


def load(options: Matrices) -> Split:
    """The matrices of the options.

    Raises:
        ValueError: options that contradict each other, or a file that holds no such matrices.
    """
    if options.seed < 0:
        raise ValueError(f"--seed is {options.seed}; it must be at least 0")
    if options.matrices is None:
        train, test = _drawn(options)
        data = f"{len(train)} random matrices, and {len(test)} to test on"
    else:
        for name, value in (("--size", options.size), ("--count", options.count)):
            if value is not None:
                raise ValueError(f"{name} is of random matrices, not of --matrices; leave one of them out")
        A = _read(options.matrices)
        held = max(1, len(A) // 5)
        train, test = A[:-held], A[-held:]
        data = f"{len(train)} matrices of {options.matrices}, and its last {held} to test on"
    rows, columns = train.shape[1:]
    facts = {"data": data, "train": len(train), "test": len(test), "rows": rows, "columns": columns}
    return Split(train, test, {**facts, "seed": options.seed})


def _drawn(options: Matrices) -> tuple[Tensor, Tensor]:
    rows, columns = SIZE if options.size is None else matrix_size(options.size)
    count = COUNT if options.count is None else options.count
    at_least_one("--count", count)
    generator = torch.Generator().manual_seed(options.seed)
    A = torch.randn(2 * count, rows, columns, dtype=torch.float64, generator=generator)
    return A[:count], A[count:]


def _read(file: str) -> Tensor:
    """All matrices of a file (N, m, n), float64."""
    try:
        with np.errstate(over="ignore"):
            array = np.load(Path(file), mmap_mode="r", allow_pickle=False)  # takes no memory for what a header claims
    except UNREADABLE as error:
        raise ValueError(f"--matrices is {file}: {message_of(error)}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or array.ndim != 3 or array.size == 0:
        given = f"shape {array.shape} and dtype {array.dtype}" if isinstance(array, np.ndarray) else "several arrays"
        raise ValueError(f"--matrices is {file} with {given}; it must be one array N x rows x columns of real numbers")
    if len(array) < 2:
        raise ValueError(f"--matrices is {file} with one matrix; at least two are needed, as one is held out")
    if not np.isfinite(array).all():
        raise ValueError(f"--matrices is {file} with entries that are NaN or infinite; remove these matrices")
    return torch.from_numpy(array.astype(np.float64))


def matrix_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Of an option: rows and columns of ROWSxCOLUMNS; ``ValueError`` for anything else."""
    sizes = re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)
    if sizes is None:
        raise ValueError(f"{option} is {text!r}; it must be ROWSxCOLUMNS, for example 20x32")
    return int(sizes[1]), int(sizes[2])


def inner_inverse(text: str) -> tuple[int, int] | None:
    """Of the option --inverse: K and L of a polynomial of products, or ``None`` for exact; ``ValueError`` for anything else."""
    if text == "exact":
        return None
    try:
        layers, degree = (int(part) for part in text.split(","))
    except ValueError:
        layers, degree = 0, 0
    if layers < 1 or degree < 2:
        raise ValueError(f"--inverse is {text!r}; it must be exact, or K,L with K >= 1 and L >= 2, for example 6,4")
    return layers, degree
