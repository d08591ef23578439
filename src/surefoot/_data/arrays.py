"""Checked conversion of numpy arrays to the dtypes of `Data`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DataError

WHOLE = 1e15
"""Below it, a number is whole in float64 where it was written whole."""
_SCAN_ELEMENTS = 1 << 22  # elements looked at together, so that a memory-mapped file never sits in memory


def first_non_finite(array: npt.NDArray[Any]) -> tuple[int, ...] | None:
    """Index of the first NaN or infinity in row-major order, or None. Reads the array in blocks of rows."""
    if array.dtype.kind not in "fc" or array.size == 0:
        return None
    step = max(1, _SCAN_ELEMENTS * len(array) // array.size)
    for start in range(0, len(array), step):
        finite = np.isfinite(array[start : start + step])
        if not finite.all():
            index = np.unravel_index(int(np.argmin(finite)), finite.shape)
            return (start + int(index[0]), *(int(i) for i in index[1:]))
    return None


def require_real(array: npt.NDArray[Any], what: str) -> None:
    """Refuse arrays that are not real numbers, have no entries, or hold NaN or infinity.

    Raises:
        DataError: naming the array by `what`, and the position of the first bad entry.
    """
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} has dtype {array.dtype}; expected real numbers")
    if array.ndim == 0 or array.size == 0:
        absent, wanted = ("columns", "column") if array.ndim and len(array) else ("rows", "sample")
        raise DataError(f"{what} has shape {array.shape}, so it holds no {absent}; expected at least one {wanted}")
    position = first_non_finite(array)
    if position is not None:
        raise DataError(
            f"{what} is {array[position]} at index {list(position)} (0-based); remove or fill in that entry"
        )


def real_array(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.float64]:
    """A float64 copy of a real array of any shape; see `require_real` for what is refused."""
    require_real(array, what)
    with np.errstate(over="ignore"):
        converted = np.array(array, dtype=np.float64, order="C")
    position = first_non_finite(converted)
    if position is not None:
        raise DataError(f"{what} at index {list(position)} (0-based) is beyond the range of float64")
    return converted


def columns(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.float64]:
    """A float64 matrix (N, n) from shape (N, n) or, as one column, (N,)."""
    if array.ndim not in (1, 2):
        raise DataError(f"{what} has shape {array.shape}; expected (N, n) or (N,)")
    converted = real_array(array, what)
    return converted.reshape(len(converted), -1)


def image_rows(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.float64]:
    """Images (N, ...) flattened to float64 rows (N, n); uint8 and uint16 are divided by 255 and 65535."""
    if array.ndim < 2:
        raise DataError(f"{what} has shape {array.shape}; expected one image per entry of the first axis")
    converted = real_array(array, what).reshape(len(array), -1)
    if array.dtype in (np.uint8, np.uint16):
        converted /= np.iinfo(array.dtype).max
    return converted


def class_labels(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.int64]:
    """Class labels (N,) as int64; floats are taken only where every value is a whole number."""
    if array.ndim != 1:
        raise DataError(f"{what} has shape {array.shape}; expected class labels of shape (N,)")
    require_real(array, what)
    # Bounds are compared as Python integers: 2**63 is not representable in int64, and is in float64.
    if not -(2**63) <= int(array.min()) <= int(array.max()) < 2**63:
        raise DataError(f"{what} holds labels beyond the range of int64; renumber the classes")
    converted = array.astype(np.int64)
    wrong = np.flatnonzero(converted != array)
    if wrong.size:
        raise DataError(f"{what} is {array[wrong[0]]} at index {wrong[0]} (0-based); class labels are whole numbers")
    return converted


def whole_labels(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64] | None:
    """Class labels (N,) of finite numbers (N,) that are all whole and below 10^15, however they were written; else None."""
    whole = bool(((values == np.rint(values)) & (np.abs(values) < WHOLE)).all())
    return values.astype(np.int64) if whole else None


def split_mask(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.bool_]:
    """A split (N,) as bool, True = test, from bool or from 0 and 1."""
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise DataError(f"{what} is {array.dtype} of shape {array.shape}; expected bool, or 0 and 1, of shape (N,)")
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if wrong.size:
        raise DataError(f"{what} is {array[wrong[0]]} at index {wrong[0]} (0-based); expected 0 (train) or 1 (test)")
    return array.astype(np.bool_)
