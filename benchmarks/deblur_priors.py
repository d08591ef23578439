"""Which prior restores photographs best: each one at several noise levels, behind an unknown border; what ``auto`` follows.

With ``--data`` crops of BSD400 and the kernels of the shrinkage fields (Schmidt and Roth, CVPR 2014), which no other table is
measured on; without, bundled photographs and random kernels.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from report import Report, Shown, parser
from torch import Tensor

from surefoot._deconvolution.photo.priors import Settings, prior
from surefoot.deconvolution import ValidBlur, normalised_kernel, psnr
from surefoot_experiments import deconvolution_data

LEVELS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
SIZE = 128
CANDIDATES = (
    ("hyper-laplacian", 0.5),
    ("hyper-laplacian", 2.0 / 3.0),
    ("hyper-laplacian", 0.8),
    ("hyper-laplacian", 1.0),
    ("tv", 1.0),
    ("wavelet", 1.0),
)


def problems(data: Path | None, count: int) -> list[tuple[Tensor, ValidBlur]]:
    """Sharp latent pictures and their blurs."""
    if data is None:
        given = deconvolution_data.load(None, 0)
        pairs = [(image, given.kernels[i % len(given.kernels)]) for i, image in enumerate(given.images[:count])]
    else:
        chosen = np.random.default_rng(0).permutation(400)[:count]
        images = np.load(data / "bsd400_gray180.npz")["images"][chosen] / 255.0
        with np.load(data / "csf_kernels.npz") as stored:
            kernels = [torch.from_numpy(stored[name].astype(np.float64)) for name in sorted(stored)]
        pairs = [(torch.from_numpy(image), kernels[i % len(kernels)]) for i, image in enumerate(images)]
    blurred: list[tuple[Tensor, ValidBlur]] = []
    for image, kernel in pairs:
        shape = tuple(min(SIZE + size - 1, total) for size, total in zip(kernel.shape, image.shape, strict=True))
        blurred.append((image[: shape[0], : shape[1]], ValidBlur(normalised_kernel(kernel), shape)))
    return blurred


def measured(name: str, power: float, cases: Sequence[tuple[Tensor, ValidBlur]], noise: float) -> tuple[float, float]:
    """Mean PSNR, and processor seconds of a picture."""
    restorer, quality = prior(name, Settings(None, 1e-2, power)), []
    begin = time.process_time()
    for number, (sharp, blur) in enumerate(cases):
        generator = torch.Generator().manual_seed(number)
        seen = blur.forward(sharp)
        seen = (seen + noise * torch.randn(seen.shape, generator=generator, dtype=seen.dtype))[None]
        found = blur.crop(restorer.restore(seen, blur, noise).latent)[0].clamp(0.0, 1.0)
        quality.append(float(psnr(found, blur.crop(sharp))))
    return statistics.mean(quality), (time.process_time() - begin) / len(cases)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, metavar="DIR", help="folder with bsd400_gray180.npz and csf_kernels.npz")
    options.add_argument("--count", type=int, default=20, metavar="INT", help="pictures")
    report = Report(options, arguments)
    cases = problems(None if report.smoke else report.options.data, 1 if report.smoke else report.options.count)
    levels = LEVELS[2:3] if report.smoke else LEVELS
    rows: list[list[object]] = []
    for name, power in CANDIDATES:
        found = [measured(name, power, cases, noise) for noise in levels]
        label = f"{name}, p = {power:.3g}" if name == "hyper-laplacian" else name
        took = 1e3 * statistics.mean(seconds for _, seconds in found)
        rows.append([label, *(Shown(quality, "{:.2f}") for quality, _ in found), Shown(took, "{:.0f}")])
    columns = ["prior", *(f"σ = {noise:g}" for noise in levels), "ms"]
    report.table(f"{len(cases)} pictures, PSNR in dB", columns, rows, "processor milliseconds of a picture")


if __name__ == "__main__":
    main()
