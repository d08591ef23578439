"""Deep linear ResNets: milliseconds a step in autograd and in our engine, many rows, and a certificate."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from report import Report, Shown, one_thread, parser, seconds

import surefoot as sf
from surefoot._linear_resnet.engine import SubspaceEngine
from surefoot._linear_resnet.reduction import reduce

SIZE = 10
STEPS = 20
ETA = 1e-15


@dataclass(frozen=True)
class Sizes:
    """Layers and their width; rows in memory, few and many, rows in a file, and rows of a block of it."""

    depth: int
    width: int
    few: int
    many: int
    file: int
    block: int

    def network(self) -> sf.nn.LinearResNet:
        """The Gaussian network, the same one at every call."""
        return sf.nn.LinearResNet.gaussian(SIZE, SIZE, self.width, self.depth, seed=1)


FULL, SMOKE = Sizes(100, 200, 1000, 1_000_000, 10_000_000, 100_000), Sizes(3, 20, 20, 100, 200, 100)


def data(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The paper's data: X with N(0, 1) entries, Y = -X + .1 E."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(rows, SIZE, generator=g, dtype=torch.float64)
    return X, 0.1 * torch.randn(rows, SIZE, generator=g, dtype=torch.float64) - X


def plain_step(net: sf.nn.LinearResNet, X: torch.Tensor, Y: torch.Tensor) -> float:
    """Seconds a step of torch.optim.SGD on the plain module with all rows."""
    optimizer = torch.optim.SGD(net.parameters(), lr=ETA)

    def work() -> None:
        optimizer.zero_grad()
        (0.5 * (net(X) - Y).square().sum()).backward()
        optimizer.step()

    return seconds(work, 1)


def our_step(net: sf.nn.LinearResNet, loss: sf.SquaredLoss) -> float:
    """Seconds a step of the engine, with the gap and the gradient's norm of every iterate; setting it up is not counted."""
    reduced = reduce(net, loss)
    engine = SubspaceEngine(loss.reduced, reduced.A, reduced.B, reduced.W)

    def work() -> None:
        for _ in range(STEPS):
            _ = engine.iterate.measurements
            engine.move(ETA)

    return seconds(work) / STEPS


def anonymous_memory() -> int:
    """RssAnon of this process in bytes: memory of its own, without the pages of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def write(path: Path, sizes: Sizes) -> None:
    """X and Y side by side as float32, block by block."""
    rng = np.random.default_rng(0)
    both = np.lib.format.open_memmap(path, "w+", np.float32, (sizes.file, 2 * SIZE))
    for start in range(0, sizes.file, sizes.block):
        X = rng.standard_normal((sizes.block, SIZE), np.float32)
        noise = rng.standard_normal((sizes.block, SIZE), np.float32)
        both[start : start + sizes.block] = np.hstack([X, np.float32(0.1) * noise - X])
    both.flush()


def train_from_file(path: str, sizes: Sizes) -> tuple[float, float, int]:
    """Seconds of the reduction and of a step, and the peak of RssAnon; for a process of its own."""
    one_thread()
    peak, done = [anonymous_memory()], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    both = np.load(path, mmap_mode="r")
    start = time.perf_counter()
    loss = sf.SquaredLoss(both[:, :SIZE], both[:, SIZE:])
    took = time.perf_counter() - start
    step = our_step(sizes.network(), loss)
    done.set()
    watcher.join()
    return took, step, peak[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    report = Report(parser(__doc__), arguments)
    sizes = SMOKE if report.smoke else FULL
    steps(report, sizes)
    certificates(report, sizes)


def of_many(net: sf.nn.LinearResNet, count: int) -> tuple[float, float]:
    """Seconds of the reduction of so many rows, and of a step; the rows are gone afterwards."""
    X, Y = data(count)
    reduction, loss = seconds(lambda: sf.SquaredLoss(X, Y), 1), sf.SquaredLoss(X, Y)
    return reduction, statistics.median(our_step(net, loss) for _ in range(5))


def steps(report: Report, sizes: Sizes) -> None:
    """A gradient step on few rows, on many, and on those of a file."""
    rows: list[list[object]] = []
    net = sizes.network()
    X, Y = data(sizes.few)
    # alternately, so that a change of the machine's load meets both
    pairs = [(our_step(net, sf.SquaredLoss(X, Y)), plain_step(sizes.network(), X, Y)) for _ in range(5)]
    few, autograd = (statistics.median(side) for side in zip(*pairs, strict=True))
    reduction = seconds(lambda: sf.SquaredLoss(X, Y))
    ratio = Shown(autograd / few, "{:.0f}x")
    rows.append([f"{sizes.few:,}, memory", reduction, few * 1e3, autograd * 1e3, ratio, "-"])
    reduction, many = of_many(net, sizes.many)
    rows.append([f"{sizes.many:,}, memory", reduction, many * 1e3, "-", "-", "-"])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.npy"
        write(path, sizes)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            reduction, step, peak = pool.apply(train_from_file, (str(path), sizes))
    rows.append([f"{sizes.file:,}, float32 file", reduction, step * 1e3, "-", "-", Shown(peak / 1e6, "{:.0f} MB")])
    report.table(
        f"A gradient step, L = {sizes.depth}, m = {sizes.width}, d = k = {SIZE}, float64",
        ["rows", "reduction, once, s", "ours, ms", "bare autograd, ms", "ratio", "peak RssAnon"],
        rows,
        "Ours also measures the gap and the gradient's norm of every iterate; autograd does not.",
    )


def certificates(report: Report, sizes: Sizes) -> None:
    """The default theorem on few rows, at two depths."""
    loss = sf.SquaredLoss(*data(sizes.few))
    rows: list[list[object]] = []
    for depth in (sizes.depth // 10 or 1, sizes.depth):
        net = replace(sizes, depth=depth).network()
        rows.append([depth, seconds(lambda net=net: sf.certify(net, loss), 1)])
    title = f"A certificate (linear-resnet/local), m = {sizes.width}"
    report.table(title, ["depth", "seconds of certify(net, loss)"], rows)


if __name__ == "__main__":
    main()
