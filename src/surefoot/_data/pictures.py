"""Single photographs, and those of PNG and JPEG files: read with depth, orientation, profile and EXIF, written as PNG."""

from __future__ import annotations

import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import require_real
from .errors import DataError, MissingLibraryError, MissingSourceError
from .image_folder import FORMATS, bounded, read_pixels, too_large

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COMPRESSION = 6
Pixels = npt.NDArray[np.uint8 | np.uint16 | np.float32]
ORIENTATION = 0x0112
"""The tag of EXIF and TIFF that says how a picture is to be turned; 1 where it is upright."""
TURNED = range(2, 9)
"""Its values for pictures that are not."""


@dataclass(frozen=True)
class Picture:
    """A photograph, and what its file says beside the pixels that a sharpened one keeps.

    Attributes:
        pixels: (H, W) grey or (H, W, 3) colour; uint8, uint16, or float32 in any unit, finite.
        profile: the ICC profile of these colours, if the file has one.
        turned: whether the file's orientation tag turned or mirrored it.
        exif: of a PNG or JPEG file, as a TIFF structure, with these pixels' orientation.
        tags: of a TIFF file (code, type, count, value): resolution, texts, georeferences.
        header: of a FITS file, its cards of 80 characters in one text.
        stored: the shape of the file's array, where that is not the shape of ``pixels``, such as (3, H, W).
    """

    pixels: Pixels
    profile: bytes | None = None
    turned: bool = False
    exif: bytes | None = None
    tags: tuple[tuple[int, int, int, Any], ...] = ()
    header: str | None = None
    stored: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        """Bits of a sample: 8, 16 or 32."""
        return 8 * self.pixels.dtype.itemsize

    @property
    def whole(self) -> bool:
        """Whether the samples are whole numbers, else floats."""
        return self.pixels.dtype.kind == "u"


def of_array(array: npt.NDArray[Any], what: str, **kept: Any) -> Picture:
    """A picture of an array (H, W), (3, H, W) or (H, W, 3); uint8 and uint16 stay so, other numbers become float32.

    Args:
        array: the numbers; axes of length 1 before all others are left out, and one that stands for a single colour.
        what: names them in errors.
        kept: what else ``Picture`` holds.

    Raises:
        DataError: of another shape, without pixels, no real numbers, not finite, or beyond float32.
    """
    require_real(array, what)
    if array.dtype.kind == "b":
        raise DataError(f"{what} holds only true and false, which is no photograph; save intensities")
    pixels = interleaved(array, what)
    pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    if pixels.dtype not in (np.uint8, np.uint16):
        with np.errstate(over="ignore"):
            pixels = pixels.astype(np.float32)
        if not np.isfinite(pixels).all():
            raise DataError(f"{what} holds numbers beyond the range of float32; divide them by a power of ten")
    return Picture(np.ascontiguousarray(pixels), stored=None if pixels.shape == array.shape else array.shape, **kept)


def arranged(picture: Picture) -> Pixels:
    """The pixels with the axes of the file that they are from."""
    if picture.stored is None:
        return picture.pixels
    return np.ascontiguousarray(like(picture.pixels, picture.stored))


def like(pixels: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Pixels (H, W) or (H, W, 3) with the axes that ``interleaved`` made them of."""
    _, planar = plane_order(shape, "the photo")
    return (np.moveaxis(pixels, -1, 0) if planar else pixels).reshape(shape)


def interleaved(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """A view (H, W) or (H, W, 3) of an array (H, W), (3, H, W) or (H, W, 3); see ``plane_order``."""
    shape, planar = plane_order(array.shape, what)
    view = array.reshape(shape)
    return np.moveaxis(view, 0, -1) if planar else view


def plane_order(shape: tuple[int, ...], what: str) -> tuple[tuple[int, ...], bool]:
    """The axes without those of length 1 that stand for nothing, and whether the first is that of red, green and blue.

    Raises:
        DataError: neither grey nor colour, or the colours could be the first axis and the last.
    """
    axes = shape
    while len(axes) > 3 and axes[0] == 1:
        axes = axes[1:]
    if len(axes) == 3 and axes[-1] == 1:
        axes = axes[:2]
    elif len(axes) == 3 and axes[0] == 1 and axes[-1] != 3:
        axes = axes[1:]
    if len(axes) == 2:
        return axes, False
    if len(axes) != 3 or 3 not in (axes[0], axes[-1]):
        alpha = "; leave its alpha channel out, as pixels[..., :3] does" if axes and axes[-1] == 4 else ""
        raise DataError(
            f"{what} has shape {shape}; pass grey (rows, columns), or colour (3, rows, columns) or (rows, columns, 3){alpha}"
        )
    if axes[0] == axes[-1]:
        raise DataError(
            f"{what} has shape {shape}: its colours could be the first axis or the last; pass more than 3 rows and columns"
        )
    return axes, axes[0] == 3


def require_pillow() -> Any:
    """The library.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        import PIL
    except ImportError as error:
        raise MissingLibraryError("PNG and JPEG files are read with Pillow: pip install 'surefoot[images]'") from error
    return PIL


def read_picture(path: Path) -> Picture:
    """Read a PNG or JPEG photograph the way up that its orientation tag says.

    Palettes, bilevel pictures and other colour models become 8-bit grey or red, green, blue. An alpha channel that is opaque
    everywhere is left out, as it says nothing.

    Raises:
        MissingSourceError: no such file.
        DataError: no readable PNG or JPEG image, damaged, animated, with transparent pixels, or with too many pixels for Pillow.
        MissingLibraryError: Pillow is not installed.
    """
    require_pillow()
    from PIL import Image

    if not path.is_file():
        what = "a directory, not a file" if path.is_dir() else "no such file"
        raise MissingSourceError(f"{path}: {what}; pass a PNG or JPEG photograph")
    try:
        with bounded(), Image.open(path, formats=FORMATS) as image:
            if image.format == "PNG" and getattr(image, "is_animated", False):
                raise DataError(f"{path}: is animated; save the frame that you mean as a picture of its own")
            deep = _deep_colour(path, image)
            if deep is not None:
                high, low = (np.asarray(plane).astype(np.uint16) for plane in _bytes_of(path, deep))
                pixels: Pixels = opaque((high << 8 | low).astype(np.uint16), path)
                kept = True
            else:
                pixels = read_pixels(image, path)
                # the profile of inks says nothing about red, green and blue
                kept = image.mode in ("RGB", "RGBA", "P", "PA", "L", "LA", "I;16")
            turn = _orientation(image)
            exif = upright_exif(image.info.get("exif"))
            profile = image.info.get("icc_profile") if kept else None
    except DataError:
        raise
    except too_large() as error:
        raise DataError(
            f"{path}: says that it has more pixels than Pillow reads ({error}); crop or shrink it"
        ) from error
    except (OSError, SyntaxError, EOFError, ValueError) as error:
        raise DataError(
            f"{path}: not a readable PNG or JPEG image ({error}); if another program shows it, save it as PNG there"
        ) from error
    return Picture(np.ascontiguousarray(upright(pixels, turn)), profile, turn in TURNED, exif)


def write_png(picture: Picture) -> bytes:
    """The bytes of a PNG file. Pillow writes no colour of 16 bits; every row is filtered by its left neighbour (Sub)."""
    pixels = picture.pixels
    rows, columns = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else 3
    raw = np.frombuffer(pixels.astype(pixels.dtype.newbyteorder(">")).tobytes(), np.uint8).reshape(rows, -1)
    width = channels * picture.depth // 8
    filtered = np.ones((rows, raw.shape[1] + 1), np.uint8)  # 1 is the code of Sub
    filtered[:, 1 : width + 1] = raw[:, :width]
    filtered[:, width + 1 :] = raw[:, width:] - raw[:, :-width]  # modulo 256, as the format has it
    header = struct.pack(">IIBBBBB", columns, rows, picture.depth, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = [(b"IHDR", header)]
    if picture.profile:
        chunks.append((b"iCCP", b"profile\0\0" + zlib.compress(picture.profile)))
    if picture.exif:
        chunks.append((b"eXIf", picture.exif))
    chunks += [(b"IDAT", zlib.compress(filtered.tobytes(), COMPRESSION)), (b"IEND", b"")]
    return SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def upright_exif(block: bytes | None) -> bytes | None:
    """EXIF as a TIFF structure with orientation 1; all other bytes stay, so that offsets inside maker's notes do.

    Args:
        block: EXIF with or without the mark before it that JPEG has; whatever a file holds there.

    Returns:
        ``None`` for no EXIF, or what is none.
    """
    if not block:
        return None
    exif = bytearray(block.removeprefix(b"Exif\0\0"))
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(bytes(exif[:4]))
    if order is None:
        return None
    try:
        (first,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, first)
        for entry in range(first + 2, first + 2 + 12 * entries, 12):
            code, kind, count = struct.unpack_from(f"{order}HHI", exif, entry)
            if (code, kind, count) == (ORIENTATION, 3, 1):
                struct.pack_into(f"{order}H", exif, entry + 8, 1)
    except struct.error:
        return None
    return bytes(exif)


def upright(pixels: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """Rows and columns as they are meant; numbers that no orientation has mean 1."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def _orientation(image: Any) -> int:
    """How the image is to be turned; as it is where that cannot be read, which is no reason to refuse the picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return int(image.getexif().get(ORIENTATION, 1))
        except (SyntaxError, ValueError, TypeError, KeyError, OSError, struct.error):
            return 1


def _deep_colour(path: Path, image: Any) -> str | None:
    """The mode of a PNG with 16 bits a colour, which Pillow reads with 8 only; ``None`` for every other file."""
    if image.format != "PNG":
        return None
    with path.open("rb") as file:
        start = file.read(26)
    depth, kind = start[24], start[25]
    if depth != 16 or kind == 0:
        return None
    if kind == 4:
        raise DataError(f"{path}: is grey of 16 bits with an alpha channel; save it without alpha")
    return image.mode


def _bytes_of(path: Path, mode: str) -> list[Any]:
    """The high and the low bytes of 16-bit colours, as two images.

    Pillow keeps the high byte of a sample, which comes first in the file; told that it comes second, it keeps the low one."""
    from PIL import Image

    images: list[Any] = []
    for order in ("B", "L"):
        with Image.open(path, formats=("PNG",)) as image:
            image.tile = [part._replace(args=f"{mode};16{order}") for part in image.tile]
            image.load()
            images.append(image.copy())
    return images


def opaque(pixels: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    """Grey (H, W) or colour (H, W, 3) of pixels (H, W, 2 or 4) whose last channel is alpha; others as they are.

    Raises:
        DataError: some are transparent.
    """
    if pixels.ndim != 3 or pixels.shape[-1] not in (2, 4):
        return pixels
    if pixels[..., -1].min() < (np.iinfo(pixels.dtype).max if pixels.dtype.kind == "u" else 1):
        raise DataError(f"{path}: has transparent pixels; flatten the image onto a background first")
    return np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 2 else pixels[..., :3])
