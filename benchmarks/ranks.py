"""One process against the ranks of a job: wall time of the reduction of a file, of implicit networks, and of step sizes.

Run it twice, and compare: ``python benchmarks/ranks.py``, and ``torchrun --nproc-per-node=2 benchmarks/ranks.py``. Each rank has
one thread, so that a job needs as many cores as ranks.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from report import Report, parser

import surefoot as sf

INPUTS, OUTPUTS = 50, 10


@dataclass(frozen=True)
class Sizes:
    """Rows of a file; rows, width and steps of the implicit network; problems and epochs of the step sizes."""

    rows: int
    samples: int
    width: int
    steps: int
    problems: int
    epochs: int


FULL, SMOKE = Sizes(2_000_000, 2000, 1000, 4, 2000, 10), Sizes(200, 10, 20, 1, 4, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print wall times, on rank 0."""
    report = Report(parser(__doc__), arguments)
    s = SMOKE if report.smoke else FULL
    with tempfile.TemporaryDirectory() as directory:
        rows = [
            (
                f"reduction of {s.rows:,} float32 rows of a file, n + m = {INPUTS + OUTPUTS}",
                reduction(s, Path(directory)),
            ),
            (f"implicit network, N = {s.samples:,}, m = {s.width:,}, {s.steps} iterations", implicit(s)),
            (f"step sizes, {s.problems:,} problems 20 x 32, {s.epochs} epochs", step_sizes(s)),
        ]
    report.table(f"Wall seconds with {os.environ.get('WORLD_SIZE', '1')} rank(s)", ("work", "s"), rows)


def elapsed(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def reduction(sizes: Sizes, directory: Path) -> float:
    """The second of two: the first brings the file into memory."""
    generator = np.random.default_rng(0)
    for name, columns in (("X", INPUTS), ("Y", OUTPUTS)):
        np.save(directory / f"{name}.npy", generator.standard_normal((sizes.rows, columns), dtype=np.float32))
    X, Y = (np.load(directory / f"{name}.npy", mmap_mode="r") for name in ("X", "Y"))
    sf.SquaredLoss(X, Y)
    return elapsed(lambda: sf.SquaredLoss(X, Y))


def implicit(sizes: Sizes) -> float:
    """Small constant steps from the paper's weights, without a certificate's cost."""
    from surefoot._core.registry import system_named
    from surefoot._core.samples import SampleLoss

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(sizes.samples, 50, dtype=torch.float64, generator=generator)
    Y = torch.randn(sizes.samples, 1, dtype=torch.float64, generator=generator)
    net = sf.nn.ImplicitReLU.paper(50, sizes.width, 0.3, outputs=1, generator=generator)
    noise = torch.randn(sizes.width, sizes.width, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        net.A += noise * (0.6 / sizes.width**0.5)
    loss = SampleLoss(X / X.norm(dim=1, keepdim=True), Y)
    with ExitStack() as held:
        engine = system_named("implicit").engine(net, loss, "auto")
        if isinstance(engine, AbstractContextManager):  # it holds the rows of other ranks
            held.enter_context(engine)
        return elapsed(lambda: [engine.move(1e-4) for _ in range(sizes.steps)])


def step_sizes(sizes: Sizes) -> float:
    """L-BFGS on the exact gradient; the first call compiles."""
    generator = torch.Generator().manual_seed(0)

    def problems(count: int) -> sf.learned.LeastSquares:
        M = torch.randn(count, 20, 32, dtype=torch.float64, generator=generator)
        return sf.learned.LeastSquares(M, torch.randn(count, 20, dtype=torch.float64, generator=generator))

    def train(count: int, epochs: int) -> float:
        net, batch = sf.nn.StepSizeNet.orthogonal(), problems(count)
        return elapsed(lambda: sf.learned.train(net, batch, "lbfgs", epochs=epochs))

    train(8, 1)
    return train(sizes.problems, sizes.epochs)


if __name__ == "__main__":
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sf.distributed.run(main)
    else:
        main()
