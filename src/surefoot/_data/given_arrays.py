"""Data of arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .arrays import columns, image_rows
from .dataset import Data
from .errors import DataError
from .holdout import holdout, require_fraction
from .numpy_files import targets_of


def from_arrays(
    X: Any,
    y: Any = None,
    *,
    feature_names: Sequence[str] | None = None,
    split_seed: int = 0,
    test_fraction: float = 0.2,
    name: str = "arrays",
) -> Data:
    """The data of arrays, as `load` takes them from a file `X.npz` with `X` and `y`.

    Args:
        X: (N, n) real numbers: a numpy array, a tensor or nested lists. Images (N, H, W) or (N, H, W, 3) become rows, those of
            uint8 and uint16 divided by 255 and 65535.
        y: targets (N,) or (N, m); whole numbers (N,) are class labels too, for images alone. None for no targets.
        feature_names: one for each column of X.
        split_seed: seed of the split, where there are targets.
        test_fraction: fraction of test rows, in [0, 1); 0 gives no split.
        name: of the data.

    Returns:
        A copy in float64 on the CPU.

    Raises:
        DataError: (a `ValueError`) not real numbers, another shape, no rows, NaN or infinite entries, or another number of rows.

    Example:
        >>> sf.data.from_arrays([[1.0, 2.0], [3.0, 4.0]], [0, 1], test_fraction=0)
        Data('arrays', X=(2, 2) Tensor, Y=(2, 1), classes=2)
    """
    require_fraction(test_fraction)
    inputs = _array(X, f"{name}: X")
    as_images = inputs.ndim > 2
    values = (image_rows if as_images else columns)(inputs, f"{name}: X")
    Y, labels = (None, None) if y is None else targets_of(_array(y, f"{name}: y"), f"{name}: y", as_images)
    if isinstance(feature_names, str):
        raise DataError(f"{name}: feature_names is {feature_names!r}; pass a list with a name for each column of X")
    called = None if feature_names is None else tuple(feature_names)
    data = Data(torch.from_numpy(values), Y, labels, name=name, feature_names=called)
    if y is None:
        return data
    return replace(data, split=holdout(len(values), test_fraction, split_seed, labels if Y is None else None))


def _array(value: Any, what: str) -> npt.NDArray[Any]:
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:
            raise DataError(f"{what} is a sparse tensor; pass its to_dense()")
        dense = value.detach().cpu().resolve_conj().resolve_neg()
        return (dense.double() if dense.is_floating_point() else dense).numpy()  # exact; NumPy has no bfloat16
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"{what} is a masked array; pass its filled(value), or only the rows without masked entries")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{what} is {type(value).__name__}, not an array ({error})") from error
    if array.dtype == object and array.ndim == 0:
        sparse = "; pass its toarray()" if hasattr(value, "toarray") else "; pass an array, a tensor or nested lists"
        raise DataError(f"{what} is {type(value).__name__}, not an array{sparse}")
    return array
