"""Pictures that may be trained on and the weights passed on: those that scikit-learn and scikit-image bring along under a free
licence or in the public domain."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ..noise.estimate import BRIGHTNESS

LUMINANCE = np.array(BRIGHTNESS)
REDUCTIONS = (1.0, 1.5, 2.2)
"""Factors by which photographs are made smaller: small ones are sharp to the pixel."""


@dataclass(frozen=True)
class Picture:
    """A picture as its package calls it, its terms as its package states them, and the factors by which it is made smaller."""

    name: str
    package: str
    author: str
    licence: str
    source: str
    reductions: tuple[float, ...] = REDUCTIONS


_BY = "CC BY 2.0, https://creativecommons.org/licenses/by/2.0/"
_CC0 = "CC0 1.0, https://creativecommons.org/publicdomain/zero/1.0/"
_PUBLIC = "public domain"
_TEXTURES = "https://cc0textures.com"

PICTURES = (
    Picture(
        "china.jpg", "scikit-learn", "danielbuechele", _BY, "https://www.flickr.com/photos/danielbuechele/6061409035/"
    ),
    Picture("flower.jpg", "scikit-learn", "vultilion", _BY, "https://www.flickr.com/photos/vultilion/6056698931/"),
    Picture("astronaut", "scikit-image", "NASA", _PUBLIC, "https://flic.kr/p/r9qvLn"),
    Picture("brick", "scikit-image", "CC0Textures", _CC0, _TEXTURES, (1.5,)),
    Picture("camera", "scikit-image", "Lav Varshney", _CC0, "skimage.data.camera"),
    Picture("chelsea", "scikit-image", "Stefan van der Walt", _CC0, "skimage.data.chelsea"),
    Picture("coffee", "scikit-image", "Rachel Michetti", _CC0, "skimage.data.coffee"),
    Picture("grass", "scikit-image", "CC0Textures", _CC0, _TEXTURES, (1.5,)),
    Picture("gravel", "scikit-image", "CC0Textures", _CC0, _TEXTURES, (1.5,)),
    Picture("hubble_deep_field", "scikit-image", "NASA", _PUBLIC, "https://hubblesite.org", (2.2,)),
    Picture("rocket", "scikit-image", "SpaceX", _PUBLIC, "skimage.data.rocket"),
)
"""Of scikit-image's pictures those that its wheel holds, whose documentation names CC0 or the public domain, and that have the
size and the content of photographs. Textures and stars appear once: they are to be the smaller part."""


def free_pictures() -> list[np.ndarray]:
    """Grey images of bytes, each at all of its reductions.

    Raises:
        ValueError: scikit-image is not installed.
    """
    from PIL import Image

    found: list[np.ndarray] = []
    for picture in PICTURES:
        image = grey(picture)
        rows, columns = image.shape
        for factor in picture.reductions:
            size = (round(columns / factor), round(rows / factor))
            found.append(
                image if factor == 1.0 else np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))
            )
    return found


def luminance(image: np.ndarray) -> np.ndarray:
    """A grey image of bytes (H, W) of a colour one (H, W, 3)."""
    return np.rint(image @ LUMINANCE).astype(np.uint8)


def grey(picture: Picture) -> np.ndarray:
    """A picture as its package has it, as grey bytes (H, W); raises as ``free_pictures``."""
    if picture.package == "scikit-learn":
        from sklearn.datasets import load_sample_image

        return luminance(load_sample_image(picture.name))
    try:
        data = import_module("skimage.data")
    except ImportError as error:
        raise ValueError("the free pictures need scikit-image, which is not installed here; install it") from error
    image: Any = getattr(data, picture.name)()
    return luminance(image) if image.ndim == 3 else image
