"""Loading by name or path: decides which format a source is in."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Literal

from .bundled import load_bundled, names
from .csv_table import load_csv
from .dataset import Data
from .errors import DataError, MissingSourceError
from .idx import load_idx
from .image_folder import load_folder
from .matrix_market import load_mtx
from .numpy_files import load_npy, load_npz

_FORMATS = (
    "'file.npz', 'file.npz:NAME', 'X.npy', 'X.npy,Y.npy', 'images.gz,labels.gz' (IDX), 'table.csv', "
    "'matrix.mtx', or a folder of images"
)


def load(
    source: str | os.PathLike[str],
    *,
    split_seed: int = 0,
    test_fraction: float = 0.2,
    missing: Literal["error", "drop"] = "error",
) -> Data:
    """Load a data set by name or from a file or folder.

    Sources:

    - `"digits"` (X = pixels / 16, 10 classes), `"diabetes"` (raw measurements, one target) and `"photos"`
      (two colour photographs), which come with scikit-learn. A file of that name is reached as `"./digits"`.
    - `"file.npz"` with arrays `images`, `labels`, `split`, or `X`, `y` (or `Y`), `split`;
      `"file.npz:NAME"` with NAME_X, NAME_y, NAME_test0. Only the images or X are required.
    - `"X.npy"` or `"X.npy,Y.npy"`: X (N, n) stays on disk as a read-only `numpy.memmap` of the file's dtype.
    - IDX files as MNIST has them, ending in `.gz` or `ubyte`: `"images.gz"` or `"images.gz,labels.gz"`.
    - `"table.csv"`: numbers separated by commas, with or without a header; the last column is the target.
    - `"matrix.mtx"`: X dense, Y from `matrix_rhs1.mtx` beside it where that exists.
    - a folder with one subfolder of PNG or JPEG images per class, or a flat folder of images.

    Images of 8 or 16 bits are divided by their largest value (255 or 65535). In image sets whole-number
    targets are `labels`; in tables a target of whole numbers is both `labels` and Y, since it may be meant
    as either.

    Args:
        source: a bundled name or a path, as above.
        split_seed: seed of the split, for sources with targets or labels but no split of their own.
        test_fraction: fraction of test rows in that split, in [0, 1); 0 gives no split. The split is
            stratified where there are labels only. `.npy`, `.mtx` and photographs never get one.
        missing: of `"table.csv"`, what becomes of a row with an empty cell, or one of `?`, `-`, `NA`, `n/a`, `nan`, `null`,
            `none`: an error, or the row is dropped (`notes` counts them). Other formats have no missing values.

    Returns:
        The data, in float64 (except for a memory-mapped X) on the CPU.

    Raises:
        MissingSourceError: no such name, file or folder; the message suggests near names. It is a
            `DataError` and a `FileNotFoundError`.
        DataError: (a `ValueError`) the source is not what its name says, or holds missing or non-finite
            values.
    """
    if isinstance(test_fraction, bool) or not 0 <= test_fraction < 1:
        raise DataError(f"test_fraction is {test_fraction!r}; expected a number in [0, 1)")
    if missing not in ("error", "drop"):
        raise DataError(f"missing is {missing!r}; expected 'error' or 'drop'")
    text = os.fspath(source)
    if missing == "drop" and _kind(Path(text)) != "csv":
        raise DataError(f"{text}: missing='drop' is for tables ('table.csv'); drop the rows of {text} before")
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
        raise DataError(f"{text}: a pair is two .npy files or two IDX files; for the rest give one of {_FORMATS}")
    if kind == "npz":
        return load_npz(path, prefix, split_seed, test_fraction)
    if kind == "npy":
        return load_npy(path, second)
    if kind == "idx":
        return load_idx(path, second, split_seed, test_fraction)
    if kind == "csv":
        return load_csv(path, split_seed, test_fraction, missing == "drop")
    if kind == "mtx":
        return load_mtx(path)
    raise DataError(f"{path}: the format {path.suffix!r} is not known; expected {_FORMATS}")


def _parts(text: str) -> tuple[Path, Path | None, str | None]:
    """First path, second path of a pair, and NAME of 'file.npz:NAME'."""
    if not text:
        raise DataError(f"source is empty; expected one of {', '.join(names())}, or {_FORMATS}")
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
        return f"{str(path)!r} is neither a bundled data set nor an existing path; {hint}({bundled})"
    if not path.parent.is_dir():
        return f"{path}: no such file; the folder {path.parent} does not exist either"
    near = difflib.get_close_matches(path.name, _siblings(path), 3)
    hint = f"nearest names there: {', '.join(near)}" if near else f"nothing there has a similar name ({bundled})"
    return f"{path}: no such file or folder; {hint}"


def _siblings(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())
