"""Arrays saved by numpy: `.npz` archives and memory-mapped `.npy` files. Nothing is ever unpickled."""

from __future__ import annotations

import difflib
import math
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from .arrays import class_labels, columns, image_rows, require_real, split_mask, whole_labels
from .dataset import Data
from .errors import DataError
from .holdout import holdout
from .sizes import require_proportion

UNREADABLE = (
    *(ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, SyntaxError, TokenError),
    *(TypeError, OverflowError, MemoryError, zipfile.BadZipFile, zlib.error),
)
"""What numpy and zipfile raise of damaged files: the header of an array is a line of Python, and its shape may be anything."""


def open_archive(path: Path) -> NpzFile:
    """A NumPy archive, to be closed by the caller.

    Raises:
        DataError: another kind of file, or a damaged one.
    """
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not an .npz archive (empty, truncated, or another format); save it with numpy.savez")
    try:
        return np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise DataError(f"{path}: not a readable .npz archive ({error})") from error


def load_npz(path: Path, prefix: str | None, split_seed: int, test_fraction: float) -> Data:
    """Read one data set from an archive.

    Args:
        path: the archive.
        prefix: picks the arrays PREFIX_X, PREFIX_y and, where present, PREFIX_test0 (bool, True = test).
            None picks `images` (and `labels`, `split`), or `X` with `y` or `Y` (and `split`).
        split_seed, test_fraction: for archives without a split of their own.

    Raises:
        DataError: not an archive, expected arrays absent (the message lists those found), or unusable values.
    """
    with open_archive(path) as archive:
        chosen = _choose(path, list(archive.keys()), prefix)
        arrays = {role: read_member(archive, key, path) for role, key in chosen.items()}

    inputs_key = chosen["inputs"]
    what = {role: f"{path}: array {key!r}" for role, key in chosen.items()}
    inputs = arrays["inputs"]
    as_images = inputs_key == "images" or inputs.ndim > 2
    X = (image_rows if as_images else columns)(inputs, what["inputs"])
    Y: Tensor | None = None
    labels: Tensor | None = None
    if "labels" in arrays:
        labels = torch.from_numpy(class_labels(arrays["labels"], what["labels"]))
    elif "targets" in arrays:
        Y, labels = targets_of(arrays["targets"], what["targets"], as_images)
    data = Data(
        X=torch.from_numpy(X),
        Y=Y,
        labels=labels,
        name=path.name if prefix is None else f"{path.name}:{prefix}",
    )
    if "split" in arrays:
        split = torch.from_numpy(split_mask(arrays["split"], what["split"]))
    elif Y is None and labels is None:
        split = None
    else:
        split = holdout(len(X), test_fraction, split_seed, labels if Y is None else None)
    return replace(data, split=split)


def load_npy(inputs: Path, targets: Path | None) -> Data:
    """Memory-map X (N, n) from `inputs`; read Y or labels from `targets`. There is no split.

    X keeps the file's dtype and byte order, so that a file larger than memory can be used block by block;
    its values are still read once, in blocks, to refuse NaN and infinity.

    Raises:
        DataError: not an `.npy` file, truncated, holds objects, not a real matrix, or row counts differ.
    """
    X = map_array(inputs)
    if X.ndim != 2:
        raise DataError(f"{inputs}: has shape {X.shape}; expected a matrix (N, n); reshape it before saving")
    require_real(X, f"{inputs}")
    if targets is None:
        return Data(X=X, name=inputs.name)
    Y, labels = targets_of(map_array(targets), f"{targets}", images=False)
    return Data(X=X, Y=Y, labels=labels, name=f"{inputs.name},{targets.name}")


def _choose(path: Path, keys: list[str], prefix: str | None) -> dict[str, str]:
    """Which array of the archive plays which role: inputs, and where present targets, labels, split."""
    if prefix is not None:
        if f"{prefix}_X" not in keys:
            known = [key[:-2] for key in keys if key.endswith("_X")]
            near = difflib.get_close_matches(prefix, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            listed = f"names found: {', '.join(known)}" if known else f"arrays found: {', '.join(keys) or 'none'}"
            raise DataError(f"{path}: has no array '{prefix}_X'{hint} ({listed})")
        wanted = {"inputs": f"{prefix}_X", "targets": f"{prefix}_y", "split": f"{prefix}_test0"}
    elif "images" in keys:
        wanted = {"inputs": "images", "labels": "labels", "split": "split"}
    elif "X" in keys:
        if "y" in keys and "Y" in keys:
            raise DataError(f"{path}: holds both 'y' and 'Y'; keep the one that is the target")
        wanted = {"inputs": "X", "targets": "y" if "y" in keys else "Y", "split": "split"}
    else:
        named = [key[:-2] for key in keys if key.endswith("_X")]
        hint = f"; pick one with '{path.name}:{named[0]}'" if named else ""
        raise DataError(
            f"{path}: expected arrays 'images' (with 'labels', 'split') or 'X' (with 'y' or 'Y', 'split'), "
            f"or NAME_X with NAME_y{hint}; found: {', '.join(keys) or 'none'}"
        )
    return {role: key for role, key in wanted.items() if key in keys}


def read_member(archive: Any, key: str, path: Path) -> npt.NDArray[Any]:
    """An array of an open .npz archive; ``DataError`` where it cannot be read or is not what the archive says."""
    try:
        _require_honest(archive, key, path)
        return archive[key]
    except DataError:
        raise
    except UNREADABLE as error:
        if "Object arrays" in str(error):
            raise refused_objects(f"{path}: array {key!r}") from error
        raise DataError(f"{path}: array {key!r} cannot be read ({error}); the archive may be truncated") from error


def read_chosen(path: Path, name: str | None) -> npt.NDArray[Any]:
    """The array of this name of an .npz archive, or without a name its only one.

    Raises:
        DataError: no such array, none named where there are several, or an archive that cannot be read.
    """
    with open_archive(path) as archive:
        names = list(archive.keys())
        if name is None and len(names) != 1:
            raise DataError(f"{path}: holds {len(names)} arrays; name one: {path.name}:NAME, of {', '.join(names)}")
        chosen = names[0] if name is None else name
        if chosen not in names:
            raise DataError(f"{path}: has no array {chosen!r}; arrays found: {', '.join(names) or 'none'}")
        return read_member(archive, chosen, path)


def _require_honest(archive: Any, key: str, path: Path) -> None:
    """Refuse an array whose header claims another size than the archive, or that expands beyond all proportion, before memory
    is taken for it.

    Raises:
        DataError: one of the two.
    """
    info = archive.zip.getinfo(next(name for name in (f"{key}.npy", key) if name in archive.zip.NameToInfo))
    require_proportion(f"{path}: array {key!r}", info.file_size, info.compress_size)
    with archive.zip.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        claimed = math.prod(shape) * dtype.itemsize
        held = info.file_size - file.tell()
    if claimed != held and not dtype.hasobject:
        raise DataError(
            f"{path}: array {key!r} claims {claimed} bytes (shape {shape}), and the archive holds {held} of it; "
            "the archive is damaged: save it again with numpy.savez"
        )


def map_array(path: Path) -> np.memmap:
    """A memory-mapped array, which takes no memory for what its header claims.

    Raises:
        DataError: another kind of file, a damaged one, or an array of Python objects.
    """
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise DataError(f"{path}: not an .npy file (empty or another format); save it with numpy.save")
    try:
        with np.errstate(over="ignore"):  # of the number of bytes that a header claims
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        if "Python objects" in str(error):
            raise refused_objects(str(path)) from error
        raise DataError(f"{path}: cannot be memory-mapped ({error}); the file may be truncated") from error
    return mapped


def refused_objects(what: str) -> DataError:
    """The error about an array of Python objects."""
    return DataError(f"{what} holds Python objects, which are never unpickled; save it as an array of numbers")


def targets_of(array: npt.NDArray[Any], what: str, images: bool) -> tuple[Tensor | None, Tensor | None]:
    """Y and labels from one array: a vector of whole numbers serves as both, except that images have labels alone, of integers.

    Raises:
        DataError: as ``columns`` and ``class_labels`` raise.
    """
    if array.ndim == 1 and array.dtype.kind in "biu":
        labels = torch.from_numpy(class_labels(array, what))
        return (None if images else labels.to(torch.float64)[:, None]), labels
    Y = columns(array, what)
    whole = whole_labels(Y[:, 0]) if array.ndim == 1 and not images else None
    return torch.from_numpy(Y), None if whole is None else torch.from_numpy(whole)
