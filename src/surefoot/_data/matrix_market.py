"""Matrix Market files, the format of the SuiteSparse Matrix Collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .arrays import columns
from .dataset import Data
from .errors import DataError
from .sizes import require_proportion


def load_mtx(path: Path) -> Data:
    """Read X as a dense matrix, and Y from a sibling NAME_rhs1.mtx where there is one. There is no split.

    Raises:
        DataError: not a Matrix Market file, truncated, complex, no rows, or row counts differ.
    """
    X = torch.from_numpy(_read(path))
    sibling = path.with_name(f"{path.stem}_rhs1{path.suffix}")
    Y = torch.from_numpy(_read(sibling)) if sibling.exists() else None
    return Data(X=X, Y=Y, name=path.name)


def _read(path: Path) -> npt.NDArray[np.float64]:
    import scipy.io

    try:
        # The header comes first: scipy's reader stops the whole process on a dense array without rows.
        rows, cols, entries, _, field, _ = scipy.io.mminfo(str(path))
        if rows == 0 or cols == 0:
            raise DataError(f"{path}: has shape ({rows}, {cols}); expected at least one row and column")
        if field == "complex":
            raise DataError(f"{path}: is complex; expected real numbers")
        # Memory is taken for what the header claims.
        stored = path.stat().st_size
        if entries > stored:
            raise DataError(f"{path}: claims {entries} entries in {stored} bytes; the file is damaged or cut off")
        require_proportion(f"{path}: the dense matrix of {rows} x {cols}", 8 * rows * cols, stored)
        matrix: Any = scipy.io.mmread(str(path))
    except (ValueError, OverflowError, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a readable Matrix Market file ({error})") from error
    return columns(np.asarray(matrix) if isinstance(matrix, np.ndarray) else matrix.toarray(), str(path))
