"""Photographs as callers have them: PIL images, arrays and tensors of bytes, 16-bit numbers or floats; and back."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..._core.validate import as_tensor, positive
from ..._data.image_folder import read_pixels
from ..._data.pictures import like, plane_order
from ..problem import checked_image

RANGE = (-1.0, 2.0)
"""Floats outside are no noise around 0..1, but another unit, such as 0..255."""
DARK = 0.1
"""Floats that hardly ever reach this may be in another unit, too."""
BRIGHT = 0.999
"""The quantile that counts as white of floats in another unit: a few stars or hot pixels are not to decide."""
SAMPLE = 1 << 22
"""It is taken of about so many."""
DEPTHS = (8, 10, 12, 14)
"""Bits of cameras whose numbers are stored in 16."""
WHOLE = (torch.uint8, torch.uint16)


@dataclass(frozen=True)
class Form:
    """What a photograph was before it became intensities.

    Attributes:
        kind: ``"pil"``, ``"numpy"`` or ``"torch"``.
        dtype: of its samples.
        shape: of its array.
        white: the sample that became intensity 1.
        device: where a tensor lies.
    """

    kind: Literal["pil", "numpy", "torch"]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    white: float
    device: torch.device

    @property
    def whole(self) -> bool:
        """Whether the samples are whole numbers, so that what lies beyond their range is lost."""
        return self.dtype.kind == "u"

    @property
    def step(self) -> float:
        """Intensities between neighbouring samples; 0 for floats."""
        return 1.0 / self.white if self.whole else 0.0

    def clipped(self, image: Tensor) -> Tensor:
        """Intensities inside the range of whole numbers; floats have none."""
        return image.clamp(0.0, float(np.iinfo(self.dtype).max) / self.white) if self.whole else image

    def samples(self, image: Tensor) -> npt.NDArray[Any]:
        """Intensities (H, W) or (3, H, W) as samples (H, W) or (H, W, 3), rounded and clipped where they are whole numbers."""
        precise = torch.float64 if self.dtype == np.float64 else torch.float32
        scaled = self.clipped(image).detach().cpu().to(precise).numpy() * self.white
        planes = scaled if scaled.ndim == 2 else np.moveaxis(scaled, 0, -1)
        return np.ascontiguousarray((np.rint(planes) if self.whole else planes).astype(self.dtype))

    def of(self, image: Tensor) -> Any:
        """Intensities (H, W) or (3, H, W) as what the photograph was: type, dtype, axes, unit and device."""
        samples = self.samples(image)
        if self.kind == "pil":
            from PIL import Image

            return Image.fromarray(samples)
        array = np.ascontiguousarray(like(samples, self.shape))
        return array if self.kind == "numpy" else torch.from_numpy(array).to(self.device)


@dataclass(frozen=True)
class PhotoInput:
    """A photograph as intensities.

    Attributes:
        intensities: (H, W) or (3, H, W), float32 or float64, finite; black is 0 and white is 1.
        form: what it was.
        notices: what was taken as white, where that is a guess, and what a PIL image of another mode became.
    """

    intensities: Tensor
    form: Form
    notices: tuple[str, ...] = ()


def photo_input(photo: Any, white: float | Literal["auto"] | None = None) -> PhotoInput:
    """The intensities of a photograph.

    Args:
        photo: a PIL image without transparent pixels, or an array or tensor (H, W), (3, H, W) or (H, W, 3) of uint8, uint16,
            float32 or float64; an axis of length 1 may stand for a single colour.
        white: the sample that is white. By default 1 for floats; for whole numbers the largest that their bits allow, which in
            16 bits are as few of 8, 10, 12, 14 and 16 as they all fit in. ``"auto"`` looks at floats, too: where they lie beyond
            -1..2, or are dark everywhere, a high quantile is white.

    Raises:
        TypeError: something else, or another dtype.
        ValueError: another shape, first and last axis of length 3, NaN or infinite samples, fewer than 2 rows or columns, floats
            beyond -1..2 without a ``white``, or a white that is not positive.
    """
    pil = sys.modules.get("PIL.Image")
    kind: Literal["pil", "numpy", "torch"] = "torch" if isinstance(photo, Tensor) else "numpy"
    converted: tuple[str, ...] = ()
    if pil is not None and isinstance(photo, pil.Image):
        kind = "pil"
        photo, converted = _pixels(photo)
    samples = _samples(photo)
    axes, planar = (tuple(samples.shape), False) if kind == "pil" else plane_order(tuple(samples.shape), "photo")
    planes = samples.reshape(axes)
    planes = planes if planes.ndim == 2 or planar else planes.movedim(-1, 0)
    rows, columns = planes.shape[-2:]
    if min(rows, columns) < 2:
        raise ValueError(f"photo has {rows} x {columns} pixels; at least 2 a side are needed for a wavelet transform")
    level, notices = _white(planes, white)
    dtype = np.dtype(str(samples.dtype).removeprefix("torch."))
    scaled = planes.to(torch.float32) if samples.dtype in WHOLE else planes
    scaled = (scaled if level == 1.0 else scaled / level).contiguous()
    return PhotoInput(scaled, Form(kind, dtype, tuple(samples.shape), level, samples.device), converted + notices)


def _pixels(image: Any) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """The samples of a PIL image, (H, W) or (H, W, 3), and what they are where that is not its mode."""
    if image.mode == "F":
        return np.asarray(image), ()
    if image.mode == "I" and _in_16_bits(*image.getextrema()):
        return np.asarray(image).astype(np.uint16), ("its 32-bit numbers were taken as 16-bit ones, which they fit in",)
    pixels = read_pixels(image, Path("photo"))
    if image.mode in ("L", "RGB") or image.mode.startswith("I;16"):
        return pixels, ()
    became = "grey" if pixels.ndim == 2 else "RGB"
    opaque = ", without its alpha channel, which is opaque" if image.mode.endswith("A") else ""
    return pixels, (f"its mode {image.mode} became {became}{opaque}",)


def _in_16_bits(least: int, most: int) -> bool:
    return least >= 0 and most <= np.iinfo(np.uint16).max


def _samples(photo: Any) -> Tensor:
    """As a tensor of one of the four dtypes; floats are finite."""
    if isinstance(photo, (str, PathLike)):
        raise TypeError(f"photo is {str(photo)!r}, a name; open the file first, for example with PIL.Image.open")
    if isinstance(photo, np.ndarray) and photo.dtype.kind == "u" and photo.dtype.itemsize <= 2:
        photo = torch.from_numpy(np.array(photo, dtype=photo.dtype.newbyteorder("=")))  # a copy: it may be read-only
    if isinstance(photo, Tensor) and photo.dtype in WHOLE:
        if photo.ndim < 2 or photo.numel() == 0:
            raise ValueError(f"photo has shape {tuple(photo.shape)}; pass a non-empty image (rows, columns)")
        return photo.detach()
    if isinstance(photo, (np.ndarray, Tensor)) and not str(photo.dtype).removeprefix("torch.").startswith("float"):
        dtype = str(photo.dtype).removeprefix("torch.")
        raise TypeError(f"photo has dtype {dtype}; pass uint8, uint16, or float32 or float64 in which white is 1")
    return checked_image("photo", as_tensor("photo", photo))


def _white(planes: Tensor, white: float | str | None) -> tuple[float, tuple[str, ...]]:
    """The sample that is white, and what a person should know of it."""
    if white is not None and white != "auto":
        return positive("white", white), ()
    if planes.dtype == torch.uint8:
        return 255.0, ()
    if planes.dtype == torch.uint16:
        most = int(planes.to(torch.int32).max())
        bits = next((bits for bits in DEPTHS if 0 < most < 1 << bits), 16)
        level = (1 << bits) - 1
        notice = f"its 16-bit numbers end at {most}, so {level} ({bits} bits) is taken as white"
        return float(level), () if bits == 16 else (notice,)
    return _white_of_floats(planes, white == "auto")


def _white_of_floats(planes: Tensor, automatic: bool) -> tuple[float, tuple[str, ...]]:
    least, most = float(planes.min()), float(planes.max())
    beyond = least < RANGE[0] or most > RANGE[1]
    if not automatic:
        if beyond:
            raise ValueError(
                f"photo has intensities from {least:.3g} to {most:.3g}, where black is 0 and white is 1; divide it by its white, "
                "for example 255, or pass that as white"
            )
        return 1.0, ()
    flat = planes.reshape(-1)
    some = flat[:: max(1, flat.numel() // SAMPLE)].cpu().numpy()
    level = float(np.quantile(some, BRIGHT))
    if not beyond and level >= DARK:
        return 1.0, ()
    if level <= 0.0:
        level = max(abs(least), abs(most))
    if level == 0.0:
        return 1.0, ()
    return level, (
        f"its floats reach from {least:.4g} to {most:.4g}, so {level:.4g} is taken as white; nothing is clipped",
    )
