"""Learned step sizes: loss and gradient of 100 unrolled steps, sector table against automatic differentiation; and inference."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from report import Report, Shown, one_thread, parser
from torch import Tensor

from surefoot._step_sizes.sectors import forward_and_gradient
from surefoot.learned import LeastSquares
from surefoot.nn import StepSizeNet

COLUMNS, ROWS = 32, 20
LO, HI = 0.0, 2.0


@dataclass(frozen=True)
class Sizes:
    """Problems, unrolled steps, units of the second layer, and by units of the first the runs of automatic differentiation; after
    each, three of ours."""

    problems: int
    steps: int
    second: int
    runs: Mapping[int, int]


FULL, SMOKE = Sizes(32, 100, 1024, {32: 5, 1024: 2}), Sizes(2, 5, 16, {4: 1})


@dataclass(frozen=True)
class Grid:
    """Inference: widths of networks, coordinates and numbers of problems, iterations; and how often each is timed."""

    widths: tuple[tuple[int, ...], ...]
    columns: tuple[int, ...]
    problems: tuple[int, ...]
    steps: tuple[int, ...]
    repeats: int


FULL_GRID = Grid(
    ((2, 64), (2, 2, 256), (2, 32, 256), (2, 256, 256), (2, 16, 16, 16)), (8, 32, 128), (1, 8, 32), (5, 25), 7
)
SMOKE_GRID = Grid(((2, 4), (2, 2, 4)), (8,), (1,), (2,), 1)

Mode = Literal["exact", "detached"]
Work = Callable[[Mode], object]


def problem(count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """M with unit columns, Y = M x̂ with Gaussian x̂, and each problem's Lipschitz constant."""
    g = torch.Generator().manual_seed(0)
    M = torch.randn(count, ROWS, COLUMNS, generator=g, dtype=torch.float64)
    M /= M.norm(dim=1, keepdim=True)
    Y = (M @ torch.randn(count, COLUMNS, 1, generator=g, dtype=torch.float64)).squeeze(-1)
    return M.to(dtype), Y.to(dtype), torch.linalg.matrix_norm(M, 2).square().to(dtype)


def network(first: int, second: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian weights, scaled so that no step saturates."""
    g = torch.Generator().manual_seed(1)
    W1 = torch.randn(first, 2, generator=g, dtype=torch.float64) / first**0.5
    W2 = torch.randn(second, first, generator=g, dtype=torch.float64) / first**0.5
    return (
        W1.to(dtype),
        W2.to(dtype),
        (torch.randn(1, second, generator=g, dtype=torch.float64) / second**0.5).to(dtype),
    )


def naive(first: int, sizes: Sizes, dtype: torch.dtype) -> Work:
    """Loss and gradients with the dense network and automatic differentiation."""
    M, Y, beta = problem(sizes.problems, dtype)
    W1, W2, W3 = (W.requires_grad_() for W in network(first, sizes.second, dtype))

    def work(mode: Mode) -> tuple[float, tuple[Tensor, ...]]:
        x = torch.zeros(sizes.problems, COLUMNS, dtype=dtype)
        for _ in range(sizes.steps):
            g = (M.mT @ (M @ x[..., None] - Y[..., None])).squeeze(-1)
            inputs = torch.stack([x.flatten(), g.flatten()])
            if mode == "detached":
                inputs = inputs.detach()
            z = W3 @ torch.relu(W2 @ torch.relu(W1 @ inputs))
            x = x - (LO + (HI - LO) * torch.sigmoid(z)).reshape(x.shape) * g / beta[:, None]
        loss = 0.5 * ((M @ x[..., None]).squeeze(-1) - Y).square().sum()
        return loss.item(), torch.autograd.grad(loss, (W1, W2, W3))

    return work


def ours(first: int, sizes: Sizes) -> Work:
    """The same in float64 from the sector table, which every call builds anew."""
    arguments = *problem(sizes.problems, torch.float64), *network(first, sizes.second, torch.float64)
    return lambda mode: forward_and_gradient(*arguments, LO, HI, sizes.steps, mode)


def layers(net: StepSizeNet, problems: LeastSquares, steps: int) -> Tensor:
    """x_T of the network layer by layer, with nothing measured on the way."""
    M, Y, beta = problems.M, problems.Y, problems.smoothness[:, None]
    x = torch.zeros(problems.count, problems.columns, dtype=M.dtype)
    for _ in range(steps):
        g = (M.mT @ (M @ x[..., None] - Y[..., None])).squeeze(-1)
        x = x - 2.0 * torch.sigmoid(net.logits(x, g)) * g / beta
    return x


def inference(grid: Grid) -> list[list[object]]:
    """A row for each network and number of iterations: the ratios over all sizes of problems."""
    rows: list[list[object]] = []
    for widths in grid.widths:
        net = StepSizeNet.orthogonal(widths)
        with torch.no_grad():
            net.weights[-1].normal_(0.0, 0.1, generator=torch.Generator().manual_seed(0))
        for steps in grid.steps:
            ratios = []
            for columns, count in itertools.product(grid.columns, grid.problems):
                problems = LeastSquares.random(count, max(1, columns * 5 // 8), columns)
                runs = (partial(layers, net, problems, steps), partial(net.solve, problems, steps))
                with torch.no_grad():
                    for run in runs:
                        run()
                    # in turn, so that a change of the machine's load meets both
                    times = [[elapsed(run) for run in runs] for _ in range(grid.repeats)]
                slow, quick = (min(side) for side in zip(*times, strict=True))
                ratios.append((slow / quick, columns, count))
            ratios.sort()
            least, columns, count = ratios[0]
            shown = [Shown(r, "{:.1f}x") for r in (least, statistics.median(r for r, *_ in ratios), ratios[-1][0])]
            rows.append(["-".join(map(str, widths)), steps, *shown, f"n = {columns}, N = {count}"])
    return rows


def elapsed(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def once(work: Work, mode: Mode) -> float:
    """Processor seconds of one run: with one thread the time it takes where nothing else runs."""
    start = time.process_time()
    work(mode)
    return time.process_time() - start


def peak(first: int, sizes: Sizes, naively: bool) -> int:
    """Bytes that one run adds to the resident memory at its peak; for a process of its own."""
    one_thread()
    if not naively:
        ours(2, sizes)("exact")  # compiled code is loaded with the first run
    work = naive(first, sizes, torch.float32) if naively else ours(first, sizes)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    before = resident("VmRSS")
    work("exact")
    return resident("VmHWM") - before


def resident(field: str) -> int:
    """A field of this process's status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    report = Report(parser(__doc__), arguments)
    sizes = SMOKE if report.smoke else FULL
    rows: list[list[object]] = []
    for first, runs in sizes.runs.items():
        dense, fast = naive(first, sizes, torch.float32), ours(first, sizes)
        fast("exact")
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            memory = [pool.apply(peak, (first, sizes, naively)) for naively in (False, True)]
        modes: tuple[Mode, Mode] = ("exact", "detached")
        for mode in modes:
            # alternately, so that a change of the machine's load meets both
            times = [(once(dense, mode), statistics.median(once(fast, mode) for _ in range(3))) for _ in range(runs)]
            slow, quick = (statistics.median(side) for side in zip(*times, strict=True))
            ratios = sorted(dense / ours for dense, ours in times)
            share = Shown(memory[0] / memory[1], "{:.1%}") if mode == "exact" else "-"
            megabytes = [Shown(size / 1e6, "{:.0f}") for size in memory] if mode == "exact" else ["-", "-"]
            shown = [Shown(ratio, "{:.0f}x") for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]
            rows.append([first, mode, quick * 1e3, slow * 1e3, *shown, *megabytes, share])
    report.table(
        f"Loss and gradient of {sizes.steps} steps, N = {sizes.problems}, {COLUMNS}/{ROWS}, second layer {sizes.second}",
        ["first", "gradient", "ours, ms", "dense, ms", "ratio", "least", "most", "ours, MB", "dense, MB", "memory"],
        rows,
        "Processor time. Ours in float64; dense: automatic differentiation of the network in float32.",
    )

    report.table(
        "Inference, layers without gradients / ours, least squares in float64",
        ["network", "T", "least", "median", "most", "least at"],
        inference(SMOKE_GRID if report.smoke else FULL_GRID),
        "Least of several times taken in turn. Ours also measures every objective and range of P.",
    )


if __name__ == "__main__":
    main()
