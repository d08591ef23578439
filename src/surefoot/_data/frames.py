"""Tables of pandas, of libraries whose tables convert to those, and Parquet files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .cells import Categories, Cells, Missing, TableOptions, Target, shown
from .dataset import Data
from .errors import DataError, MissingLibraryError
from .holdout import require_fraction
from .preparing import prepared
from .sizes import require_proportion

_NEEDED = "Parquet files are read with pandas and pyarrow: pip install 'surefoot[tables]'"


def from_frame(
    frame: Any,
    *,
    target: Target = None,
    categories: Categories = "error",
    missing: Missing = "error",
    split_seed: int = 0,
    test_fraction: float = 0.2,
    name: str = "frame",
) -> Data:
    """The data of a DataFrame; its index is ignored.

    Numbers and truth values become float64, whatever their dtype; strings, categoricals and objects that are strings are text;
    what pandas calls missing is missing. Dates, complex numbers and other objects are refused.

    Args:
        frame: a DataFrame of pandas, or anything whose ``to_pandas()`` makes one, such as one of polars or a table of pyarrow.
        target, categories, missing, split_seed, test_fraction: as `load` has them for tables.
        name: of the data.

    Returns:
        X (N, n) and Y (N, m) in float64, or labels (N,) in int64, on the CPU.

    Raises:
        TypeError: no DataFrame.
        DataError: (a `ValueError`) a column or a cell that is refused; rows are counted from 0, columns from 1.

    Example:
        >>> import pandas
        >>> flats = pandas.DataFrame({"rooms": [1, 3, 2], "town": ["Ulm", "Bonn", "Ulm"], "price": [2.0, 5.0, 3.0]})
        >>> data = sf.data.from_frame(flats, target="price", categories="one-hot", test_fraction=0)
        >>> data.feature_names
        ('rooms', 'town=Bonn', 'town=Ulm')
    """
    require_fraction(test_fraction)
    table = _of_pandas(frame)
    options = TableOptions(_named(table, target), categories=categories, missing=missing)
    return prepared(cells_of(table, name, name), options, split_seed, test_fraction)


def _named(frame: Any, target: Any) -> Any:
    """The target, with labels of several levels written as `Cells` has them."""
    if isinstance(target, tuple) and target in frame.columns:
        return str(target)
    if isinstance(target, (list, tuple)):
        return [str(item) if isinstance(item, tuple) and item in frame.columns else item for item in target]
    return target


def read_parquet(path: Path) -> Cells:
    """The table of a Parquet file.

    Raises:
        MissingLibraryError: pandas or pyarrow is not installed.
        DataError: no such file, nested columns, or a table beyond all proportion to the file.
    """
    try:
        import pandas  # noqa: F401 - what the table is converted to
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingLibraryError(_NEEDED) from error
    try:
        with parquet.ParquetFile(path, arrow_extensions_enabled=False) as file:
            _require_plain(file, path)
            # text as categories, so that a long one is kept once however often it occurs
            texts = [file.schema.column(i).path for i in range(len(file.schema)) if _is_text(file.schema.column(i))]
        with parquet.ParquetFile(path, arrow_extensions_enabled=False, read_dictionary=texts) as file:
            frame = file.read().to_pandas()
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error
    return cells_of(frame, path.name, str(path))


def _is_text(column: Any) -> bool:
    return column.physical_type == "BYTE_ARRAY"


def _require_plain(file: Any, path: Path) -> None:
    """Refuse a file before it is read, by what its footer says."""
    from pyarrow import types

    for field in file.schema_arrow:
        if types.is_nested(field.type) or types.is_binary(field.type) or types.is_large_binary(field.type):
            raise DataError(f"{path}: column {shown(field.name)} holds {field.type}; expected numbers or text")
    footer = file.metadata
    # not the sizes of columns: pyarrow ends the process where those of a damaged file contradict each other
    pages = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
    require_proportion(str(path), max(8 * footer.num_rows * footer.num_columns, pages), path.stat().st_size)


def cells_of(frame: Any, name: str, source: str) -> Cells:
    """The cells of a pandas DataFrame.

    Raises:
        DataError: no rows or fewer than two columns, names that are the same, or a column of neither numbers nor text.
    """
    rows, width = frame.shape
    if rows == 0 or width < 2:
        raise DataError(
            f"{source}: has {rows} rows and {width} columns; expected at least one row, features and a target"
        )
    names = tuple(str(label) for label in frame.columns)

    def where(row: int, column: int) -> str:
        return f"{source}, row {row} (0-based), column {column + 1} ({shown(names[column])})"

    numbers = np.full((rows, width), np.nan)
    texts: dict[int, list[str | None]] = {}
    for column in range(width):
        series = frame.iloc[:, column]
        what = f"{source}, column {column + 1} ({shown(names[column])})"
        found = _texts(series, what)
        if found is not None:
            texts[column] = found
            continue
        numbers[:, column] = _numbers(series, what)
        infinite = np.flatnonzero(np.isinf(numbers[:, column]))
        if infinite.size:
            row = int(infinite[0])
            raise DataError(
                f"{where(row, column)}: {numbers[row, column]} is not finite, or beyond the range of float64"
            )
    return Cells(
        name,
        source,
        names,
        numbers,
        texts,
        lambda row: f"{source}, row {row} (0-based)",
        hint="; numbers that are kept as text are converted with astype(float)",
    )


def _texts(series: Any, what: str) -> list[str | None] | None:
    """The cells of a column of text or of categories, None where one is missing; None for another column."""
    import pandas

    if str(series.dtype).startswith("dictionary<values=string"):  # text of pyarrow, each kept once
        series = series.astype("string")
    dtype = series.dtype
    if isinstance(dtype, pandas.CategoricalDtype):
        names = [str(category) for category in dtype.categories]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{what}: has two categories that are both written {shown(twice)}; rename one of them")
        return [names[code] if code >= 0 else None for code in series.cat.codes]
    as_objects = pandas.api.types.is_object_dtype(dtype)
    of_strings = not as_objects and pandas.api.types.is_string_dtype(dtype)
    if not of_strings and (not as_objects or series.isna().all()):
        return None
    cells = [None if gone else cell for cell, gone in zip(series, series.isna(), strict=True)]
    return cells if of_strings or all(cell is None or isinstance(cell, str) for cell in cells) else None


def _numbers(series: Any, what: str) -> npt.NDArray[np.float64]:
    """A column (N,) of numbers or truth values as float64, NaN where one is missing."""
    from pandas.api import types

    dtype = series.dtype
    if types.is_object_dtype(dtype):
        return _number_objects(series, what)
    if not (types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype)) or types.is_complex_dtype(dtype):
        advice = "; give numbers, such as days since the first" if types.is_datetime64_any_dtype(dtype) else ""
        raise DataError(f"{what}: has dtype {dtype}, which is neither numbers nor text{advice}")
    with np.errstate(over="ignore"):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)


def _number_objects(series: Any, what: str) -> npt.NDArray[np.float64]:
    """Numbers that pandas keeps as objects: truth values with gaps, decimals, whole numbers of any size."""
    numbers = np.full(len(series), np.nan)
    for row, (cell, gone) in enumerate(zip(series, series.isna(), strict=True)):
        if gone:
            continue
        if not isinstance(cell, (Real, Decimal, np.bool_)):
            raise DataError(
                f"{what}: holds objects that are not all numbers or all text: {type(cell).__name__} in row {row} (0-based); "
                "convert it with astype(float), astype(str), or leave it out"
            )
        try:
            numbers[row] = float(cell)
        except OverflowError:
            numbers[row] = np.inf
    return numbers


def _of_pandas(frame: Any) -> Any:
    """The frame as one of pandas."""
    pandas = sys.modules.get("pandas")  # a frame of pandas is one only if that was imported
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        return frame
    convert: Callable[[], Any] | None = getattr(frame, "to_pandas", None)
    if callable(convert):
        try:
            converted = convert()
        except ImportError as error:
            raise MissingLibraryError(
                f"frame is converted by pandas ({error}): pip install 'surefoot[tables]'"
            ) from error
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(converted, pandas.DataFrame):
            return converted
    raise TypeError(
        f"frame is {type(frame).__module__}.{type(frame).__qualname__}; pass a DataFrame of pandas, or what to_pandas() makes "
        "one of, such as a DataFrame of polars; sf.data.from_arrays takes arrays"
    )
