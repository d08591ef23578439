"""Implicit ReLU networks on a GPU: forward and backward against autograd through the unrolled iteration, in one table.

It takes about a minute, and says so where there is no CUDA device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from report import Report, Shown, device, finished, parser, seconds
from torch import Tensor

import surefoot as sf

REPEATS = 5
FULL, SMOKE = ((1000, 2000, 4000), (0.1, 0.5, 0.8)), ((20,), (0.5,))
"""N = m, and γ."""


def problem(size: int, gamma: float, dtype: torch.dtype, where: str) -> tuple[sf.nn.ImplicitReLU, Tensor]:
    """N = m = size; A near the identity but not diagonal, as after some steps of training."""
    generator = torch.Generator(device=where).manual_seed(0)
    X = torch.randn(size, 784, generator=generator, device=where, dtype=torch.float64).relu()
    X /= X.norm(dim=1, keepdim=True)
    net = sf.nn.ImplicitReLU.paper(784, size, gamma, generator=generator)
    with torch.no_grad():
        net.A += 0.02 * torch.randn(size, size, generator=generator, device=where, dtype=torch.float64) / size**0.5
        net.b += torch.randn(size, generator=generator, device=where, dtype=torch.float64)
    return net.to(dtype=dtype), X.to(dtype)


def unrolled(net: sf.nn.ImplicitReLU, X: Tensor, iterations: int) -> Tensor:
    """Outputs after so many plain iterations, with autograd's tape."""
    Phi = (X @ net.W).relu()
    Z = Phi
    for _ in range(iterations):
        Z = (net.gamma * (Z @ net.A) + Phi).relu()
    return Z @ net.b


def measure(run: Callable[[], None], where: str) -> tuple[float, float]:
    """Median seconds, and peak memory in MB where that is measured."""
    took = seconds(finished(run), REPEATS)
    if where != "cuda":
        return took, math.nan
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    finished(run)()
    return took, (torch.cuda.max_memory_allocated() - base) / 2**20


def backward(net: sf.nn.ImplicitReLU, outputs: Tensor) -> None:
    """The gradient of ½‖outputs‖²."""
    net.zero_grad()
    (0.5 * outputs.square().sum()).backward()


def row(size: int, gamma: float, dtype: torch.dtype, where: str) -> list[object]:
    """One line of the table."""
    net, X = problem(size, gamma, dtype, where)
    accuracy = {torch.float64: 1e-10, torch.float32: 1e-5}[dtype]
    q = gamma * net.norm_A()
    iterations = next(k for k in range(1, 1000) if q**k <= accuracy)
    ours, memory = measure(lambda: backward(net, net(X)), where)
    naive, naive_memory = measure(lambda: backward(net, unrolled(net, X, iterations)), where)
    name = str(dtype).removeprefix("torch.")
    times = [
        Shown(1e3 * ours, "{:.2f}"),
        Shown(memory, "{:.0f}"),
        Shown(1e3 * naive, "{:.2f}"),
        Shown(naive_memory, "{:.0f}"),
    ]
    return [name, size, gamma, *times, Shown(naive / ours, "{:.1f}"), Shown(memory / naive_memory, "{:.0%}")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    report = Report(parser(__doc__), arguments)
    where = device(report.smoke)
    if where is None:
        return
    sizes, gammas = SMOKE if report.smoke else FULL
    dtypes = (torch.float64, torch.float32)
    rows = [row(size, gamma, dtype, where) for dtype in dtypes for size in sizes for gamma in gammas]
    columns = ["dtype", "m", "γ", "ours ms", "MB", "unroll ms", "MB", "ratio", "memory"]
    report.table(f"forward + backward on {where}, N = m", columns, rows)


if __name__ == "__main__":
    main()
