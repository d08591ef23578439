"""IDX files, the format of MNIST and its relatives, gzip-compressed or plain."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch

from .arrays import class_labels, image_rows
from .dataset import Data
from .errors import DataError
from .holdout import holdout
from .sizes import require_proportion

# The third byte of the file names the type of the entries, which are stored with the most significant byte
# first.
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

_PIECE = 1 << 24


def load_idx(images: Path, labels: Path | None, split_seed: int, test_fraction: float) -> Data:
    """Read images as float64 rows (uint8 divided by 255) and, from a second file, their labels.

    The split is seeded and stratified where there are labels: a file holds the official train part or the
    official test part, never both.

    Raises:
        DataError: not an IDX file, truncated, trailing bytes, labels and images exchanged, or row counts
            differ.
    """
    pixels = _read(images)
    if pixels.ndim < 2:
        raise DataError(f"{images}: holds a vector, as label files do; give 'images.gz,labels.gz' in this order")
    X = torch.from_numpy(image_rows(pixels, str(images)))
    if labels is None:
        return Data(X=X, name=images.name)
    classes = torch.from_numpy(class_labels(_read(labels), str(labels)))
    if len(classes) != len(X):
        raise DataError(f"{labels}: has {len(classes)} labels, but {images} has {len(X)} images; they must agree")
    split = holdout(len(X), test_fraction, split_seed, classes)
    return Data(X=X, labels=classes, split=split, name=f"{images.name},{labels.name}")


def _read(path: Path) -> npt.NDArray[Any]:
    try:
        with path.open("rb") as file:
            return _parse(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, path, path.stat().st_size)
    except EOFError as error:
        raise DataError(f"{path}: the compressed file is truncated; fetch or write it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: not a valid gzip file ({error})") from error


def _parse(file: BinaryIO | gzip.GzipFile, path: Path, stored: int) -> npt.NDArray[Any]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] == 0:
        raise DataError(
            f"{path}: not an IDX file: it starts with {magic.hex(' ') or 'nothing (empty file)'}; "
            "expected 00 00, a type code and the number of dimensions"
        )
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise DataError(f"{path}: ends inside its header; the file is truncated")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
    dtype = np.dtype(_TYPES[magic[2]])
    expected = math.prod(shape) * dtype.itemsize
    if expected == 0:
        raise DataError(f"{path}: has shape {shape}, so it holds no rows; expected at least one sample")
    # Piece by piece: neither what a damaged header claims is allocated, nor what a hostile file expands to beyond it.
    body = bytearray()
    while len(body) <= expected and (piece := file.read(min(_PIECE, expected + 1 - len(body)))):
        body += piece
        if len(body) == _PIECE:  # there is much of it
            require_proportion(str(path), expected, stored)
    if len(body) != expected:
        follow = f"more than {expected}" if len(body) > expected else f"{len(body)}"
        raise DataError(
            f"{path}: shape {shape} of {dtype.itemsize}-byte entries needs {expected} bytes, but {follow} "
            "follow the header; the file is damaged"
        )
    return np.frombuffer(body, dtype).reshape(shape)
