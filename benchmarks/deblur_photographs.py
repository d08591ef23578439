"""Photographs of a shaken camera: what ``deblur`` makes of them with each prior, told the noise or estimating it.

With ``--data`` the 32 photographs of Levin et al. (CVPR 2009), whose kernels were measured and whose sharp pictures are known up
to a shift; without, two simulated ones. PSNR is that at the best shift, without the border, as in table 4.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from report import Report, Shown, parser

from surefoot._deconvolution.photo.priors import AUTOMATIC, PRIORS
from surefoot.deconvolution import Deblurred, ValidBlur, aligned_psnr, deblur
from surefoot.nn import LearnedDeconvolution
from surefoot_experiments import deconvolution_data
from surefoot_experiments.deconvolution_data import RealPair
from surefoot_experiments.deconvolution_table4 import BORDER

LEVELS: tuple[float | None, ...] = (0.004, 0.01, None)
"""Noise that is told; ``None``: estimated."""
SIMULATED = 2
Method = Callable[[RealPair, float | None], Deblurred]


@dataclass(frozen=True)
class Result:
    """Of a photograph: PSNR in dB, the noise that was used, processor seconds, and how many proposals of a network were kept."""

    psnr: float
    noise: float
    seconds: float
    kept: tuple[int, int] | None


def photographs(data: Path | None) -> list[RealPair]:
    """Those of a folder, or simulated ones: blurred, noise of 1 %, rounded to 8 bits."""
    given = deconvolution_data.load(data, 0)
    if data is not None:
        return given.real
    pairs: list[RealPair] = []
    generator = torch.Generator().manual_seed(0)
    for image, kernel in zip(given.images[:SIMULATED], given.kernels[:SIMULATED], strict=True):
        blur = ValidBlur(kernel, (image.shape[0], image.shape[1]))
        seen = blur.forward(image)
        seen = seen + 0.01 * torch.randn(seen.shape, generator=generator, dtype=torch.float64)
        pairs.append(RealPair(blur.crop(image), (255.0 * seen).round().clamp(0.0, 255.0) / 255.0, kernel))
    return pairs


def methods() -> dict[str, Method]:
    """``deblur`` as it comes, with every prior, and with the network that comes with the package."""
    net = LearnedDeconvolution.bundled()
    return {
        name: lambda pair, noise, name=name: deblur(pair.blurred, pair.kernel, noise, prior=name)
        for name in (AUTOMATIC, *PRIORS)
    } | {"--weights bundled": lambda pair, noise: deblur(pair.blurred, pair.kernel, noise, net=net)}


def measured(method: Method, pair: RealPair, noise: float | None) -> Result:
    """One photograph."""
    begin = time.process_time()
    found = method(pair, noise)
    took = time.process_time() - begin
    quality = aligned_psnr(found.image.double(), pair.sharp, border=BORDER)
    return Result(quality, found.noise, took, found.kept)


def row(noise: float | None, name: str, results: Sequence[Result], blurred: Sequence[float]) -> list[object]:
    """Means, and the least gain over the photograph as it is."""
    told = f"{noise:g}" if noise is not None else f"estimated, {statistics.mean(r.noise for r in results):.4f}"
    gain = min(result.psnr - before for result, before in zip(results, blurred, strict=True))
    kept = [result.kept for result in results if result.kept is not None]
    share = f"{sum(k for k, _ in kept)} of {sum(n for _, n in kept)}" if kept else "-"
    quality = statistics.mean(result.psnr for result in results)
    took = 1e3 * statistics.mean(result.seconds for result in results)
    return [told, name, Shown(quality, "{:.2f}"), Shown(gain, "{:+.2f}"), share, Shown(took, "{:.0f}")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument(
        "--data", type=Path, metavar="DIR", help="folder with levin_real_blur.npz and those of table 4"
    )
    options.add_argument("--every", type=int, default=1, metavar="INT", help="take every so many-th photograph")
    report = Report(options, arguments)
    pairs = photographs(None if report.smoke else report.options.data)[:: max(1, report.options.every)]
    blurred = [aligned_psnr(pair.blurred, pair.sharp, border=BORDER) for pair in pairs]
    rows: list[list[object]] = [["-", "as it is", Shown(statistics.mean(blurred), "{:.2f}"), "-", "-", "-"]]
    for noise in LEVELS[:1] if report.smoke else LEVELS:
        for name, method in methods().items():
            rows.append(row(noise, name, [measured(method, pair, noise) for pair in pairs], blurred))
    columns = ["noise", "prior", "PSNR, dB", "least gain, dB", "proposals kept", "ms"]
    report.table(f"{len(pairs)} photographs", columns, rows, "processor milliseconds of a photograph")


if __name__ == "__main__":
    main()
