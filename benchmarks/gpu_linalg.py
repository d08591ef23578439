"""Pseudoinverse, inverse and SVD on a GPU against torch.linalg, and orthogonalising in bfloat16 against the iterations of
optimisers; under three minutes.

It says so where there is no CUDA device. torch.linalg has no bfloat16, and ours
computes it in float32: its peer is torch in float32 with the casts. *ratio* is the peer's time over ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from orthogonalize import express, muon
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
    """What pinv, inv, svd, pinv by products alone, and orthogonalize are measured on."""

    wide: tuple[Shape, ...]
    square: tuple[Shape, ...]
    decomposed: tuple[Shape, ...]
    iterated: tuple[Shape, ...]
    orthogonalized: tuple[Shape, ...]


LARGE = ((100, 200, 300), (10, 500, 750), (4, 1000, 1500), (1, 2048, 3072), (1, 4096, 4096 + 512))
FULL = Shapes(
    ((100, 10, 15), (100, 100, 150), *LARGE),
    ((100_000, 4, 4), (100_000, 8, 8), (1, 1024, 1024), (1, 4096, 4096)),
    ((100, 50, 100), (10, 256, 512), (1, 1024, 2048)),
    LARGE,
    (
        *((1, 512, 512), (1, 1024, 1024), (1, 2048, 2048), (1, 4096, 4096), (1, 1024, 4096)),
        *((16, 512, 512), (64, 512, 512), (16, 1024, 1024)),
    ),
)
SMOKE = Shapes(((2, 10, 15),), ((2, 4, 4),), ((2, 12, 20),), ((2, 10, 15),), ((1, 8, 8), (2, 6, 12)))


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


ORTHOGONALIZERS: dict[str, Function] = {
    **{f"ours {k}": lambda A, k=k: sf.linalg.orthogonalize(A, steps=k) for k in (5, 6, 7)},
    **{f"Express {k}": lambda A, k=k: express(A, k) for k in (5, 8, 10)},
    "Muon 5": muon,
}
"""By name and number of steps; each step is three products."""


def furthest(U: Tensor) -> float:
    """max |σ − 1| of the first matrix, in float64; below 1e-8 it is rounding."""
    V = U[0].double()
    gram = V @ V.mT if V.shape[0] <= V.shape[1] else V.mT @ V
    return float((torch.linalg.eigvalsh(gram).clamp(min=0).sqrt() - 1.0).abs().max())


def orthogonalizing(report: Report, shapes: Sequence[Shape], where: str) -> None:
    """Gaussian matrices in bfloat16."""
    rows: list[list[object]] = []
    for shape in shapes:
        A = torch.randn(*shape, generator=torch.Generator(device=where).manual_seed(0), device=where).bfloat16()
        name = "x".join(map(str, shape))
        for method, function in ORTHOGONALIZERS.items():
            time, error = forward(function, A), furthest(function(A))
            rows.append([name, method, Shown(1e3 * time, "{:.3f}"), Shown(error, "{:.1e}")])
    columns = ["shape", "method and steps", "ms", "max |σ − 1|"]
    report.table(f"Orthogonalising in bfloat16 on {where}, milliseconds of the whole batch", columns, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    report = Report(parser(__doc__), arguments)
    where = device(report.smoke)
    if where is None:
        return
    start = time.perf_counter()
    skipped = 0
    rows: list[list[object]] = []
    shapes = SMOKE if report.smoke else FULL
    orthogonalizing(report, shapes.orthogonalized, where)
    for name, ours, peer, shape, dtype in cases(shapes):
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
