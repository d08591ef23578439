"""Photographs in TIFF files: 8 and 16 bits and floats, grey and colour."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DataError, MissingLibraryError
from .pictures import ORIENTATION, TURNED, Picture, of_array, opaque, upright
from .sizes import require_proportion

PROFILE = 34675
DESCRIPTION = 270
OWN_NOTE = b'{"shape"'
"""How the library's own description of an array begins, whose shape may change."""
RESOLUTION = (282, 283, 296)
"""Across, down, and their unit."""
KEPT = (
    *((DESCRIPTION,), (271,), (272,), RESOLUTION, (306,), (315,), (700,), (33432,)),  # texts, XMP
    (33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113),  # where on the earth the pixels lie
)
"""Tags that say as much of the sharpened photograph as of the blurred one, in groups that mean something together."""
MINISWHITE = 0
SEPARATE = 2
"""Planar configuration of files with red, green and blue one after the other."""
GREY_OR_RGB = (MINISWHITE, 1, 2)
YCBCR_OF_JPEG = (6, 7)
"""Photometric interpretation and compression: the decoder of JPEG makes it red, green and blue."""
EXTRA = "TIFF files are read and written with tifffile: pip install 'surefoot[tiff]'"


def require_tiff() -> Any:
    """The library.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        import tifffile  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingLibraryError(EXTRA) from error
    return tifffile


def read_tiff(path: Path) -> Picture:
    """Read a TIFF photograph the way up that its orientation tag says. An opaque alpha channel is left out.

    Raises:
        DataError: damaged, several pages, a palette, transparent pixels, sizes beyond what the file holds, or not compressed in a
            way that can be read here.
        MissingLibraryError: tifffile is not installed.
    """
    library = require_tiff()
    with _quiet():
        try:
            with library.TiffFile(path) as file:
                page = _only_page(file, path)
                array = page.asarray(maxworkers=1)
                tags = {tag.code: _plain(tag) for tag in reversed(list(page.tags))}  # of two, the first
                photometric, planar = int(page.photometric), int(page.planarconfig) == SEPARATE
                readable = photometric in GREY_OR_RGB or (photometric, int(page.compression)) == YCBCR_OF_JPEG
                alpha = [int(kind) for kind in page.extrasamples] in ([1], [2])
        except (DataError, KeyboardInterrupt):
            raise
        except Exception as error:  # whatever its parser meets in a damaged file: a dozen kinds, undocumented
            raise DataError(f"{path}: {_reason(error)}") from error
        groups = [[tags[code] for code in group if code in tags] for group in KEPT]
        kept = tuple(tag for group in groups if _writable(library, group) for tag in group)
    if not readable:
        raise DataError(f"{path}: has a palette or another colour model; save it as grey or as red, green and blue")
    if planar and array.ndim == 3:
        array = np.moveaxis(array, 0, -1)
    if alpha:
        array = opaque(array, path)
    if photometric == MINISWHITE and array.dtype.kind != "b":
        array = np.iinfo(array.dtype).max - array if array.dtype.kind == "u" else -array
    turn = int(tags[ORIENTATION][3]) if ORIENTATION in tags else 1
    return Picture(
        np.ascontiguousarray(upright(of_array(array, str(path)).pixels, turn)),
        profile=bytes(tags[PROFILE][3]) if PROFILE in tags else None,
        turned=turn in TURNED,
        tags=kept,
    )


def write_tiff(picture: Picture) -> bytes:
    """The bytes of a TIFF file, its pixels compressed without loss.

    Raises:
        MissingLibraryError: tifffile is not installed.
    """
    with _quiet():
        return _written(require_tiff(), picture)


def _written(library: Any, picture: Picture) -> bytes:
    values = {code: value for code, _, _, value in picture.tags}
    tags = [(*tag, True) for tag in picture.tags if tag[0] not in RESOLUTION]
    if picture.profile:
        tags.append((PROFILE, 7, len(picture.profile), picture.profile, True))
    across, down, unit = (values.get(code) for code in RESOLUTION)
    resolution = {} if across is None or down is None else {"resolution": (across, down), "resolutionunit": unit or 1}
    content = BytesIO()
    library.imwrite(
        content,
        picture.pixels,
        photometric="minisblack" if picture.pixels.ndim == 2 else "rgb",
        compression="adobe_deflate",
        predictor=picture.whole,
        metadata=None,
        software=False,
        extratags=tags,
        **resolution,
    )
    return content.getvalue()


def _only_page(file: Any, path: Path) -> Any:
    """The page that is no thumbnail and no smaller copy.

    Raises:
        DataError: there are several, or it claims more pixels than the file can hold.
    """
    pages = [page for page in file.pages if not page.is_reduced]
    count = max(
        len(pages), int((file.imagej_metadata or {}).get("images", 1))
    )  # ImageJ lists one page of a large stack
    if count != 1:
        raise DataError(f"{path}: holds {count} pages; save the one that you mean as a file of its own")
    page = pages[0]
    if page.dtype is None:
        raise DataError(
            f"{path}: has samples of {page.bitspersample} bits, which cannot be read; save it with 8 or 16 bits"
        )
    require_proportion(f"{path}: the picture", page.size * page.dtype.itemsize, path.stat().st_size)
    return page


def _reason(error: Exception) -> str:
    if "imagecodecs" in str(error):
        return (
            f"its compression needs another library ({error}); pip install imagecodecs, or save it without compression"
        )
    return f"not a readable TIFF image ({error}); if another program shows it, save it anew there"


def _plain(tag: Any) -> tuple[int, int, int, Any]:
    text = isinstance(tag.value, str)
    value = tag.value.encode() + b"\0" if text else tag.value  # as text, only ASCII is written
    return tag.code, int(tag.dtype), len(value) if text else tag.count, value


def _writable(library: Any, tags: list[tuple[int, int, int, Any]]) -> bool:
    """Whether tags, of whatever kinds a file claims, can be written: found now and not when a picture is done."""
    if any(
        code == DESCRIPTION and isinstance(value, bytes) and value.startswith(OWN_NOTE) for code, _, _, value in tags
    ):
        return False
    try:
        _written(library, Picture(np.zeros((2, 2), np.uint8), tags=tuple(tags)))
    except Exception:  # undocumented
        return False
    return True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within the context, the library does not log what it finds odd about a file."""
    logger = logging.getLogger("tifffile")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
