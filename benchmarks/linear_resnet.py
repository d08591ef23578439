"""Deep linear ResNets: milliseconds a step in autograd and in our engine, many rows, and a certificate."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from report import one_thread, seconds, table

import surefoot as sf
from surefoot._linear_resnet.engine import SubspaceEngine
from surefoot._linear_resnet.reduction import reduce

DEPTH, WIDTH, SIZE = 100, 200, 10
STEPS = 20
ETA = 1e-15
FILE_ROWS, BLOCK = 10_000_000, 100_000


def data(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The paper's data: X with N(0, 1) entries, Y = -X + .1 E."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(rows, SIZE, generator=g, dtype=torch.float64)
    return X, 0.1 * torch.randn(rows, SIZE, generator=g, dtype=torch.float64) - X


def network() -> sf.nn.LinearResNet:
    """The Gaussian network, the same one at every call."""
    return sf.nn.LinearResNet.gaussian(SIZE, SIZE, WIDTH, DEPTH, seed=1)


def plain_step(X: torch.Tensor, Y: torch.Tensor) -> float:
    """Seconds a step of torch.optim.SGD on the plain module with all rows."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=ETA)

    def work() -> None:
        optimizer.zero_grad()
        (0.5 * (net(X) - Y).square().sum()).backward()
        optimizer.step()

    return seconds(work, 1)


def our_step(loss: sf.SquaredLoss) -> float:
    """Seconds a step of the engine, with the gap and the gradient's norm of every iterate; setting it up is not counted."""
    reduced = reduce(network(), loss)
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


def write(path: Path) -> None:
    """X and Y side by side as float32, block by block."""
    rng = np.random.default_rng(0)
    both = np.lib.format.open_memmap(path, "w+", np.float32, (FILE_ROWS, 2 * SIZE))
    for start in range(0, FILE_ROWS, BLOCK):
        X = rng.standard_normal((BLOCK, SIZE), np.float32)
        noise = rng.standard_normal((BLOCK, SIZE), np.float32)
        both[start : start + BLOCK] = np.hstack([X, np.float32(0.1) * noise - X])
    both.flush()


def train_from_file(path: str) -> tuple[float, float, int]:
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
    step = our_step(loss)
    done.set()
    watcher.join()
    return took, step, peak[0]


def main() -> None:
    """Print the tables."""
    one_thread()
    rows: list[list[object]] = []
    X, Y = data(1000)
    # alternately, so that a change of the machine's load meets both
    pairs = [(our_step(sf.SquaredLoss(X, Y)), plain_step(X, Y)) for _ in range(5)]
    few, autograd = (statistics.median(side) for side in zip(*pairs, strict=True))
    reduction = seconds(lambda: sf.SquaredLoss(X, Y))
    rows.append(["1,000, memory", reduction, few * 1e3, autograd * 1e3, f"{autograd / few:.0f}x", "-"])
    X, Y = data(1_000_000)
    reduction = seconds(lambda: sf.SquaredLoss(X, Y), 1)
    loss = sf.SquaredLoss(X, Y)
    many = statistics.median(our_step(loss) for _ in range(5))
    rows.append(["1,000,000, memory", reduction, many * 1e3, "-", "-", "-"])
    del X, Y
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.npy"
        write(path)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            reduction, step, peak = pool.apply(train_from_file, (str(path),))
    rows.append([f"{FILE_ROWS:,}, float32 file", reduction, step * 1e3, "-", "-", f"{peak / 1e6:.0f} MB"])
    table(
        f"A gradient step, L = {DEPTH}, m = {WIDTH}, d = k = {SIZE}, float64",
        ["rows", "reduction, once, s", "ours, ms", "bare autograd, ms", "ratio", "peak RssAnon"],
        rows,
        "Ours also measures the gap and the gradient's norm of every iterate; autograd does not.",
    )
    X, Y = data(1000)
    loss = sf.SquaredLoss(X, Y)
    certificates: list[list[object]] = []
    for depth in (10, DEPTH):
        net = sf.nn.LinearResNet.gaussian(SIZE, SIZE, WIDTH, depth, seed=1)
        certificates.append([depth, seconds(lambda net=net: sf.certify(net, loss), 1)])
    table("A certificate (linear-resnet/local), m = 200", ["depth", "seconds of certify(net, loss)"], certificates)


if __name__ == "__main__":
    main()
