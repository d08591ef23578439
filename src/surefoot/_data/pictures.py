"""Single photographs: read with their depth, orientation and colour profile, written as PNG."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DataError, MissingSourceError
from .image_folder import FORMATS, bounded, read_pixels, too_large

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COMPRESSION = 6
Pixels = npt.NDArray[np.uint8 | np.uint16]


@dataclass(frozen=True)
class Picture:
    """A photograph.

    Attributes:
        pixels: (H, W) grey or (H, W, 3) colour; uint8 or uint16.
        profile: the ICC profile of these colours, if the file has one.
        turned: whether the file's orientation tag turned or mirrored it.
    """

    pixels: Pixels
    profile: bytes | None = None
    turned: bool = False

    @property
    def depth(self) -> int:
        """Bits of a sample: 8 or 16."""
        return 8 * self.pixels.dtype.itemsize

    def intensities(self) -> npt.NDArray[np.float32]:
        """(H, W) or (3, H, W) in 0..1."""
        planes = self.pixels if self.pixels.ndim == 2 else np.moveaxis(self.pixels, -1, 0)
        return np.ascontiguousarray(planes, dtype=np.float32) / np.float32(np.iinfo(self.pixels.dtype).max)


def read_picture(path: Path) -> Picture:
    """Read a PNG or JPEG photograph the way up that its orientation tag says.

    Palettes, bilevel pictures and other colour models become 8-bit grey or red, green, blue. An alpha channel that is opaque
    everywhere is left out, as it says nothing.

    Raises:
        MissingSourceError: no such file.
        DataError: no readable PNG or JPEG image, damaged, animated, with transparent pixels, or with too many pixels for Pillow.
        ImportError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError("photographs are read with Pillow: pip install 'surefoot[images]'") from error
    if not path.is_file():
        what = "a directory, not a file" if path.is_dir() else "no such file"
        raise MissingSourceError(f"{path}: {what}; pass a PNG or JPEG photograph")
    try:
        with bounded(), Image.open(path, formats=FORMATS) as image:
            if image.format == "PNG" and getattr(image, "is_animated", False):
                raise DataError(f"{path}: is animated; save the frame that you mean as a picture of its own")
            deep = _deep_colour(path, image)
            if deep is not None:
                planes = [_upright(ImageOps, plane) for plane in _bytes_of(path, deep)]
                high, low = (np.asarray(plane).astype(np.uint16) for plane in planes)
                pixels: Pixels = _opaque((high << 8 | low).astype(np.uint16), path)
                kept = True
            else:
                shown = _upright(ImageOps, image)
                pixels = read_pixels(shown, path)
                # the profile of inks says nothing about red, green and blue
                kept = image.mode in ("RGB", "RGBA", "P", "PA", "L", "LA", "I;16")
            turned = image.getexif().get(0x0112, 1) != 1
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
    return Picture(pixels, profile, turned)


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
    chunks += [(b"IDAT", zlib.compress(filtered.tobytes(), COMPRESSION)), (b"IEND", b"")]
    return SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def quantised(intensities: npt.NDArray[np.floating], depth: int) -> Pixels:
    """Pixels (H, W) or (H, W, 3) of intensities (H, W) or (3, H, W), clipped to 0..1 and rounded."""
    kind = np.uint8 if depth == 8 else np.uint16
    planes = intensities if intensities.ndim == 2 else np.moveaxis(intensities, 0, -1)
    return np.rint(np.clip(planes, 0.0, 1.0) * np.iinfo(kind).max).astype(kind)


def _upright(operations: Any, image: Any) -> Any:
    return operations.exif_transpose(image)


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


def _opaque(pixels: Pixels, path: Path) -> Pixels:
    if pixels.shape[-1] == 4:
        if pixels[..., 3].min() < np.iinfo(pixels.dtype).max:
            raise DataError(f"{path}: has transparent pixels; flatten the image onto a background first")
        return np.ascontiguousarray(pixels[..., :3])
    return pixels
