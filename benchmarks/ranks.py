"""One process against the ranks of a job: wall time of the reduction of a file, of implicit networks, and of step sizes.

Run it twice, and compare: ``python benchmarks/ranks.py``, and ``torchrun --nproc-per-node=2 benchmarks/ranks.py``. Each rank has
one thread, so that a job needs as many cores as ranks.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
import torch
from report import one_thread, table

import surefoot as sf

ROWS, INPUTS, OUTPUTS = 2_000_000, 50, 10
SAMPLES, WIDTH, STEPS = 2000, 1000, 4
PROBLEMS, EPOCHS = 2000, 10


def main() -> None:
    """Print wall times, on rank 0."""
    one_thread()
    with tempfile.TemporaryDirectory() as directory:
        rows = [
            (f"reduction of {ROWS:,} float32 rows of a file, n + m = {INPUTS + OUTPUTS}", reduction(Path(directory))),
            (f"implicit network, N = {SAMPLES:,}, m = {WIDTH:,}, {STEPS} iterations", implicit()),
            (f"step sizes, {PROBLEMS:,} problems 20 x 32, {EPOCHS} epochs", step_sizes()),
        ]
    table(f"Wall seconds with {os.environ.get('WORLD_SIZE', '1')} rank(s)", ("work", "s"), rows)


def elapsed(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def reduction(directory: Path) -> float:
    """The second of two: the first brings the file into memory."""
    generator = np.random.default_rng(0)
    for name, columns in (("X", INPUTS), ("Y", OUTPUTS)):
        np.save(directory / f"{name}.npy", generator.standard_normal((ROWS, columns), dtype=np.float32))
    X, Y = (np.load(directory / f"{name}.npy", mmap_mode="r") for name in ("X", "Y"))
    sf.SquaredLoss(X, Y)
    return elapsed(lambda: sf.SquaredLoss(X, Y))


def implicit() -> float:
    """Small constant steps from the paper's weights, without a certificate's cost."""
    from surefoot._core.registry import system_named
    from surefoot._core.samples import SampleLoss

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(SAMPLES, 50, dtype=torch.float64, generator=generator)
    Y = torch.randn(SAMPLES, 1, dtype=torch.float64, generator=generator)
    net = sf.nn.ImplicitReLU.paper(50, WIDTH, 0.3, outputs=1, generator=generator)
    noise = torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        net.A += noise * (0.6 / WIDTH**0.5)
    loss = SampleLoss(X / X.norm(dim=1, keepdim=True), Y)
    with ExitStack() as held:
        engine = system_named("implicit").engine(net, loss, "auto")
        if isinstance(engine, AbstractContextManager):  # it holds the rows of other ranks
            held.enter_context(engine)
        return elapsed(lambda: [engine.move(1e-4) for _ in range(STEPS)])


def step_sizes() -> float:
    """L-BFGS on the exact gradient; the first call compiles."""
    generator = torch.Generator().manual_seed(0)

    def problems(count: int) -> sf.learned.LeastSquares:
        M = torch.randn(count, 20, 32, dtype=torch.float64, generator=generator)
        return sf.learned.LeastSquares(M, torch.randn(count, 20, dtype=torch.float64, generator=generator))

    def train(count: int, epochs: int) -> float:
        net, batch = sf.nn.StepSizeNet.orthogonal(), problems(count)
        return elapsed(lambda: sf.learned.train(net, batch, "lbfgs", epochs=epochs))

    train(8, 1)
    return train(PROBLEMS, EPOCHS)


if __name__ == "__main__":
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sf.distributed.run(main)
    else:
        main()
