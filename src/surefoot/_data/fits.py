"""Photographs in FITS files, as telescopes and cameras for science write them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from .errors import DataError, MissingLibraryError
from .pictures import Picture, arranged, of_array
from .sizes import require_proportion

STALE = ("BZERO", "BSCALE", "BLANK", "DATAMIN", "DATAMAX", "CHECKSUM", "DATASUM", "EXTNAME", "EXTVER", "INHERIT")
"""Keywords about the numbers as they were stored, or about the other parts of the file."""
BLOCK = 2880
"""Bytes that files are padded to a multiple of, by most programs."""
EXTRA = "FITS files are read and written with astropy: pip install 'surefoot[fits]'"


def require_fits() -> Any:
    """The library.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        from astropy.io import fits  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingLibraryError(EXTRA) from error
    return fits


def read_fits(path: Path, name: str | None) -> Picture:
    """The photograph of a FITS file, its rows in the order of the file, as float32 unless it has bytes or unsigned 16 bits.

    Args:
        path: the file.
        name: of the extension, or its number; by default the only one that holds a picture.

    Raises:
        DataError: damaged, no such extension, none named where several hold pictures, sizes beyond what the file holds, or
            ``of_array`` refuses the array.
        MissingLibraryError: astropy is not installed.
    """
    library = require_fits()
    with path.open("rb") as file, warnings.catch_warnings():
        if file.read(6) != b"SIMPLE":  # compressed files would be expanded before anything is known of them
            raise DataError(f"{path}: not a FITS file (empty or another format); expand it first if it is compressed")
        file.seek(0)
        warnings.simplefilter("ignore")
        try:
            with library.open(file, memmap=False) as units:
                unit = units[_chosen(units, path, name)]
                stored = path.stat().st_size
                require_proportion(
                    f"{path}: the picture", abs(unit.header["BITPIX"]) // 8 * math.prod(unit.shape), stored
                )
                _require_whole(unit, path, stored)
                picture = of_array(unit.data, str(path))
                header = unit.header.tostring()
                write_fits(Picture(picture.pixels[:2, :2], header=header))  # found now and not when a picture is done
        except DataError:
            raise
        except Exception as error:  # whatever its parser meets in a damaged file: a dozen kinds, undocumented
            raise DataError(f"{path}: not a readable FITS file ({error})") from error
    return Picture(picture.pixels, header=header, stored=picture.stored)


def write_fits(picture: Picture, history: Sequence[str] = ()) -> bytes:
    """The bytes of a FITS file: the header of the file it is from, and lines of its history.

    Raises:
        MissingLibraryError: astropy is not installed.
    """
    library = require_fits()
    content = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        header = library.Header.fromstring(picture.header or "")
        for keyword in STALE:
            header.remove(keyword, ignore_missing=True, remove_all=True)
        unit = library.PrimaryHDU(arranged(picture), header)
        for line in history:
            unit.header.add_history(line)
        unit.writeto(content, output_verify="silentfix+ignore")
    return content.getvalue()


def _chosen(units: Any, path: Path, name: str | None) -> int:
    """The index of the part that holds the picture."""
    found = [i for i, unit in enumerate(units) if unit.is_image and len(unit.shape) >= 2]
    names = {index: units[index].name or str(index) for index in found}
    if name is not None:
        matching = [index for index in found if name.upper() == names[index] or name == str(index)]
        if not matching:
            listed = ", ".join(names.values()) or "none"
            raise DataError(f"{path}: has no picture {name!r}; pictures found: {listed}")
        return matching[0]
    if len(found) != 1:
        listed = f"; name one: {path.name}:NAME, of {', '.join(names.values())}" if found else ""
        raise DataError(f"{path}: holds {len(found)} pictures{listed}")
    return found[0]


def _require_whole(unit: Any, path: Path, stored: int) -> None:
    """Refuse a file that ends before the picture does: the library would fail later, or fill it in."""
    place = unit.fileinfo()
    if place is not None and place["datLoc"] + place["datSpan"] - BLOCK >= stored:
        raise DataError(f"{path}: ends before its picture does ({stored} bytes); the file is truncated")
