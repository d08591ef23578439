"""What every benchmark shares: options, one thread, versions, tables as text and JSON, and medians of repeated timings."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return (
        f"python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}, one thread, {cpu}{gpu}"
    )


def device(smoke: bool) -> str | None:
    """The GPU; the processor for a smoke run where there is none, and else nothing, with a line."""
    if torch.cuda.is_available():
        return "cuda"
    if not smoke:
        print("no CUDA device: nothing to measure")
    return "cpu" if smoke else None


def finished(work: Callable[[], object]) -> Callable[[], None]:
    """``work``, and the wait for what it started on a GPU."""

    def run() -> None:
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return run


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Median wall time of ``work``, after one run that is not counted."""
    work()
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@dataclass(frozen=True)
class Shown:
    """A number of a table and how it is printed, for example ``Shown(12.3, "{:.1f}x")``; JSON holds the number."""

    value: float
    form: str

    def __str__(self) -> str:
        return self.form.format(self.value)


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark; one may add its own."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--smoke", action="store_true", help="tiny sizes: shows that it runs, and measures nothing")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the tables there, too")
    return options


class Report:
    """The options, the peers and the tables of one benchmark, which runs in one thread.

    Attributes:
        options: what was asked for on the command line.
        smoke: whether to take tiny sizes.
        peers: version of each package that ours is compared with, ``None`` where it is not installed.
    """

    def __init__(
        self, options: argparse.ArgumentParser, arguments: Sequence[str] | None, peers: Sequence[str] = ()
    ) -> None:
        self.options = options.parse_args(arguments)
        self.smoke: bool = self.options.smoke
        self.peers = {name: _version(name) for name in peers}
        self._tables: list[dict[str, object]] = []
        one_thread()

    def has(self, peer: str) -> bool:
        """Whether a peer takes part."""
        return self.peers[peer] is not None

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
        """Print one table, with the peers that took part and those that did not, and write all tables so far to ``--json``."""
        from rich.console import Console
        from rich.table import Table

        title = f"{title} (smoke: tiny sizes)" if self.smoke else title
        caption = "\n".join(line for line in (note, self._compared(), versions()) if line)
        out = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
        for column in columns:
            out.add_column(column, justify="right")
        shown = [[_text(cell) for cell in row] for row in rows]
        for row in shown:
            out.add_row(*row)
        Console(width=120).print(out)
        plain = [[_plain(cell) for cell in row] for row in rows]
        self._tables.append({"title": title, "columns": list(columns), "rows": plain, "shown": shown, "note": note})
        if self.options.json is not None:
            record = {"machine": versions(), "smoke": self.smoke, "peers": self.peers, "tables": self._tables}
            self.options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    def _compared(self) -> str:
        """A line on the peers."""
        there = ", ".join(f"{name} {version}" for name, version in self.peers.items() if version is not None)
        absent = ", ".join(name for name, version in self.peers.items() if version is None)
        lines = [f"peers: {there}"] if there else []
        return "; ".join([*lines, f"left out, not installed: {absent} (make bench-peers)"] if absent else lines)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _plain(cell: object) -> object:
    """What JSON holds of a cell; it has no infinity."""
    value = cell.value if isinstance(cell, Shown) else cell
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def orthogonal_problem(
    width: int, noise: float, seed: int, size: int = 10
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The paper's setting: X orthogonal, W1, W2 ~ N(0,1), Y = X W1 W2ᵀ + N(0, noise²); returns X, Y, W1, W2."""
    g = torch.Generator().manual_seed(seed)
    draw = {"generator": g, "dtype": torch.float64}
    X = torch.linalg.qr(torch.randn(size, size, **draw))[0]
    W1, W2 = torch.randn(size, width, **draw), torch.randn(size, width, **draw)
    return X, X @ W1 @ W2.T + noise * torch.randn(size, size, **draw), W1, W2
