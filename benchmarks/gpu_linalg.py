"""Pseudoinverse, inverse, SVD and Cayley steps on a GPU against torch.linalg, in one table; under three minutes.

It says so where there is no CUDA device. torch.linalg has no bfloat16, and ours
computes it in float32: its peer is torch in float32 with the casts. *ratio* is the peer's time over ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from report import Report, Shown, device, finished, parser, seconds
from torch import Tensor

import surefoot as sf

REPEATS = 3
LIMIT = 160.0
"""Seconds after which no further row is measured."""
Function = Callable[[Tensor], Tensor]
Shape = tuple[int, int, int]
Case = tuple[str, Function, Function, Shape, torch.dtype]
"""Name, ours, the peer, shape and dtype."""


@dataclass(frozen=True)
class Shapes:
    """What pinv, inv, svd, and pinv by products alone are measured on."""

    wide: tuple[Shape, ...]
    square: tuple[Shape, ...]
    decomposed: tuple[Shape, ...]
    iterated: tuple[Shape, ...]


LARGE = ((100, 200, 300), (10, 500, 750), (4, 1000, 1500), (1, 2048, 3072), (1, 4096, 4096 + 512))
FULL = Shapes(
    ((100, 10, 15), (100, 100, 150), *LARGE),
    ((100_000, 4, 4), (100_000, 8, 8), (1, 1024, 1024), (1, 4096, 4096)),
    ((100, 50, 100), (10, 256, 512), (1, 1024, 2048)),
    LARGE,
)
SMOKE = Shapes(((2, 10, 15),), ((2, 4, 4),), ((2, 12, 20),), ((2, 10, 15),))


def in_float32(function: Function) -> Function:
    """A function that has no bfloat16 form, applied with casts."""
    return lambda A: function(A.float()).to(A.dtype)


def forward(function: Function, A: Tensor) -> float:
    """Seconds for the values."""
    with torch.no_grad():
        return seconds(finished(lambda: function(A)), REPEATS)


def backward(function: Function, A: Tensor) -> float:
    """Seconds for the values and a gradient."""
    A = A.clone().requires_grad_()
    g = torch.randn_like(function(A))
    return seconds(finished(lambda: torch.autograd.grad((function(A) * g).sum(), A)), REPEATS)


def iteration(A: Tensor) -> Tensor:
    """The pseudoinverse by products alone."""
    return sf.linalg.pinv(A, method="iteration")


def spectrum(svd: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> Function:
    """The rank-10 part, a loss of all three factors that has a gradient."""

    def value(A: Tensor) -> Tensor:
        U, S, Vh = svd(A, full_matrices=False)
        return (U[..., :10] * S[..., None, :10]) @ Vh[..., :10, :]

    return value


def row(name: str, ours: Function, peer: Function, A: Tensor) -> list[object]:
    """One line of the table."""
    seconds = [forward(ours, A), forward(peer, A), backward(ours, A), backward(peer, A)]
    shape = "x".join(str(size) for size in A.shape)
    dtype = str(A.dtype).removeprefix("torch.")
    milliseconds = [Shown(1e3 * took, "{:.2f}") for took in seconds]
    ratios = [Shown(seconds[k + 1] / seconds[k], "{:.2f}") for k in (0, 2)]
    return [name, shape, dtype, *milliseconds[:2], ratios[0], *milliseconds[2:], ratios[1]]


def cases(shapes: Shapes) -> list[Case]:
    """What is measured, the small ones first."""
    chosen: list[Case] = []
    for dtype in (torch.float32, torch.bfloat16):
        cast = in_float32 if dtype is torch.bfloat16 else lambda function: function
        chosen += [("pinv", sf.linalg.pinv, cast(torch.linalg.pinv), shape, dtype) for shape in shapes.wide]
        chosen += [("inv", sf.linalg.inv, cast(torch.linalg.inv), shape, dtype) for shape in shapes.square]
        chosen += [
            ("svd", spectrum(sf.linalg.svd), cast(spectrum(torch.linalg.svd)), s, dtype) for s in shapes.decomposed
        ]
    chosen += [("iteration", iteration, torch.linalg.pinv, shape, torch.float32) for shape in shapes.iterated]
    return sorted(chosen, key=lambda case: case[3][0] * case[3][1] ** 2 * case[3][2])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    report = Report(parser(__doc__), arguments)
    where = device(report.smoke)
    if where is None:
        return
    start = time.perf_counter()
    skipped = 0
    rows: list[list[object]] = []
    for name, ours, peer, shape, dtype in cases(SMOKE if report.smoke else FULL):
        if time.perf_counter() - start > LIMIT:
            skipped += 1
            continue
        A = torch.randn(*shape, generator=torch.Generator(device=where).manual_seed(0), device=where)
        A = A / shape[-1] ** 0.5
        if shape[-1] == shape[-2]:
            A = A + 2.0 * torch.eye(shape[-1], device=where)
        try:
            rows.append(row(name, ours, peer, A.to(dtype)))
        except torch.OutOfMemoryError:
            rows.append([name, "x".join(map(str, shape)), str(dtype).removeprefix("torch."), "out of memory", *"-----"])
    columns = ["function", "shape", "dtype", "ours", "torch", "ratio", "+ backward", "torch", "ratio"]
    note = f"{skipped} rows were left out: over {LIMIT:.0f} s" if skipped else ""
    report.table(f"Milliseconds of the whole batch on {where}", columns, rows, note)


if __name__ == "__main__":
    main()
