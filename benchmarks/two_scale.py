"""A multiscale equilibrium model: accuracy, evaluations, time and memory of its training, beside torchdeq and unrolling."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import Report, Shown, parser
from torch import Tensor, nn
from torch.nn import functional

import surefoot as sf

PEERS = ("torchdeq",)
LIMIT = 300
STATE = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Sizes:
    """Channels, samples in training and a batch, epochs, tolerance, and the iterations at which memory is measured."""

    channels: int
    samples: int
    batch: int
    epochs: int
    iterations: tuple[int, ...]
    tolerance: float = 1e-4


FULL = Sizes(12, 3000, 100, 3, (10, 50, 200))
SMOKE = Sizes(2, 12, 6, 1, (2, 4))


class Convolution(nn.Module):
    """A 3×3 convolution whose norm is at most ``bound``: that of a convolution is at most the sum of those of its nine taps."""

    def __init__(self, channels: int, bound: float, stride: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, channels, 3, 3) / (3.0 * channels**0.5))
        self.bound, self.stride = bound, stride

    def scaled(self) -> Tensor:
        """The weight, shrunk where its taps exceed the bound."""
        taps = torch.linalg.matrix_norm(self.weight.movedim((2, 3), (0, 1)), 2).sum()
        return self.weight * (self.bound / taps.clamp(min=self.bound))

    def forward(self, z: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, channels, H/stride, W/stride)."""
        return functional.conv2d(z, self.scaled(), stride=self.stride, padding=1)


class Cell(nn.Module):
    """f((fine, coarse), x): convolutions on each of two scales, and from each to the other; ‖∂f/∂z‖ ≤ q.

    A block matrix whose four blocks have norms of at most q/2 has one of at most q; repeating each pixel four times doubles a
    norm.
    """

    def __init__(self, channels: int, q: float) -> None:
        super().__init__()
        self.fine, self.coarse = Convolution(channels, q / 2), Convolution(channels, q / 2)
        self.down, self.up = Convolution(channels, q / 2, stride=2), Convolution(channels, q / 4)

    def forward(self, z: STATE, x: STATE) -> STATE:
        """The next state; x are the features of the picture at both scales."""
        (fine, coarse), (of_fine, of_coarse) = z, x
        up = functional.interpolate(self.up(coarse), scale_factor=2.0)
        return torch.tanh(self.fine(fine) + up + of_fine), torch.tanh(self.coarse(coarse) + self.down(fine) + of_coarse)


class Solver(ABC):
    """One way to find the equilibrium."""

    def __init__(self, cell: Cell, tolerance: float) -> None:
        self.cell, self.tolerance = cell, tolerance

    @abstractmethod
    def forward(self, start: STATE, x: STATE) -> STATE:
        """The state, differentiable."""

    def count(self) -> list[int]:
        """Evaluations of the latest forward and backward."""
        return []


class Ours(Solver):
    """``sf.nn.EquilibriumLayer``."""

    def __init__(self, cell: Cell, tolerance: float, q: float | None, most: int = LIMIT) -> None:
        super().__init__(cell, tolerance)
        failing = "raise" if most == LIMIT else "return"
        self.layer = sf.nn.EquilibriumLayer(
            cell,
            contraction=q,
            tolerance=tolerance,
            backward_tolerance=tolerance,
            max_iterations=most,
            on_failure=failing,
        )

    def forward(self, start: STATE, x: STATE) -> STATE:
        """By the layer."""
        return self.layer(x, z0=start)

    def count(self) -> list[int]:
        """As the records have them."""
        records = self.layer.info, self.layer.backward_info
        return [0 if record is None else record.iterations for record in records]


class TorchDEQ(Solver):
    """torchdeq's plain iteration with implicit differentiation, to the same residual."""

    def __init__(self, cell: Cell, tolerance: float, most: int = LIMIT) -> None:
        from torchdeq import get_deq  # pyright: ignore[reportMissingImports]

        super().__init__(cell, tolerance)
        self.records: list[Any] = []
        self.deq = get_deq(
            ift=True, f_solver="fixed_point_iter", b_solver="fixed_point_iter", f_stop_mode="rel", b_stop_mode="rel",
            f_tol=tolerance, b_tol=tolerance, f_max_iter=most, b_max_iter=most,
        )  # fmt: skip

    def forward(self, start: STATE, x: STATE) -> STATE:
        """The last state."""
        self.records = []
        states, record = self.deq(lambda *z: self.cell(z, x), start, backward_writer=self.records.append)
        self.records.insert(0, record)
        return tuple(states[-1])

    def count(self) -> list[int]:
        """The steps that it reports."""
        return [int(record["nstep"].max()) for record in self.records]


class Unrolled(Solver):
    """A number of evaluations that autograd records."""

    def __init__(self, cell: Cell, evaluations: int) -> None:
        super().__init__(cell, 0.0)
        self.evaluations = evaluations

    def forward(self, start: STATE, x: STATE) -> STATE:
        """All of them."""
        z = start
        for _ in range(self.evaluations):
            z = self.cell(z, x)
        return z


class Model(nn.Module):
    """Features of a picture, the equilibrium, and a linear classifier of both scales."""

    def __init__(self, inputs: int, side: int, classes: int, channels: int, q: float) -> None:
        super().__init__()
        self.stride = 2 if side >= 32 else 1
        self.side = side // self.stride
        self.features = nn.Conv2d(inputs, channels, 3, stride=self.stride, padding=1)
        self.cell = Cell(channels, q)
        self.head = nn.Linear(2 * channels * 4, classes)
        self.solver: Solver = Ours(self.cell, FULL.tolerance, q)

    def states(self, pictures: Tensor) -> tuple[STATE, STATE]:
        """Zeros, and what the picture adds at each scale."""
        fine = self.features(pictures)
        x = fine, functional.avg_pool2d(fine, 2)
        return (torch.zeros_like(x[0]), torch.zeros_like(x[1])), x

    def forward(self, pictures: Tensor) -> Tensor:
        """(N, inputs, side, side) to (N, classes)."""
        z = self.solver.forward(*self.states(pictures))
        return self.head(torch.cat([functional.adaptive_avg_pool2d(scale, 2).flatten(1) for scale in z], 1))

    def residual(self, pictures: Tensor) -> float:
        """Largest ‖f(z) − z‖/‖z‖ of a sample, over both scales."""
        with torch.no_grad():
            start, x = self.states(pictures)
            z = self.solver.forward(start, x)
            rows = [torch.cat([part.flatten(1) for part in state], 1) for state in (z, self.cell(z, x))]
        return float(((rows[1] - rows[0]).norm(dim=1) / rows[0].norm(dim=1)).max())


@dataclass(frozen=True)
class Data:
    """Pictures (N, inputs, side, side) in [−1, 1], and their classes."""

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @classmethod
    def load(cls, file: Path | None, samples: int) -> Data:
        """The file with ``images``, ``labels`` and ``split``, or the digits of scikit-learn."""
        if file is None:
            from sklearn.datasets import load_digits

            numbers, classes = load_digits(return_X_y=True)
            pictures = torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 8, 8) / 8.0 - 1.0
            labels, test = torch.tensor(classes), torch.arange(len(pictures)) >= 1200
            name = "digits"
        else:
            held = np.load(file)
            pictures = torch.from_numpy(held["images"]).permute(0, 3, 1, 2).float() / 127.5 - 1.0
            labels, test = torch.from_numpy(held["labels"]).long(), torch.from_numpy(held["split"]) == 1
            name = file.stem
        order = torch.randperm(int((~test).sum()), generator=torch.Generator().manual_seed(0))[:samples]
        return cls(name, (pictures[~test][order], labels[~test][order]), (pictures[test], labels[test]))

    def model(self, channels: int, q: float) -> Model:
        """The same weights every time."""
        torch.manual_seed(0)
        pictures, labels = self.train
        return Model(pictures.shape[1], pictures.shape[2], int(labels.max()) + 1, channels, q)

    def batches(self, size: int, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Of the training data, in an order of its own for each epoch."""
        for epoch in range(epochs):
            order = torch.randperm(len(self.train[1]), generator=torch.Generator().manual_seed(epoch))
            for index in order.split(size):
                yield self.train[0][index], self.train[1][index]


def step(model: Model, pictures: Tensor, labels: Tensor) -> Tensor:
    """The loss; its gradient is added to the parameters'."""
    loss = functional.cross_entropy(model(pictures), labels)
    loss.backward()
    return loss.detach()


def kept(model: Model, pictures: Tensor, labels: Tensor) -> int:
    """Bytes that autograd holds between a forward and its backward, each storage once."""
    held: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = functional.cross_entropy(model(pictures), labels)
    del loss
    return sum(held.values())


def train(data: Data, sizes: Sizes, q: float, make: Callable[[Cell], Solver], name: str) -> tuple[list[object], Model]:
    """One row: what training with this solver gave; and the trained model."""
    model = data.model(sizes.channels, q)
    model.solver = make(model.cell)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    times: list[float] = []
    counts: list[list[int]] = []
    loss = torch.zeros(())
    for pictures, labels in data.batches(sizes.batch, sizes.epochs):
        begin = time.process_time()
        optimizer.zero_grad()
        loss = step(model, pictures, labels)
        optimizer.step()
        times.append(time.process_time() - begin)
        counts.append(model.solver.count())
    with torch.no_grad():
        right = [model(p).argmax(1) == y for p, y in zip(*(t.split(500) for t in data.test), strict=True)]
    first = data.train[0][: sizes.batch], data.train[1][: sizes.batch]
    row = [
        name,
        Shown(float(torch.cat(right).float().mean()), "{:.1%}"),
        Shown(float(loss), "{:.3f}"),
        *(Shown(statistics.mean(count[i] for count in counts), "{:.1f}") for i in range(2)),
        Shown(model.residual(first[0]), "{:.0e}"),
        Shown(1e3 * statistics.median(times), "{:.0f}"),
        Shown(kept(model, *first) / 2**20, "{:.1f}"),
    ]
    return row, model


def matched(model: Model, pictures: Tensor, sizes: Sizes) -> float:
    """The loosest tolerance of torchdeq with which it reaches the residual of the model's own solver."""
    wanted, tolerance = model.residual(pictures), 10.0 * sizes.tolerance
    while True:
        model.solver = TorchDEQ(model.cell, tolerance)
        if model.residual(pictures) <= wanted or tolerance < 1e-3 * sizes.tolerance:
            return tolerance
        tolerance *= 0.8


def slow_down(model: Model) -> None:
    """Let the state at each scale go to 0.99 of itself and a little, whatever the other is."""
    cell = model.cell
    with torch.no_grad():
        for convolution in (cell.fine, cell.coarse, cell.down, cell.up):
            convolution.weight.zero_()
        for convolution in (cell.fine, cell.coarse):
            convolution.bound = 0.99
            convolution.weight[:, :, 1, 1] = 0.99 * torch.eye(len(convolution.weight))
        for parameter in model.features.parameters():
            parameter.mul_(1e-3)


def memory(data: Data, sizes: Sizes, q: float, peer: bool) -> list[list[object]]:
    """MiB that each form keeps for the backward after so many evaluations, of a cell that converges slowly."""
    model = data.model(sizes.channels, q)
    slow_down(model)
    batch = data.train[0][: sizes.batch], data.train[1][: sizes.batch]
    rows: list[list[object]] = []
    for most in sizes.iterations:
        solvers: list[Solver] = [Ours(model.cell, 0.0, 0.999, most), Unrolled(model.cell, most)]
        if peer:
            solvers.insert(1, TorchDEQ(model.cell, 0.0, most))
        found: list[object] = []
        for solver in solvers:
            model.solver = solver
            found.append(Shown(kept(model, *batch) / 2**20, "{:.1f}"))
        taken = solvers[0].count()[0]
        rows.append([taken, *(found if peer else [found[0], "-", found[1]])])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, metavar="FILE", help="npz with images, labels and split; default: digits")
    report = Report(options, arguments, PEERS)
    sizes, q = SMOKE if report.smoke else FULL, 0.9
    data, peer = Data.load(report.options.data, sizes.samples), report.has("torchdeq")
    row, model = train(data, sizes, q, lambda cell: Ours(cell, sizes.tolerance, q), "surefoot")
    rows = [row]
    if peer:
        tolerance = matched(model, data.train[0][: sizes.batch], sizes)
        rows.append(train(data, sizes, q, lambda cell: TorchDEQ(cell, tolerance), "torchdeq fixed_point_iter")[0])
    pictures = f"{len(data.train[1])} pictures in batches of {sizes.batch}"
    report.table(
        f"{data.name}: {sizes.epochs} epochs of {pictures}, {sizes.channels} channels",
        ["method", "accuracy", "loss", "forward", "backward", "residual", "ms a step", "kept MiB"],
        rows,
        "Same weights, order and cell; torchdeq's tolerance is set so that its residual is at most ours on the trained model.\n"
        "forward, backward: mean evaluations; residual: largest ‖f(z) − z‖/‖z‖ of a sample; kept: what autograd holds until the\n"
        "backward.",
    )
    report.table(
        "MiB kept for the backward by the number of evaluations",
        ["evaluations", "surefoot", "torchdeq", "unrolled"],
        memory(data, sizes, q, peer),
    )


if __name__ == "__main__":
    main()
