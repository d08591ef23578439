"""Deblurring with a known kernel and noise: PSNR and time of the solvers without training, beside scikit-image's two.

The pictures are squares of the photograph of a temple that scikit-learn brings, blurred by a Gaussian of 7×7 with a
periodic border, which all of them model exactly.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from report import Report, Shown, parser
from torch import Tensor

from surefoot.deconvolution import PeriodicBlur, psnr
from surefoot_experiments.deconvolution_methods import Restored, restore_all
from surefoot_experiments.deconvolution_peers import PEERS as SCIKIT_IMAGE

PEERS = ("scikit-image",)
NOISES = (0.01, 0.02, 0.03)
FULL, SMOKE = (128, 4), (32, 1)
"""Rows and columns of a picture, and pictures."""


def pictures(size: int, count: int) -> list[Tensor]:
    """Grey squares (s, s) in 0..1."""
    from sklearn.datasets import load_sample_image

    grey = torch.as_tensor(load_sample_image("china.jpg").copy()).double().mean(2) / 255.0
    return [grey[128 : 128 + size, start : start + size] for start in range(0, count * size, size)]


def restored(sharp: Tensor, noise: float, seed: int, extra: tuple[str, ...]) -> tuple[dict[str, Restored], Tensor]:
    """What every solver makes of one picture, and the picture where it was observed."""
    weights = torch.exp(-0.5 * (torch.arange(-3.0, 4.0, dtype=torch.float64) / 1.5) ** 2)
    kernel = torch.outer(weights, weights) / weights.sum() ** 2
    blur = PeriodicBlur(kernel, (sharp.shape[0], sharp.shape[1]))
    observed = blur.forward(sharp)
    observed += noise * torch.randn(observed.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return restore_all(observed, blur, noise, {}, extra), blur.crop(sharp)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    report = Report(parser(__doc__), arguments, PEERS)
    size, count = SMOKE if report.smoke else FULL
    extra = SCIKIT_IMAGE if report.has("scikit-image") else ()
    rows: list[list[object]] = []
    for noise in NOISES:
        results = [restored(sharp, noise, seed, extra) for seed, sharp in enumerate(pictures(size, count))]
        for name in results[0][0]:
            quality = [float(psnr(by_name[name].image, sharp)) for by_name, sharp in results]
            took = statistics.median(by_name[name].seconds for by_name, _ in results)
            rows.append([noise, name, Shown(statistics.mean(quality), "{:.2f}"), Shown(1e3 * took, "{:.1f}")])
    report.table(f"{count} pictures of {size}x{size}", ["noise", "method", "PSNR, dB", "ms"], rows)


if __name__ == "__main__":
    main()
