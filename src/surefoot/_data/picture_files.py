"""The file formats of photographs: which suffix means which, what reads and writes it, and what it can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .array_pictures import read_npy, read_npz, write_npy
from .errors import DataError, MissingSourceError
from .fits import read_fits, require_fits, write_fits
from .pictures import Picture, read_picture, require_pillow, write_png
from .tiff import read_tiff, require_tiff, write_tiff


@dataclass(frozen=True)
class PictureFormat:
    """A file format.

    Attributes:
        name: for people.
        suffixes: of its files, in small letters; the first is that of new files.
        read: (path, name inside the file or ``None``) -> the photograph.
        write: (photograph, lines of its history) -> the file's bytes; ``None`` where it is only read.
        floats: whether it holds any real numbers, else whole ones of 8 or 16 bits.
        named: whether a file may hold several pictures with names.
        instead: where it is only read, the suffix of what a photo of this format becomes.
        require: raises ``MissingLibraryError`` where the library that it needs is not installed.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, str | None], Picture]
    write: Callable[[Picture, Sequence[str]], bytes] | None
    floats: bool = False
    named: bool = False
    instead: str = ".png"
    require: Callable[[], Any] = lambda: None


FORMATS = (
    PictureFormat("PNG", (".png",), lambda path, _: read_picture(path), lambda picture, _: write_png(picture)),
    PictureFormat("JPEG", (".jpg", ".jpeg"), lambda path, _: read_picture(path), None, require=require_pillow),
    PictureFormat(
        "TIFF",
        (".tif", ".tiff"),
        lambda path, _: read_tiff(path),
        lambda picture, _: write_tiff(picture),
        floats=True,
        require=require_tiff,
    ),
    PictureFormat(
        "NumPy", (".npy",), lambda path, _: read_npy(path), lambda picture, _: write_npy(picture), floats=True
    ),
    PictureFormat("NumPy archive", (".npz",), read_npz, None, floats=True, named=True, instead=".npy"),
    PictureFormat(
        "FITS", (".fits", ".fit", ".fts"), read_fits, write_fits, floats=True, named=True, require=require_fits
    ),
)
SUFFIXES = tuple(suffix for kind in FORMATS for suffix in kind.suffixes)
"""Suffixes of files that can be read."""
WRITTEN = tuple(suffix for kind in FORMATS if kind.write is not None for suffix in kind.suffixes)
"""Suffixes of files that can be written."""


def format_of(path: Path) -> PictureFormat | None:
    """The format that the name's suffix stands for."""
    return next((kind for kind in FORMATS if path.suffix.lower() in kind.suffixes), None)


def located(source: str) -> tuple[Path, str | None]:
    """The file, and which of its pictures where the source is ``file.npz:NAME`` or ``file.fits:NAME``."""
    path = Path(source).expanduser()
    before, colon, name = source.rpartition(":")
    if colon and not path.exists():
        file = Path(before).expanduser()
        kind = format_of(file)
        if kind is not None and kind.named:
            return file, name
    return path, None


def read_photo(source: str) -> Picture:
    """A photograph in any of the formats; a file whose suffix says nothing is tried as PNG and JPEG.

    Args:
        source: a path, or ``file.npz:NAME`` or ``file.fits:NAME``.

    Raises:
        MissingSourceError: no such file.
        DataError: it cannot be used as it is.
        MissingLibraryError: the library that reads it is not installed.
    """
    path, name = located(source)
    if not path.is_file():
        what = "a directory, not a file" if path.is_dir() else "no such file"
        raise MissingSourceError(f"{path}: {what}; pass a photograph: PNG, JPEG, TIFF, FITS, x.npy or file.npz:NAME")
    kind = format_of(path)
    return read_picture(path) if kind is None else kind.read(path, name)


def writer(path: Path) -> PictureFormat:
    """The format that a new file of this name has.

    Raises:
        DataError: nothing writes such files.
        MissingLibraryError: the library that writes it is not installed.
    """
    kind = format_of(path)
    if kind is None or kind.write is None:
        raise DataError(
            f"{path}: nothing writes {path.suffix or 'files without a suffix'}; end it in {', '.join(WRITTEN)}"
        )
    kind.require()
    return kind


def require_room(kind: PictureFormat, picture: Picture, path: Path) -> None:
    """Refuse to write floats into a format of whole numbers.

    Raises:
        DataError: it would clip and round them.
    """
    if not picture.whole and not kind.floats:
        fitting = ", ".join(other.suffixes[0] for other in FORMATS if other.write is not None and other.floats)
        raise DataError(
            f"{path}: the photo has floats, which {kind.name} would clip and round; end the name in one of {fitting}"
        )
