"""Two classes of images with rows of unit norm, as in the experiments on implicit networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from surefoot._core.samples import SampleLoss
from surefoot._data.dataset import Data
from surefoot._data.errors import MissingSourceError
from surefoot._data.loading import load
from surefoot_check.arrays import digest

PAPER = "Gradient Descent Optimizes Infinite-Depth ReLU Implicit Networks with Linear Widths"
FILES: dict[str, tuple[str, tuple[int, ...]]] = {
    "MNIST": ("mnist01.npz", (28, 28)),
    "Fashion-MNIST": ("fashion01.npz", (28, 28)),
    "CIFAR-10": ("cifar01.npz", (32, 32, 3)),
    "USPS": ("usps01.npz", (16, 16)),
}
"""File with images, labels 0 and 1 and the official split, and the shape of an image; USPS stands for the paper's SVHN."""
DIGITS = "digits"
"""What is used where the files are absent: scikit-learn's digits 0 and 1, 8x8."""
SIDE = 28
GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class TwoClass:
    """A draw of training and test samples of classes 0 and 1.

    Attributes:
        name: of the data set.
        X, Y: (N, d) with rows of norm 1, and labels 0 and 1 (N, 1), as many of each.
        X_test, Y_test: unseen samples, likewise.
    """

    name: str
    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor

    @property
    def loss(self) -> SampleLoss:
        """The training loss."""
        return SampleLoss(self.X, self.Y)

    @property
    def digest(self) -> str:
        """Of all four arrays."""
        return "".join(digest(x.contiguous().numpy()) for x in (self.X, self.Y, self.X_test, self.Y_test))


def available(wanted: Sequence[str], directory: Path | None) -> list[str]:
    """Those of the data sets whose files are in the directory, or ``DIGITS`` alone if none is.

    Raises:
        MissingSourceError: a directory that does not exist.
    """
    if directory is None:
        return [DIGITS]
    if not directory.is_dir():
        raise MissingSourceError(f"{directory} is not a directory; pass the one that holds {_files(wanted)}")
    return [name for name in wanted if (directory / FILES[name][0]).is_file()] or [DIGITS]


def described(wanted: Sequence[str], used: Sequence[str]) -> str:
    """Which data sets were used, and what was in the place of those that are absent."""
    absent = [name for name in wanted if name not in used]
    if not absent:
        return ", ".join(used)
    instead = "scikit-learn's digits 0 and 1 (8x8) instead" if used[0] == DIGITS else "left out"
    return f"{', '.join(used)} ({_files(absent)} not given: {instead})"


def draw(
    name: str, directory: Path | None, samples: int, generator: torch.Generator, unseen: int | None = None
) -> TwoClass:
    """``samples`` of the training part and ``unseen`` (as many by default) of the test part, half of each class or all there are.

    Raises:
        DataError: the file is damaged or not what its name says.
    """
    if name == DIGITS:
        data = load(DIGITS).classes(0, 1)
        X = data.in_memory().X
    else:
        file, shape = FILES[name]
        assert directory is not None
        data = load(directory / file)
        X = _grey(data, shape)
    assert isinstance(X, Tensor)
    assert data.labels is not None
    assert data.split is not None
    X = X / torch.linalg.vector_norm(X, dim=1, keepdim=True).clamp_min(torch.finfo(X.dtype).tiny)
    train = _chosen(data.labels, ~data.split, samples, generator)
    test = _chosen(data.labels, data.split, samples if unseen is None else unseen, generator)
    Y = data.labels.to(torch.float64)[:, None]
    return TwoClass(name, X[train], Y[train], X[test], Y[test])


def _files(names: Sequence[str]) -> str:
    return ", ".join(FILES[name][0] for name in names)


def _grey(data: Data, shape: tuple[int, ...]) -> Tensor:
    """Rows of 28x28 grey values."""
    assert isinstance(data.X, Tensor)
    images = data.X.reshape(-1, *shape)
    if len(shape) == 3:
        images = images @ torch.tensor(GREY, dtype=images.dtype)
    if shape[:2] != (SIDE, SIDE):
        images = torch.nn.functional.interpolate(
            images[:, None], size=(SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False
        )[:, 0]
    return images.reshape(len(images), -1)


def _chosen(labels: Tensor, usable: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """Indices of half as many samples of each class, the same number of both."""
    members = [torch.nonzero(usable & (labels == label))[:, 0] for label in (0, 1)]
    count = min(samples // 2, *(len(rows) for rows in members))
    return torch.cat([rows[torch.randperm(len(rows), generator=generator)[:count]] for rows in members])
