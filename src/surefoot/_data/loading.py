"""Loading by name or path: decides which format a source is in."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Literal

from .bundled import load_bundled, names
from .cells import Categories, Missing, TableOptions, Target
from .csv_table import read_csv
from .dataset import Data
from .errors import DataError, MissingSourceError
from .formats import PATHS, TABLES
from .frames import read_parquet
from .holdout import require_fraction
from .idx import load_idx
from .image_folder import load_folder
from .matrix_market import load_mtx
from .numpy_files import load_npy, load_npz
from .preparing import prepared

_INSTEAD = {
    ".txt": "if it is a table, end its name in .csv",
    ".xlsx": "save its sheet as CSV, or pass pandas.read_excel(...) to sf.data.from_frame",
    ".xls": "save its sheet as CSV, or pass pandas.read_excel(...) to sf.data.from_frame",
    ".feather": "pass pandas.read_feather(...) to sf.data.from_frame",
    ".json": "pass pandas.read_json(...) to sf.data.from_frame",
}
"""What to do with files of other programs."""


def load(
    source: str | os.PathLike[str],
    *,
    split_seed: int = 0,
    test_fraction: float = 0.2,
    target: Target = None,
    separator: str | None = None,
    decimal: Literal[".", ","] = ".",
    categories: Categories = "error",
    missing: Missing = "error",
) -> Data:
    """Load a data set by name or from a file or folder.

    Sources:

    - `"digits"` (X = pixels / 16, 10 classes), `"diabetes"` (raw measurements, one target) and `"photos"`
      (two colour photographs), which come with scikit-learn. A file of that name is reached as `"./digits"`.
    - `"file.npz"` with arrays `images`, `labels`, `split`, or `X`, `y` (or `Y`), `split`;
      `"file.npz:NAME"` with NAME_X, NAME_y, NAME_test0. Only the images or X are required.
    - `"X.npy"` or `"X.npy,Y.npy"`: X (N, n) stays on disk as a read-only `numpy.memmap` of the file's dtype.
    - IDX files as MNIST has them, ending in `.gz` or `ubyte`: `"images.gz"` or `"images.gz,labels.gz"`.
    - `"table.csv"`, `"table.tsv"`: numbers between separators, with or without a header, in UTF-8; the last column is the target.
      The first row is a header where none of its cells is a number.
    - `"table.parquet"`: the same with names and types, through pandas and pyarrow (`surefoot[tables]`).
    - `"matrix.mtx"`: X dense, Y from `matrix_rhs1.mtx` beside it where that exists.
    - a folder with one subfolder of PNG or JPEG images per class, or a flat folder of images.

    Images of 8 or 16 bits are divided by their largest value (255 or 65535). In image sets targets of integers are `labels`. In
    tables and other arrays a target of one column is both `labels` and Y where all its values are whole numbers below 10^15,
    since it may be meant as either; how they are written or stored (`2`, `2.0`, `2.000e+00`) makes no difference.

    Args:
        source: a bundled name or a path, as above.
        split_seed: seed of the split, for sources with targets or labels but no split of their own.
        test_fraction: fraction of test rows in that split, in [0, 1); 0 gives no split. The split is
            stratified where there are labels only. `.npy`, `.mtx` and photographs never get one.
        target: of tables, which column is the target: its name, its number (from 1; -1 is the last), or a list of several; in one
            text they have commas between them. All others are inputs.
        separator: of text, the character between cells, or `"tab"`. By default that of tab, semicolon and comma which cuts the
            first two rows into as many cells.
        decimal: of text, the decimal sign.
        categories: of tables, what becomes of text: an error; or `"one-hot"`, a column of 0 and 1 for each text that a train row
            has, in which other rows are 0. A target of text becomes `labels`, the classes sorted by name (`class_names`).
        missing: of tables, what becomes of a row with an empty cell, or one of `?`, `-`, `NA`, `n/a`, `nan`, `null`, `none`: an
            error; `"drop"`, the row is left out; `"mean"`, the mean of the train rows takes its place, for a category their
            shares; targets are never filled in.

    What was done to a table stands in `notes`.

    Returns:
        The data, in float64 (except for a memory-mapped X) on the CPU.

    Raises:
        MissingSourceError: no such name, file or folder; the message suggests near names. It is a
            `DataError` and a `FileNotFoundError`.
        DataError: (a `ValueError`) the source is not what its name says, or holds missing or non-finite
            values.

    Example:
        >>> sf.data.load("digits")
        Data('digits', X=(1797, 64) Tensor, classes=10, test rows=359)
        >>> from pathlib import Path
        >>> _ = Path("flats.csv").write_text("area;town;price\\n20;Ulm;200\\n70;Bonn;\\n55;Ulm;400\\n")
        >>> flats = sf.data.load("flats.csv", target="price", categories="one-hot", missing="drop", test_fraction=0)
        >>> flats.feature_names, flats.notes[1]
        (('area', 'town=Ulm'), '1 of 3 rows dropped, which have a missing value')
    """
    require_fraction(test_fraction)
    options = TableOptions(target, separator, decimal, categories, missing)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            f"source is {type(source).__name__}; pass a name or a path; sf.data.from_frame takes DataFrames, from_arrays arrays"
        )
    text = os.fspath(source)
    _require_table(text, options)
    if text in names():
        return load_bundled(text, split_seed, test_fraction)
    path, second, prefix = _parts(text)
    for file in (path, second):
        if file is not None and not file.exists():
            raise MissingSourceError(_missing(file))

    if path.is_dir() and second is None:
        return load_folder(path, split_seed, test_fraction)
    kind = _kind(path)
    if second is not None and (kind not in ("npy", "idx") or _kind(second) != kind):
        raise DataError(f"{text}: a pair is two .npy files or two IDX files; for the rest give one of {PATHS}")
    if kind == "npz":
        return load_npz(path, prefix, split_seed, test_fraction)
    if kind == "npy":
        return load_npy(path, second)
    if kind == "idx" and path.suffixes[-2:-1] in [[f".{suffix}"] for suffix in TABLES]:
        raise DataError(f"{path}: tables are read unpacked; unpack it first, with gunzip")
    if kind == "idx":
        return load_idx(path, second, split_seed, test_fraction)
    if kind in TABLES:
        cells = read_parquet(path) if kind == "parquet" else read_csv(path, options)
        return prepared(cells, options, split_seed, test_fraction)
    if kind == "mtx":
        return load_mtx(path)
    if path.suffix.lower() in _INSTEAD:
        raise DataError(f"{path}: the format {path.suffix!r} is not read; {_INSTEAD[path.suffix.lower()]}")
    raise DataError(f"{path}: the format {path.suffix!r} is not known; expected {PATHS}")


def _require_table(text: str, options: TableOptions) -> None:
    """Refuse options of tables for other sources, and of text for other tables."""
    kind = _kind(Path(text))
    given = (
        options.given() if kind not in TABLES else options.given("separator", "decimal") if kind == "parquet" else None
    )
    if given is not None:
        which = "text (table.csv, table.tsv)" if kind == "parquet" else "tables (table.csv, table.tsv, table.parquet)"
        raise DataError(f"{text}: {given} is for {which}; leave it out")


def _parts(text: str) -> tuple[Path, Path | None, str | None]:
    """First path, second path of a pair, and NAME of 'file.npz:NAME'."""
    if not text:
        raise DataError(f"source is empty; expected one of {', '.join(names())}, or {PATHS}")
    whole = Path(text).expanduser()
    if whole.exists():  # a file whose own name has a comma or a colon
        return whole, None, None
    archive, marker, prefix = text.rpartition(".npz:")
    if marker:
        if not prefix:
            raise DataError(f"{text}: NAME is missing after the colon")
        return Path(f"{archive}.npz").expanduser(), None, prefix
    pieces = [piece.strip() for piece in text.split(",")]
    if len(pieces) == 2 and all(pieces):
        return Path(pieces[0]).expanduser(), Path(pieces[1]).expanduser(), None
    return whole, None, None


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix == ".gz" or path.name.endswith("ubyte"):
        return "idx"
    return suffix[1:]


def _missing(path: Path) -> str:
    bundled = f"bundled data sets: {', '.join(names())}"
    if path.parent == Path() and not path.suffix:
        near = difflib.get_close_matches(path.name, [*names(), *_siblings(path)], 3)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        return f"{str(path)!r} is neither a bundled data set nor an existing path; {hint}{bundled}"
    if not path.parent.is_dir():
        return f"{path}: no such file; the folder {path.parent} does not exist either"
    near = difflib.get_close_matches(path.name, _siblings(path), 3)
    hint = f"nearest names there: {', '.join(near)}" if near else f"nothing there has a similar name ({bundled})"
    return f"{path}: no such file or folder; {hint}"


def _siblings(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())
