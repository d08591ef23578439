"""Counts: Richardson-Lucy and total variation with a Poisson data term, beside scikit-image's Richardson-Lucy.

Squares of the two photographs that scikit-learn brings and a stack of boxes, blurred with an unknown border, a background of 2
counts added, and Poisson noise. scikit-image's method has neither border nor background nor a rule when to stop: it is given the
counts less the background, mirrored at the border, and its default of 50 iterations or the number of them that is best against
the truth, which nobody knows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from report import Report, Shown, parser
from torch import Tensor

from surefoot.deconvolution import Blur, ValidBlur, normalised_kernel, poisson_tv, richardson_lucy

PEERS = ("scikit-image",)
PEAKS, BACKGROUND = (20.0, 200.0, 2000.0), 2.0
"""Counts of white, and of the background."""
FULL, SMOKE = (128, (16, 64, 64)), (24, (4, 12, 12))
"""Pixels a side of the pictures, and the shape of the stack."""
DEFAULT, TRIED = 50, (1, 2, 3, 5, 8, 12, 20, 35, 50)
"""Iterations of scikit-image: its default, and those of which the best is taken."""


@dataclass(frozen=True)
class Problem:
    """What was observed, and the truth under it, both in counts."""

    blur: Blur
    observed: Tensor
    truth: Tensor


@dataclass(frozen=True)
class Found:
    """A restoration: counts, iterations, and processor seconds."""

    image: Tensor
    iterations: int
    seconds: float


Method = Callable[[Problem], Found]


def gaussian(size: tuple[int, ...], spreads: tuple[float, ...]) -> Tensor:
    """A Gaussian kernel of any number of axes."""
    kernel = torch.ones((), dtype=torch.float64)
    for count, spread in zip(size, spreads, strict=True):
        along = torch.arange(count, dtype=torch.float64) - count // 2
        kernel = kernel[..., None] * torch.exp(-0.5 * (along / spread) ** 2)
    return normalised_kernel(kernel, len(size))


def pictures(size: int) -> list[Tensor]:
    """Four grey squares in 0..1, with what lies beyond the border of a 9 x 9 kernel."""
    from sklearn.datasets import load_sample_images

    total = size + 8
    grey = [torch.from_numpy(image / 255.0).mean(-1) for image in load_sample_images().images]
    return [image[r : r + total, c : c + total] for image in grey for r, c in ((150, 100), (180, 400))]


def boxes(shape: tuple[int, ...]) -> Tensor:
    """Boxes of some brightness on a dark ground."""
    z = torch.full(shape, 0.05, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        corner = [int(torch.randint(0, size, (), generator=generator)) for size in shape]
        z[tuple(slice(c, c + max(2, size // 5)) for c, size in zip(corner, shape, strict=True))] += float(
            0.1 + 0.4 * torch.rand((), generator=generator)
        )
    return z.clamp(max=1.0)


def problem(latent: Tensor, kernel: Tensor, peak: float, seed: int) -> Problem:
    blur = ValidBlur(kernel, tuple(latent.shape))
    expected = blur.forward(peak * latent).clamp(min=0.0) + BACKGROUND
    observed = torch.poisson(expected, generator=torch.Generator().manual_seed(seed))
    return Problem(blur, observed, blur.crop(peak * latent))


def ours(case: Problem, accelerate: bool = False) -> Found:
    start = time.process_time()
    found = richardson_lucy(case.blur, case.observed, background=BACKGROUND, accelerate=accelerate)
    return Found(found.image, found.iterations, time.process_time() - start)


def variation(case: Problem) -> Found:
    start = time.process_time()
    found = poisson_tv(case.blur, case.observed, background=BACKGROUND)
    return Found(found.image, found.iterations, time.process_time() - start)


def theirs(case: Problem, iterations: int = DEFAULT) -> Found:
    """scikit-image's, on mirrored borders."""
    from skimage.restoration import richardson_lucy as peer

    sizes = case.blur.kernel.shape
    counts = np.pad(
        (case.observed - BACKGROUND).clamp(min=0.0).numpy(), [(n // 2, n // 2) for n in sizes], mode="symmetric"
    )
    start = time.process_time()
    found = peer(counts, case.blur.kernel.numpy(), num_iter=iterations, clip=False, filter_epsilon=1e-9)
    took = time.process_time() - start
    inner = tuple(slice(n // 2, size - n // 2) for n, size in zip(sizes, found.shape, strict=True))
    return Found(torch.from_numpy(np.ascontiguousarray(found[inner])), iterations, took)


def best(case: Problem) -> Found:
    """The number of iterations that is nearest to the truth."""
    return max((theirs(case, n) for n in TRIED), key=lambda found: quality(case, found))


def quality(case: Problem, found: Found) -> float:
    """PSNR, of the largest count of the truth."""
    error = float((found.image - case.truth).square().mean())
    return 10.0 * float(np.log10(float(case.truth.max()) ** 2 / error))


def rows(cases: Sequence[Problem], methods: dict[str, Method], what: object) -> list[list[object]]:
    """A row for each method: means over the cases."""
    table: list[list[object]] = []
    for name, method in methods.items():
        method(cases[0])  # what is set up once
        results = [method(case) for case in cases]
        decibels = statistics.mean(quality(case, found) for case, found in zip(cases, results, strict=True))
        table.append(
            [
                what,
                name,
                Shown(decibels, "{:.2f}"),
                Shown(statistics.mean(found.iterations for found in results), "{:.0f}"),
                Shown(1e3 * statistics.mean(found.seconds for found in results), "{:.0f}"),
                Shown(1e3 * statistics.mean(found.seconds / found.iterations for found in results), "{:.1f}"),
            ]
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    report = Report(parser(__doc__), arguments, PEERS)
    size, shape = SMOKE if report.smoke else FULL
    methods: dict[str, Method] = {
        "Richardson-Lucy": ours,
        "Richardson-Lucy, accelerated": partial(ours, accelerate=True),
        "total variation": variation,
    }
    if report.has("scikit-image"):
        methods |= {f"scikit-image, {DEFAULT} iterations": theirs, "scikit-image, best number": best}
    columns = ["counts of white", "method", "PSNR, dB", "iterations", "ms", "ms an iteration"]
    kernel = gaussian((9, 9), (1.6, 1.6))
    table = []
    for peak in PEAKS:
        cases = [problem(z, kernel, peak, seed) for seed, z in enumerate(pictures(size))]
        table += rows(cases, methods, Shown(peak, "{:.0f}"))
    note = "mean of four; processor time"
    report.table(f"Pictures of {size} x {size}", columns, table, note)
    kernel = gaussian((5, 9, 9), (1.5, 1.6, 1.6))
    latent = boxes(tuple(n + k - 1 for n, k in zip(shape, kernel.shape, strict=True)))
    table = rows([problem(latent, kernel, 200.0, 0)], methods, Shown(200.0, "{:.0f}"))
    report.table(f"A stack of {' x '.join(map(str, shape))}", columns, table, "processor time")


if __name__ == "__main__":
    main()
