"""Deblurring with a known kernel and noise: our priors beside filters, scikit-image's solvers and BM3D.

The problems are those of ``deblur_problems``: bundled pictures, or with ``--data`` the 90 of BSD68 and Levin et al. Periodic: the
border is modelled exactly. Unknown border: the true surroundings were blurred too and are not seen; ours is ``deblur`` as its
command runs it, and what has a periodic model is given mirrored, tapered borders.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deblur_problems import PICTURES, SIZE, Image, Problem, half_quadratic, problems, tensor
from report import Report, Shown, parser
from torch import Tensor

from surefoot._deconvolution.photo.priors import PRIORS
from surefoot.deconvolution import (
    Blur,
    PeriodicBlur,
    ValidBlur,
    deblur,
    gradient_wiener,
    psnr,
    restore_checked,
    ssim,
    wiener,
)
from surefoot.nn import LearnedDeconvolution
from surefoot_experiments.deconvolution_methods import by_prior
from surefoot_experiments.deconvolution_peers import PEERS as SCIKIT_IMAGE
from surefoot_experiments.deconvolution_peers import restored, tapered

PEERS = ("scikit-image", "bm3d")
REFERENCE = "half-quadratic, numpy"
BALANCE = 60.0
"""Of scikit-image's Wiener filter, times the variance of the noise: chosen on training photographs."""
THRESHOLDS = 3.0, 0.4
"""Of BM3D: what it takes itself for white noise. Its choice by the noise's spectrum needs a function that numpy 2.4 has no more;
with an older numpy that choice gave 0.4 dB less here."""
BUNDLED, SMOKE = 4, (48, 1)
"""Crops of the bundled pictures; rows and columns of one and crops, in a smoke run."""
BORDERS = ("periodic border", "unknown border")
Solver = Callable[[Problem, bool], Image]
"""A picture from a problem, and whether its border is periodic."""


@dataclass(frozen=True)
class Result:
    """Of a solver on a problem, its picture clipped to 0..1; processor seconds."""

    psnr: float
    ssim: float
    seconds: float


def ours() -> dict[str, Solver]:
    """Our filters and every prior."""
    solvers: dict[str, Solver] = {"Wiener": _filter(wiener), "gradient-Wiener": _filter(gradient_wiener)}
    for name in PRIORS:
        solvers[f"deblur, {name}"] = lambda p, periodic, name=name: _by_prior(p, periodic, name)
    net = LearnedDeconvolution.bundled()
    solvers["network alone"] = _filter(partial(_alone, net))
    solvers["deblur --weights bundled"] = lambda p, periodic: _guarded(net, p, periodic)
    return solvers


def _alone(net: LearnedDeconvolution, blur: Blur, observed: Tensor, noise: float) -> Tensor:
    with torch.no_grad():
        return net(observed.float(), blur.to(torch.float32), noise).double()


def _guarded(net: LearnedDeconvolution, p: Problem, periodic: bool) -> Image:
    if not periodic:
        return deblur(tensor(p.valid), tensor(p.kernel), p.noise, net=net).image.numpy()
    observed = tensor(p.periodic).float()
    blur = PeriodicBlur(tensor(p.kernel).float(), (observed.shape[0], observed.shape[1]))
    return restore_checked(net, observed, blur, p.noise).image.double().numpy()


def _filter(apply: Callable[..., Any]) -> Solver:
    def solve(p: Problem, periodic: bool) -> Image:
        kernel, observed = tensor(p.kernel), tensor(p.periodic if periodic else p.valid)
        shape = (observed.shape[0], observed.shape[1])
        blur = PeriodicBlur(kernel, shape) if periodic else ValidBlur.observing(kernel, shape)
        return blur.crop(apply(blur, observed, p.noise)).numpy()

    return solve


def _by_prior(p: Problem, periodic: bool, name: str) -> Image:
    if not periodic:
        return deblur(tensor(p.valid), tensor(p.kernel), p.noise, prior=name).image.numpy()
    observed = tensor(p.periodic)
    return by_prior(name, observed, PeriodicBlur(tensor(p.kernel), (observed.shape[0], observed.shape[1])), p.noise)[
        0
    ].numpy()


def others(report: Report) -> dict[str, Solver]:
    """The reference and the peers that are installed."""
    solvers: dict[str, Solver] = {REFERENCE: _with_tapers(lambda y, p: half_quadratic(y, p.kernel, p.noise))}
    if report.has("scikit-image"):
        for name in SCIKIT_IMAGE:
            solvers[name.replace("scikit-image ", "") + "*"] = lambda p, periodic, name=name: restored(
                name, p.periodic if periodic else p.valid, p.kernel, p.noise, periodic
            )
        filters = importlib.import_module("skimage.restoration")
        solvers["Wiener, tuned balance*"] = _with_tapers(
            lambda y, p: filters.wiener(y, p.kernel, BALANCE * p.noise**2, clip=False)
        )
    if report.has("bm3d"):
        bm3d = importlib.import_module("bm3d")
        profile = bm3d.BM3DProfile()
        profile.lambda_thr3d, profile.mu2 = THRESHOLDS
        solvers["BM3D"] = _with_tapers(
            lambda y, p: np.squeeze(bm3d.bm3d_deblurring(np.atleast_3d(y), p.noise, p.kernel, profile))
        )
    return solvers


def _with_tapers(solve: Callable[[Image, Problem], Image]) -> Solver:
    """For a solver with a periodic model."""
    return lambda p, periodic: (
        solve(p.periodic, p) if periodic else tapered(p.valid, p.kernel, lambda image: solve(image, p))
    )


def measured(solve: Solver, problem: Problem, periodic: bool) -> Result:
    """Quality as ``psnr`` and ``ssim`` have it, and time."""
    begin = time.process_time()
    image = solve(problem, periodic)
    took = time.process_time() - begin
    pair = tensor(np.clip(image, 0.0, 1.0).astype(np.float64)), tensor(problem.sharp)
    return Result(float(psnr(*pair)), float(ssim(*pair)), took)


def compared(name: str, results: Sequence[Result], other: Sequence[Result] | None) -> list[object]:
    """A row: means, the worst picture, and how many pictures are better than with another solver, and by how little."""
    qualities = [result.psnr for result in results]
    row: list[object] = [name, Shown(statistics.mean(qualities), "{:.2f}")]
    row += [Shown(statistics.mean(result.ssim for result in results), "{:.3f}"), Shown(min(qualities), "{:.2f}")]
    gains = [] if other is None else [a.psnr - b.psnr for a, b in zip(results, other, strict=True)]
    row += [Shown(100.0 * sum(gain > 0.0 for gain in gains) / len(gains), "{:.0f} %") if gains else "-"]
    row += [Shown(min(gains), "{:+.2f}") if gains else "-"]
    return [*row, Shown(1e3 * statistics.mean(result.seconds for result in results), "{:.1f}")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each border."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, metavar="DIR", help="folder with bsd68_gray.npz and levin_kernels.npz")
    report = Report(options, arguments, PEERS)
    data: Path | None = None if report.smoke else report.options.data
    size, count = SMOKE if report.smoke else (SIZE, BUNDLED if data is None else PICTURES)
    given = list(problems(data, size, count))
    solvers = ours() | others(report)
    columns = ["solver", "PSNR, dB", "SSIM", "worst, dB", "above UW", "least, dB", "ms"]
    for border in BORDERS:
        periodic = border == BORDERS[0]
        results: dict[str, list[Result]] = {}
        for name, solve in solvers.items():
            measured(solve, given[0], periodic)  # not counted: imports, plans of transforms
            results[name] = [measured(solve, problem, periodic) for problem in given]
        other = results.get("unsupervised Wiener*")
        rows = [compared(name, found, other) for name, found in results.items()]
        note = f"{len(given)} problems of {size}x{size} pixels; processor milliseconds; *: scikit-image; UW: its unsupervised one"
        if data is None:
            note += "; the network was trained on these two photographs"
        report.table(border, columns, rows, note)


if __name__ == "__main__":
    main()
