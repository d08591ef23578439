"""What every benchmark shares: one thread, versions, a table, and medians of repeated timings."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy
import torch


def one_thread() -> None:
    """Use one thread in torch and in the BLAS of numpy and scipy."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)


def versions() -> str:
    """Versions and processor, for the head of a table."""
    described = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in described.splitlines() if line.startswith("model name")]
    cpu = names[0] if names else platform.processor()
    return (
        f"python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}, one thread, {cpu}"
    )


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Median wall time of ``work``, after one run that is not counted."""
    work()
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Print one table."""
    from rich.console import Console
    from rich.table import Table

    out = Table(title=title, caption=f"{note}\n{versions()}".strip(), title_justify="left", caption_justify="left")
    for column in columns:
        out.add_column(column, justify="right")
    for row in rows:
        out.add_row(*(f"{x:.4g}" if isinstance(x, float) else f"{x:,}" if isinstance(x, int) else str(x) for x in row))
    Console(width=120).print(out)


def orthogonal_problem(
    width: int, noise: float, seed: int, size: int = 10
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The paper's setting: X orthogonal, W1, W2 ~ N(0,1), Y = X W1 W2ᵀ + N(0, noise²); returns X, Y, W1, W2."""
    g = torch.Generator().manual_seed(seed)
    draw = {"generator": g, "dtype": torch.float64}
    X = torch.linalg.qr(torch.randn(size, size, **draw))[0]
    W1, W2 = torch.randn(size, width, **draw), torch.randn(size, width, **draw)
    return X, X @ W1 @ W2.T + noise * torch.randn(size, size, **draw), W1, W2
