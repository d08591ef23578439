"""Folders of PNG and JPEG images."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .dataset import Data
from .errors import DataError
from .holdout import holdout

FORMATS = ("PNG", "JPEG")
"""As Pillow names them. It would read forty others, whatever the file is called, one of them by running Ghostscript."""
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})


def load_folder(folder: Path, split_seed: int, test_fraction: float) -> Data:
    """Read a folder of images, with values in [0, 1].

    With one subfolder per class (labels 0, 1, ... in the order of the sorted subfolder names) the images
    must have one size and become rows (N, n), with a seeded stratified split. A flat folder becomes a
    mapping from file name to image (H, W) or (H, W, 3), of any sizes. Files of other types and names that
    start with a dot are passed over.

    Raises:
        DataError: no images, images beside class subfolders, a class without images, images of different
            shapes in class folders, an unreadable file, or an image with transparency.
    """
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    classes = [entry for entry in entries if entry.is_dir()]
    flat = _images(entries)
    if classes and flat:
        raise DataError(f"{folder}: holds images ({flat[0].name}) beside subfolders ({classes[0].name}); keep one kind")
    if not classes and not flat:
        raise DataError(f"{folder}: holds no .png or .jpg images and no subfolders; expected one or the other")
    if flat:
        return Data(X={file.name: _read(file) for file in flat}, name=folder.name)

    rows: list[Tensor] = []
    labels: list[int] = []
    shape: tuple[int, ...] | None = None
    for label, subfolder in enumerate(classes):
        files = _images(sorted(entry for entry in subfolder.iterdir() if not entry.name.startswith(".")))
        if not files:
            raise DataError(f"{subfolder}: class without .png or .jpg images; remove the folder or fill it")
        for file in files:
            image = _read(file)
            if shape is None:
                shape = tuple(image.shape)
            if tuple(image.shape) != shape:
                raise DataError(f"{file}: has shape {tuple(image.shape)}, but the first image has {shape}; resize it")
            rows.append(image.flatten())
            labels.append(label)
    numbers = torch.tensor(labels, dtype=torch.int64)
    split = holdout(len(rows), test_fraction, split_seed, numbers)
    return Data(X=torch.stack(rows), labels=numbers, split=split, name=folder.name)


def _images(entries: list[Path]) -> list[Path]:
    return [entry for entry in entries if entry.suffix.lower() in _SUFFIXES and entry.is_file()]


def _read(file: Path) -> Tensor:
    from PIL import Image

    try:
        with bounded(), Image.open(file, formats=FORMATS) as image:
            pixels = read_pixels(image, file)
    except (OSError, SyntaxError, EOFError, ValueError, *too_large()) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file}: not a readable PNG or JPEG image ({error})") from error
    scale = np.iinfo(pixels.dtype).max
    return torch.from_numpy(pixels.astype(np.float64) / scale)


@contextmanager
def bounded() -> Iterator[None]:
    """Within the context, Pillow raises one of ``too_large`` for images of more pixels than it takes for harmless (some 90
    million), where it would warn and go on."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def too_large() -> tuple[type[Exception], ...]:
    """What Pillow raises of such images."""
    from PIL import Image

    return Image.DecompressionBombError, Image.DecompressionBombWarning


def read_pixels(image: Any, file: Path) -> np.ndarray[Any, np.dtype[np.uint8 | np.uint16]]:
    """Grey (H, W) or colour (H, W, 3) as uint8, or grey of 16 bits as uint16."""
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.uint16)
    if image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"):
        raise DataError(f"{file}: image mode {image.mode} is not supported; save it as 8-bit grey or RGB")
    if image.has_transparency_data and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
        raise DataError(f"{file}: has transparent pixels; flatten the image onto a background first")
    return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"))
