"""Blur kernels from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from .arrays import real_array
from .errors import DataError, MissingSourceError
from .numpy_files import map_array, read_chosen
from .picture_files import format_of, located
from .pictures import Pixels
from .sizes import require_at_most

LARGEST = 1 << 28
"""Bytes of a kernel's file."""
KINDS = "k.npy, file.npz:NAME, k.png, k.tif, k.fits, a text file with a row of numbers per line, or motion:9,30"


def read_kernel(source: str) -> npt.NDArray[np.float64]:
    """A matrix of numbers (kh, kw), or a grid (R, C, kh, kw) of them, as in the file: not divided by its sum.

    Args:
        source: ``k.npy``; ``file.npz`` with one array, or ``file.npz:NAME``; a grey picture in any format of photographs; or a
            text file with one row per line, numbers separated by blanks, commas or semicolons, ``#`` before comments.

    Raises:
        MissingSourceError: no such file.
        DataError: unreadable, or no matrix of finite real numbers.
    """
    path, name = located(source)
    if not path.is_file():
        what = "a directory, not a file" if path.is_dir() else "no such file"
        raise MissingSourceError(f"{path}: {what}; a kernel is one of {KINDS}")
    require_at_most(path, LARGEST, "a kernel")
    kind = format_of(path)
    if kind is None:
        array = _from_text(path)
    elif path.suffix.lower() == ".npz":
        array = read_chosen(path, name)
    elif path.suffix.lower() == ".npy":
        array = map_array(path)
    else:
        array = _from_picture(kind.read(path, name).pixels, path)
    what = f"kernel {source}"
    kernel = real_array(array, what)
    if kernel.ndim not in (2, 4):
        raise DataError(
            f"{what} has shape {kernel.shape}; expected one kernel, (rows, columns), or a grid (R, C, rows, columns) of them"
        )
    return kernel


def _from_picture(pixels: Pixels, path: Path) -> npt.NDArray[np.generic]:
    if pixels.ndim == 3:
        if (pixels != pixels[..., :1]).any():
            raise DataError(f"{path}: a kernel is grey, and this picture has colours; save it as grey")
        pixels = pixels[..., 0]
    return pixels


def _from_text(path: Path) -> npt.NDArray[np.generic]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()  # spreadsheets put a byte order mark before the first number
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is no text; a kernel is one of {KINDS}") from error
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        parts = _cells(line.partition("#")[0].strip(), path, number)
        try:
            row = [float(part) for part in parts]
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}; a kernel is one of {KINDS}") from error
        if row and rows and len(row) != len(rows[0]):
            raise DataError(f"{path}, line {number}: has {len(row)} numbers, the lines before {len(rows[0])}")
        if row:
            rows.append(row)
    if not rows:
        raise DataError(f"{path}: holds no numbers; a kernel is one of {KINDS}")
    return np.array(rows)


def _cells(line: str, path: Path, number: int) -> list[str]:
    """The numbers of a line, separated by blanks, or by commas or semicolons with blanks around them.

    Raises:
        DataError: an empty cell, which would move its row, or two kinds of separators, where a comma may be a decimal one.
    """
    marks = [mark for mark in ",;" if mark in line]
    if not marks:
        return line.split()
    cells = [cell.strip() for cell in line.split(marks[0])]
    if not cells[-1]:
        cells.pop()  # of a mark after the last number
    if len(marks) > 1 or any(len(cell.split()) > 1 for cell in cells):
        raise DataError(
            f"{path}, line {number}: {line[:40]!r} has two kinds of separators; write decimals with a point, and one separator"
        )
    if not all(cells):
        raise DataError(f"{path}, line {number}: a number is missing between separators; write 0 where the kernel is 0")
    return cells
