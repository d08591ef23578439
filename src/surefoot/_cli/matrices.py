"""The matrices that a learned inverse or a learned SVD is trained on: from a file, or random."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.numpy_files import UNREADABLE
from .errors import message_of
from .options import Matrices
from .values import at_least_one, matrix_size

SIZE, COUNT = (50, 100), 100


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
