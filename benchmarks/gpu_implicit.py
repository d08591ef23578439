"""Implicit ReLU networks on a GPU: forward and backward against autograd through the unrolled iteration, in one table.

Run with `python -m benchmarks.gpu_implicit`; it takes about a minute and says so where there is no CUDA device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

import surefoot as sf

REPEATS = 5
SIZES = (1000, 2000, 4000)
GAMMAS = (0.1, 0.5, 0.8)


def problem(size: int, gamma: float, dtype: torch.dtype) -> tuple[sf.nn.ImplicitReLU, Tensor]:
    """N = m = size; A near the identity but not diagonal, as after some steps of training."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    X = torch.randn(size, 784, generator=generator, device="cuda", dtype=torch.float64).relu()
    X /= X.norm(dim=1, keepdim=True)
    net = sf.nn.ImplicitReLU.paper(784, size, gamma, generator=generator)
    with torch.no_grad():
        net.A += 0.02 * torch.randn(size, size, generator=generator, device="cuda", dtype=torch.float64) / size**0.5
        net.b += torch.randn(size, generator=generator, device="cuda", dtype=torch.float64)
    return net.to(dtype=dtype), X.to(dtype)


def unrolled(net: sf.nn.ImplicitReLU, X: Tensor, iterations: int) -> Tensor:
    """Outputs after so many plain iterations, with autograd's tape."""
    Phi = (X @ net.W).relu()
    Z = Phi
    for _ in range(iterations):
        Z = (net.gamma * (Z @ net.A) + Phi).relu()
    return Z @ net.b


def measure(run: Callable[[], None]) -> tuple[float, float]:
    """Median seconds, and peak memory in MB."""
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return median(times), (torch.cuda.max_memory_allocated() - base) / 2**20


def backward(net: sf.nn.ImplicitReLU, outputs: Tensor) -> None:
    """The gradient of ½‖outputs‖²."""
    net.zero_grad()
    (0.5 * outputs.square().sum()).backward()


def row(size: int, gamma: float, dtype: torch.dtype) -> str:
    """One line of the table."""
    net, X = problem(size, gamma, dtype)
    accuracy = {torch.float64: 1e-10, torch.float32: 1e-5}[dtype]
    q = gamma * net.norm_A()
    iterations = next(k for k in range(1, 1000) if q**k <= accuracy)
    seconds, memory = measure(lambda: backward(net, net(X)))
    naive, naive_memory = measure(lambda: backward(net, unrolled(net, X, iterations)))
    name = str(dtype).removeprefix("torch.")
    return (
        f"{name:>8} {size:>5} {gamma:>5} | {1e3 * seconds:>8.2f} {memory:>6.0f} | "
        f"{1e3 * naive:>9.2f} {naive_memory:>7.0f} | {naive / seconds:>6.1f} {memory / naive_memory:>6.0%}"
    )


def main() -> int:
    """Print the table."""
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; forward + backward, N = m")
    head = f"{'dtype':>8} {'m':>5} {'gamma':>5} | {'ours ms':>8} {'MB':>6} | "
    print(head + f"{'unroll ms':>9} {'MB':>7} | {'ratio':>6} {'memory':>7}")
    for dtype in (torch.float64, torch.float32):
        for size in SIZES:
            for gamma in GAMMAS:
                print(row(size, gamma, dtype), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
