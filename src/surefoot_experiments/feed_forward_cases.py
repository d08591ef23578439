"""Plain networks, their data and their training, each with what was measured with a prototype."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from surefoot._data.errors import MissingSourceError
from surefoot.data import load

from .implicit_data import FILES

PARITY, CLASSES, SMALL_IMAGES = "parity", "ten classes", "MNIST 14x14"
TABLES = "uci_regression.npz"
"""File with the regression tables, each as NAME_X and NAME_y."""
CONVOLUTIONS = "conv 8,8"
"""5x5 with stride 2, then 3x3, 8 channels each, on images of 14x14."""
SIDE = 14


class Kind(NamedTuple):
    """A network and its training, in plain values.

    ``network``: widths of the hidden layers, or ``CONVOLUTIONS``. ``activation``: a class of ``torch.nn``. ``task``: parity or
    the classes of digits, two classes of images, or a regression table. ``latest``, ``most``: of the prototype, the latest step
    of its seeds at which a fit was guaranteed, and the largest count. ``batch``: rows of a mini-batch, 0 for all. ``unit``: rows
    of norm 1. ``first``: standard deviation of the weights of the first layer, 0 for torch's. ``descends``: descent is run from
    the first fit. ``once``: of one seed, as it takes long.
    """

    network: str
    activation: str
    task: str
    rows: int
    latest: int = 0
    most: float | None = None
    optimizer: str = "adam"
    batch: int = 0
    dtype: str = "float64"
    unit: bool = False
    first: float = 0.0
    descends: bool = False
    once: bool = False

    @property
    def label(self) -> str:
        """As in the table."""
        batches = f", batches of {self.batch}, {self.dtype}" if self.batch else ""
        return f"{self.network} {self.activation}, {self.task}, N = {self.rows}, {self.optimizer}{batches}"

    @property
    def kinked(self) -> bool:
        """Whether training alone may end so near to a kink that nothing is certified."""
        return self.activation in ("ReLU", "LeakyReLU")

    @property
    def file(self) -> str:
        """Of its data; empty for scikit-learn's digits."""
        if self.task in (PARITY, CLASSES):
            return ""
        images = {SMALL_IMAGES: FILES["MNIST"], **FILES}
        return images[self.task][0] if self.task in images else TABLES

    def data(self, directory: Path | None) -> tuple[Tensor, Tensor]:
        """X (N, d) and Y (N, k) of the dtype of the training.

        Raises:
            DataError: a file that is damaged or not what its name says.
        """
        X, Y = _rows(self, directory)
        if self.unit:
            X = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
        dtype = getattr(torch, self.dtype)
        return X.to(dtype), Y.to(dtype)

    def net(self, inputs: int, outputs: int, seed: int) -> nn.Sequential:
        """With initial weights."""
        dtype, activation = getattr(torch, self.dtype), getattr(nn, self.activation)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.network == CONVOLUTIONS:
                return nn.Sequential(
                    nn.Unflatten(1, (1, SIDE, SIDE)),
                    nn.Conv2d(1, 8, 5, stride=2, dtype=dtype),
                    activation(),
                    nn.Conv2d(8, 8, 3, dtype=dtype),
                    activation(),
                    nn.Flatten(),
                    nn.Linear(72, outputs, dtype=dtype),
                )
            sizes = [inputs, *map(int, self.network.split(",")), outputs]
            pairs = itertools.pairwise(sizes)
            net = nn.Sequential(*[part for a, b in pairs for part in (nn.Linear(a, b, dtype=dtype), activation())][:-1])
            if self.first:
                nn.init.normal_(next(net.parameters()), 0.0, self.first)
            return net


NETWORKS = (
    Kind("50", "Tanh", PARITY, 50, 500, 2e4, descends=True),
    Kind("100,100", "Tanh", PARITY, 50, 300, 1.7e4, descends=True),
    Kind("100,100", "Tanh", PARITY, 50, 60, 5e3, "lbfgs"),
    Kind("32,32", "Tanh", PARITY, 100, 1300, 4e5),
    Kind("100,100", "ReLU", PARITY, 100, 1600, 1e4),
    Kind("100,100", "GELU", CLASSES, 100, 2300, 3e6),
    Kind("64,64,64", "SiLU", PARITY, 100, 1800, 8e4, descends=True),
    Kind("100,100", "Tanh", PARITY, 50, 700, 2e4, batch=16),
    Kind("100,100", "Tanh", PARITY, 50, 700, 2e4, batch=16, dtype="float32"),
    Kind(CONVOLUTIONS, "Tanh", SMALL_IMAGES, 50, 4400, 3e5),
    Kind(CONVOLUTIONS, "GELU", SMALL_IMAGES, 50, 3400, 2e5),
    Kind("256", "GELU", PARITY, 500, 1900, 1e6),
)
"""Plain training from torch's initial weights."""
FINISHED = (
    Kind("100,100", "ReLU", PARITY, 100, 100),
    Kind("200,200", "LeakyReLU", CLASSES, 100, 200),
    Kind("100,100", "Tanh", "MNIST", 200, 40, optimizer="lbfgs", unit=True, first=1.0),
    Kind("100,100", "Tanh", "Fashion-MNIST", 200, 40, optimizer="lbfgs", unit=True, first=1.0),
    Kind("50,50", "Tanh", "concrete", 200, 650, optimizer="lbfgs", first=3.0),
    Kind("50,50", "Tanh", "airfoil", 200, 650, optimizer="lbfgs", first=3.0),
    Kind("50,50", "Tanh", "yacht", 200, 650, optimizer="lbfgs", first=3.0),
    Kind("256", "GELU", PARITY, 500, 140, optimizer="lbfgs", unit=True, first=1.0),
    Kind("100,100", "GELU", CLASSES, 300, 500, unit=True, first=1.0, once=True),
)
"""Those that were certified with Gauss-Newton steps as a finish."""
QUICK = NETWORKS[:3]


def usable(kinds: Sequence[Kind], directory: Path | None) -> list[Kind]:
    """Those whose data are there.

    Raises:
        MissingSourceError: a directory that does not exist.
    """
    if directory is not None and not directory.is_dir():
        files = ", ".join(sorted({kind.file for kind in kinds} - {""}))
        raise MissingSourceError(f"{directory} is not a directory; pass the one that holds {files}")
    return [kind for kind in kinds if not kind.file or (directory is not None and (directory / kind.file).is_file())]


def left_out(kinds: Sequence[Kind], used: Sequence[Kind]) -> str:
    """What was used of which file, for the settings."""
    absent = sorted({kind.file for kind in kinds if kind not in used})
    return f"; left out, as --data names no directory that holds it: {', '.join(absent)}" if absent else ""


def digits(rows: int, classes: bool) -> tuple[Tensor, Tensor]:
    """The first rows of digits, columns standardised over them, and their classes, one-hot or 1 for odd ones and -1 for even."""
    data = load("digits")
    assert isinstance(data.X, Tensor) and data.labels is not None
    X, labels = standardised(data.X[:rows]), data.labels[:rows]
    if classes:
        return X, nn.functional.one_hot(labels, 10).double()
    return X, torch.where(labels % 2 == 1, 1.0, -1.0).double()[:, None]


def table(name: str, rows: int, directory: Path) -> tuple[Tensor, Tensor]:
    """The first distinct rows of a regression table, columns and target standardised over them."""
    data = load(f"{directory / TABLES}:{name}")
    assert isinstance(data.X, Tensor) and data.Y is not None
    seen: dict[tuple[float, ...], int] = {}
    for number, row in enumerate(data.X.tolist()):
        seen.setdefault(tuple(row), number)
    first = list(seen.values())[:rows]
    return standardised(data.X[first]), standardised(data.Y[first].reshape(len(first), 1))


def standardised(X: Tensor) -> Tensor:
    """Columns of mean 0 and standard deviation 1, constant ones dropped."""
    spread = X.std(0)
    return (X - X.mean(0))[:, spread > 0.0] / spread[spread > 0.0]


def _rows(kind: Kind, directory: Path | None) -> tuple[Tensor, Tensor]:
    if not kind.file:
        return digits(kind.rows, kind.task == CLASSES)
    assert directory is not None
    if kind.file == TABLES:
        return table(kind.task, kind.rows, directory)
    data = load(directory / kind.file)
    assert isinstance(data.X, Tensor) and data.labels is not None and data.split is not None
    chosen = torch.nonzero(~data.split)[: kind.rows, 0]
    X, Y = data.X[chosen], (2.0 * data.labels[chosen].double() - 1.0)[:, None]
    if kind.task == SMALL_IMAGES:
        small = nn.functional.avg_pool2d(X.reshape(-1, 1, 2 * SIDE, 2 * SIDE), 2).flatten(1)
        X = (small - small.mean(0)) / torch.where(small.std(0) > 0.0, small.std(0), 1.0)  # a constant pixel becomes 0
    return X, Y
