"""Real data that scikit-learn carries, so that it needs no download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .dataset import Data
from .holdout import holdout


def load_bundled(name: str, split_seed: int, test_fraction: float) -> Data:
    """Load one of `names()`; see `surefoot.data.load`."""
    return _LOADERS[name](split_seed, test_fraction)


def names() -> tuple[str, ...]:
    """The names of the bundled data sets, in alphabetical order.

    Example:
        >>> sf.data.names()
        ('diabetes', 'digits', 'photos')
    """
    return tuple(sorted(_LOADERS))


def _digits(split_seed: int, test_fraction: float) -> Data:
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    labels = torch.tensor(bunch.target, dtype=torch.int64)
    return Data(
        X=torch.tensor(bunch.data, dtype=torch.float64) / 16,  # grey levels 0 to 16
        labels=labels,
        split=holdout(len(labels), test_fraction, split_seed, labels),
        name="digits",
        licence="CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits; E. Alpaydin, C. Kaynak, 1998)",
        feature_names=tuple(bunch.feature_names),
    )


def _diabetes(split_seed: int, test_fraction: float) -> Data:
    from sklearn.datasets import load_diabetes

    # Raw measurements: scikit-learn's scaled columns were scaled with the rows that become test rows here.
    bunch: Any = load_diabetes(scaled=False)
    Y = torch.tensor(bunch.target, dtype=torch.float64)[:, None]
    return Data(
        X=torch.tensor(bunch.data, dtype=torch.float64),
        Y=Y,
        split=holdout(len(Y), test_fraction, split_seed),
        name="diabetes",
        licence="none stated (B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, Least angle regression)",
        feature_names=tuple(bunch.feature_names),
    )


def _photos(split_seed: int, test_fraction: float) -> Data:
    from sklearn.datasets import load_sample_image

    files = ("china.jpg", "flower.jpg")
    return Data(
        X={file: torch.tensor(load_sample_image(file), dtype=torch.float64) / 255 for file in files},
        name="photos",
        licence="CC BY 2.0 (china.jpg: flickr danielbuechele; flower.jpg: flickr vultilion)",
    )


_LOADERS: dict[str, Callable[[int, float], Data]] = {
    "diabetes": _diabetes,
    "digits": _digits,
    "photos": _photos,
}
