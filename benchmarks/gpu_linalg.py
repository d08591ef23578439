"""Pseudoinverse, inverse, SVD and Cayley steps on a GPU against torch.linalg, in one table; under three minutes.

Run with `python benchmarks/gpu_linalg.py`; it says so where there is no CUDA device. torch.linalg has no bfloat16, and ours
computes it in float32: its peer is torch in float32 with the casts. *ratio* is the peer's time over ours.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

import surefoot as sf

REPEATS = 3
LIMIT = 160.0
"""Seconds after which no further row is measured."""
Function = Callable[[Tensor], Tensor]
WIDE = (
    (100, 10, 15),
    (100, 100, 150),
    (100, 200, 300),
    (10, 500, 750),
    (4, 1000, 1500),
    (1, 2048, 3072),
    (1, 4096, 4096 + 512),
)
SQUARE = ((100_000, 4, 4), (100_000, 8, 8), (1, 1024, 1024), (1, 4096, 4096))
DECOMPOSED = ((100, 50, 100), (10, 256, 512), (1, 1024, 2048))


def in_float32(function: Function) -> Function:
    """A function that has no bfloat16 form, applied with casts."""
    return lambda A: function(A.float()).to(A.dtype)


def seconds(work: Callable[[], object]) -> float:
    """Median of the repeats, after one that is not counted."""
    times = []
    for k in range(REPEATS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if k:
            times.append(time.perf_counter() - start)
    return median(times)


def forward(function: Function, A: Tensor) -> float:
    """Seconds for the values."""
    with torch.no_grad():
        return seconds(lambda: function(A))


def backward(function: Function, A: Tensor) -> float:
    """Seconds for the values and a gradient."""
    A = A.clone().requires_grad_()
    g = torch.randn_like(function(A))
    return seconds(lambda: torch.autograd.grad((function(A) * g).sum(), A))


def iteration(A: Tensor) -> Tensor:
    """The pseudoinverse by products alone."""
    return sf.linalg.pinv(A, method="iteration")


def spectrum(svd: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> Function:
    """The rank-10 part, a loss of all three factors that has a gradient."""

    def value(A: Tensor) -> Tensor:
        U, S, Vh = svd(A, full_matrices=False)
        return (U[..., :10] * S[..., None, :10]) @ Vh[..., :10, :]

    return value


def row(name: str, ours: Function, peer: Function, A: Tensor) -> str:
    """One line of the table."""
    found = [forward(ours, A), forward(peer, A), backward(ours, A), backward(peer, A)]
    shape = "x".join(str(size) for size in A.shape)
    dtype = str(A.dtype).removeprefix("torch.")
    values = f"{1e3 * found[0]:>9.2f} {1e3 * found[1]:>9.2f} {found[1] / found[0]:>6.2f}"
    gradients = f"{1e3 * found[2]:>9.2f} {1e3 * found[3]:>9.2f} {found[3] / found[2]:>6.2f}"
    return f"{name:>10} {shape:>16} {dtype:>9} | {values} | {gradients}"


def cases() -> list[tuple[str, Function, Function, tuple[int, ...], torch.dtype]]:
    """What is measured: name, ours, the peer, shape and dtype, the small ones first."""
    found: list[tuple[str, Function, Function, tuple[int, ...], torch.dtype]] = []
    for dtype in (torch.float32, torch.bfloat16):
        cast = in_float32 if dtype is torch.bfloat16 else lambda function: function
        found += [("pinv", sf.linalg.pinv, cast(torch.linalg.pinv), shape, dtype) for shape in WIDE]
        found += [("inv", sf.linalg.inv, cast(torch.linalg.inv), shape, dtype) for shape in SQUARE]
        found += [("svd", spectrum(sf.linalg.svd), cast(spectrum(torch.linalg.svd)), s, dtype) for s in DECOMPOSED]
    found += [("iteration", iteration, torch.linalg.pinv, shape, torch.float32) for shape in WIDE[2:]]
    return sorted(found, key=lambda case: case[3][0] * case[3][1] ** 2 * case[3][2])


def main() -> int:
    """Print the table."""
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; milliseconds of the whole batch")
    columns = f"{'ours':>9} {'torch':>9} {'ratio':>6}"
    print(f"{'':>10} {'':>16} {'':>9} | {'forward':>26} | {'forward + backward':>26}")
    print(f"{'function':>10} {'shape':>16} {'dtype':>9} | {columns} | {columns}")
    start = time.perf_counter()
    skipped = 0
    for name, ours, peer, shape, dtype in cases():
        if time.perf_counter() - start > LIMIT:
            skipped += 1
            continue
        A = torch.randn(*shape, generator=torch.Generator(device="cuda").manual_seed(0), device="cuda")
        A = A / shape[-1] ** 0.5
        if shape[-1] == shape[-2]:
            A = A + 2.0 * torch.eye(shape[-1], device="cuda")
        try:
            print(row(name, ours, peer, A.to(dtype)), flush=True)
        except torch.OutOfMemoryError:
            print(f"{name:>10} {shape}: out of memory", flush=True)
    if skipped:
        print(f"{skipped} rows were left out: over {LIMIT:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
