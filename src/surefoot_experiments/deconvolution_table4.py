"""Table 4 of the paper on the differentiable inverse: non-blind deconvolution, classical, learned and of scikit-image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surefoot._core import charts
from surefoot._deconvolution.learned.network import LearnedDeconvolution
from surefoot._deconvolution.learned.training import Loss, parameters, train
from surefoot._deconvolution.metrics import aligned_psnr, psnr, ssim
from surefoot._deconvolution.noise.estimate import estimate_noise
from surefoot._deconvolution.operators import Blur, PeriodicBlur, ValidBlur
from surefoot._deconvolution.problem import DEFAULT_WAVELET
from surefoot_check.arrays import digest

from . import deconvolution_data
from .deconvolution_data import TestData
from .deconvolution_findings import NOISES, PRINTED, SETTINGS, findings, gains, mean
from .deconvolution_inverses import BATCH, INVERSE, NOISE, PATCH, RATE, inverses, paper_networks
from .deconvolution_inverses import LAYERS as UNROLLED
from .deconvolution_methods import (
    ADAPTIVE,
    BETA,
    BLURRED,
    FIXED,
    FIXED_SINGLE,
    GRADIENT_WIENER,
    LEARNED,
    NETWORKS,
    OTHER_PRIORS,
    TOLERANCE,
    WIENER,
    Restored,
    restore_all,
)
from .deconvolution_peers import PEERS, peers
from .deconvolution_steps import step_sizes
from .finished import completed, hashed, kept
from .result import Cell, Experiment, Plot, Progress, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 2
"""Of the finished parts; raised whenever the same settings would give other numbers."""
METHODS = (BLURRED, WIENER, GRADIENT_WIENER, FIXED, FIXED_SINGLE, ADAPTIVE, *OTHER_PRIORS, *NETWORKS, *PEERS)
LEAST_NOISE = 0.01
"""Noise level that solvers are told for a real photograph, at least: what its kernel does not explain is as large."""
BORDER = 15
"""Pixels of a real photograph left out at each side, beside the 5 that the best shift needs."""
LAYERS, FILTERS = 6, 32
BUNDLED = "bundled"
STEPS_CROP = 96
"""Pixels a side of the image on which step sizes are compared."""


def table4(
    images: int | None = None,
    valid: int | None = None,
    real: int | None = None,
    kernels: int = deconvolution_data.COUNT,
    crop: int | None = None,
    steps: int = 20_000,
    batch: int = 16,
    patch: int = 128,
    unrolled: int = 2_000,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    cache: Path | None = None,
    data: Path | None = None,
    weights: Path | None = None,
) -> Experiment:
    """Restore test images with every solver.

    Args:
        images, valid, real: how many test images with periodic and with unknown border, and how many real photographs; by
            default all.
        kernels: how many for each image and noise level, in turn.
        crop: central crops of so many pixels a side; whole images by default.
        steps, batch, patch: of the training, where no ``weights`` are given.
        unrolled: steps of the training of the paper's two networks, which is always done.
        data: directory with the files that ``deconvolution_data`` names.
        weights: a network that ``LearnedDeconvolution.save`` wrote; ``bundled`` for that of the package, which has seen the
            pictures that take the place of ``data``.
    """
    given = deconvolution_data.load(data, seed)
    nets = {
        name: _trained(net, given, "objective", unrolled, BATCH, PATCH, RATE, seed, cache, progress)
        for name, net in paper_networks().items()
    }
    if weights is None:
        net, training = LearnedDeconvolution(LAYERS, FILTERS, seed=seed), _training(given, steps, batch, patch)
        net = _trained(net, given, "supervised", steps, batch, patch, 3e-3, seed, cache, progress)
    else:
        own = str(weights) == BUNDLED
        net = (LearnedDeconvolution.bundled() if own else LearnedDeconvolution.load(weights)).float()
        training = "weights that come with the package" if own else f"weights from {weights.name}"
    nets[LEARNED] = net
    extra = peers()
    base = {
        "deconvolution": FORMAT,
        "source": given.source,
        "nets": {name: _identity(net) for name, net in nets.items()},
        "priors": list(OTHER_PRIORS),
        "peers": list(extra),
        "seed": seed,
    }
    records: list[dict[str, Any]] = []
    for setting, count in zip(SETTINGS, (images, valid), strict=True):
        chosen = _spread(len(given.images), count)
        for order, noise in enumerate(NOISES):
            progress(f"{setting}, {100 * noise:g} % noise: {len(chosen)} images, {kernels} kernels each")
            for place, index in enumerate(chosen):
                key = base | {"setting": setting, "noise": noise, "image": index, "crop": crop}
                for turn in range(kernels):
                    kernel = (place + 3 * order + turn) % len(given.kernels)

                    def compute(
                        setting: str = setting, noise: float = noise, index: int = index, kernel: int = kernel
                    ) -> dict[str, Any]:
                        return _simulated(given, setting, noise, index, kernel, crop, nets, extra, seed)

                    records += kept(cache, "deconvolution", key | {"kernel": kernel}, compute)["rows"]
    chosen = _spread(len(given.real), real)
    if chosen:
        progress(f"{len(chosen)} real photographs")
    photographs = [
        kept(cache, "deconvolution", base | {"real": i}, lambda i=i: {"rows": _photograph(given, i, nets, extra)})
        for i in chosen
    ]
    taken = [row for photograph in photographs for row in photograph["rows"]]
    progress("step sizes, and D-Minv in place of the exact inverse")
    sides: dict[str, Table] = {}
    for name, part in (
        ("steps", lambda: _step_table(given, crop, seed)),
        ("inverses", lambda: _inverse_table(given, net, crop, seed)),
    ):
        key = base | {"table": name, "crop": crop}
        stored = kept(cache, "deconvolution", key, lambda part=part: _plain(part()))
        sides[name] = Table(stored["title"], tuple(stored["columns"]), tuple(tuple(row) for row in stored["rows"]))
    return Experiment(
        name="deconvolution/table4",
        title="Non-blind deconvolution: quality, time and products with the blur",
        reference="Xie et al., differentiable inverse and orthogonality, Table 4 and appendix A.1.3",
        tables=(
            *(_summary(setting, [r for r in records if r["setting"] == setting]) for setting in SETTINGS),
            *([_real_summary(taken)] if taken else []),
            *sides.values(),
        ),
        figures=(Plot("table4-psnr.png", lambda: _draw(records)),),
        findings=findings(records, taken, sides["inverses"], sides["steps"]),
        settings={
            "test data": given.source,
            "crop": "whole images" if crop is None else f"central {crop} x {crop} pixels where images are larger",
            "training": training,
            "L-ADMM": f"default_penalty, {DEFAULT_WAVELET}, beta = {BETA:g} penalty, float64, to a relative gap of {TOLERANCE:g}",
            "D-NbD": f"{UNROLLED} layers, wavelet shrinkage, inverses of K = {INVERSE[0]}, L = {INVERSE[1]}; algorithm 4, "
            f"loss (15), {_training(given, unrolled, BATCH, PATCH)}; float32",
            "learned": "float32; trained weights are covered by no theorem",
            "seconds": "of the processor",
            "scikit-image": ", ".join(extra) if extra else "not installed, so left out",
            "applications": "products with B, its adjoint or an inverse filter; those of scikit-image are not counted",
        },
    )


def _spread(total: int, count: int | None) -> list[int]:
    """That many of ``total`` indices, evenly spread."""
    if count is None or count >= total:
        return list(range(total))
    return [i * total // count for i in range(count)]


def _training(given: TestData, steps: int, batch: int, patch: int) -> str:
    return f"{steps:,} steps of {batch} crops of {patch} pixels on {given.training.source}"


def _trained(
    net: LearnedDeconvolution,
    given: TestData,
    loss: Loss,
    steps: int,
    batch: int,
    patch: int,
    rate: float,
    seed: int,
    cache: Path | None,
    progress: Progress,
) -> LearnedDeconvolution:
    """The network after its training, or as it was kept before."""
    settings = {"loss": loss, "steps": steps, "batch": batch, "patch": patch, "rate": rate, "seed": seed}
    fixed = [C.requires_grad for C in parameters(net)[1].values()]
    start = {"format": FORMAT, "source": given.training.source, "net": _identity(net), "coefficients": fixed}
    file = None if cache is None else cache / f"deconvolution-{hashed(settings | start)}.safetensors"
    if file is not None and file.exists():
        return LearnedDeconvolution.load(file)
    progress(f"training: {_training(given, steps, batch, patch)}")
    options = {"steps": steps, "batch": batch, "crop": patch, "learning_rate": rate, "seed": seed}
    completed(train(net, given.training, loss, **options, progress=True))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        net.save(file)
    return net


def _identity(net: LearnedDeconvolution) -> str:
    return hashed({name: digest(value.numpy()) for name, value in net.state_dict().items()})


def _simulated(
    given: TestData,
    setting: str,
    noise: float,
    index: int,
    kernel: int,
    crop: int | None,
    nets: Mapping[str, LearnedDeconvolution],
    extra: tuple[str, ...],
    seed: int,
) -> dict[str, Any]:
    sharp = _central(given.images[index], crop)
    blur = (PeriodicBlur if setting == "periodic" else ValidBlur)(given.kernels[kernel], tuple(sharp.shape))
    observed = _noisy(blur.forward(sharp), noise, seed + 1009 * index + 31 * kernel)
    reference = blur.crop(sharp)
    results = restore_all(observed, blur, noise, nets, extra)
    same = {"setting": setting, "noise": noise, "image": index, "kernel": kernel}
    return {
        "rows": [
            {
                **same,
                "method": name,
                "psnr": float(psnr(result.image, reference)),
                "ssim": float(ssim(result.image, reference)),
                **_cost(result),
            }
            for name, result in results.items()
        ]
    }


def _photograph(
    given: TestData, index: int, nets: Mapping[str, LearnedDeconvolution], extra: tuple[str, ...]
) -> list[dict[str, Any]]:
    pair = given.real[index]
    blur: Blur = ValidBlur.observing(pair.kernel, tuple(pair.blurred.shape))
    noise = max(LEAST_NOISE, float(estimate_noise(pair.blurred)))
    results = restore_all(pair.blurred, blur, noise, nets, extra)
    return [
        {
            "image": index,
            "method": name,
            "noise": noise,
            "psnr": aligned_psnr(result.image, pair.sharp, border=BORDER),
            **_cost(result),
        }
        for name, result in results.items()
    ]


def _step_table(given: TestData, crop: int | None, seed: int) -> Table:
    noise = NOISES[0]
    sharp = _central(given.images[0], min(STEPS_CROP, crop or STEPS_CROP))
    blur = PeriodicBlur(given.kernels[0], (sharp.shape[0], sharp.shape[1]))
    return step_sizes(sharp, _noisy(blur.forward(sharp), noise, seed), blur, noise)


def _inverse_table(given: TestData, net: LearnedDeconvolution, crop: int | None, seed: int) -> Table:
    sharp = _central(given.images[0], crop).float()
    blur = PeriodicBlur(given.kernels[0].float(), (sharp.shape[0], sharp.shape[1]))
    return inverses(net, sharp, _noisy(blur.forward(sharp), NOISE, seed), blur)


def _plain(table: Table) -> dict[str, Any]:
    return {"title": table.title, "columns": list(table.columns), "rows": [list(row) for row in table.rows]}


def _noisy(image: Tensor, noise: float, seed: int) -> Tensor:
    drawn = torch.randn(image.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return image + noise * drawn.to(image)


def _central(image: Tensor, crop: int | None) -> Tensor:
    if crop is None:
        return image
    top, left = (max(0, (n - crop) // 2) for n in image.shape)
    return image[top : top + crop, left : left + crop].contiguous()


def _cost(result: Restored) -> dict[str, Any]:
    return {"seconds": result.seconds, "applications": result.applications, "iterations": result.iterations}


def _summary(setting: str, records: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for noise in NOISES:
        here = [r for r in records if r["noise"] == noise]
        for name in METHODS:
            own = [r for r in here if r["method"] == name]
            if own:
                measured = (mean(own, what) for what in ("psnr", "ssim", "seconds", "applications", "iterations"))
                printed = PRINTED[noise].get(name, (None, None)) if setting == "periodic" else (None, None)
                rows.append((f"{100 * noise:g} %", name, *measured, min(gains(here, name, GRADIENT_WIENER)), *printed))
    columns = ("noise", "method", "PSNR", "SSIM", "seconds", "applications", "iterations")
    paper = ("PSNR in the paper", "seconds in the paper")
    return Table(f"{setting} border", (*columns, "least gain over gradient-Wiener", *paper), tuple(rows))


def _real_summary(taken: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in METHODS:
        own = [r for r in taken if r["method"] == name]
        if own:
            measured = (mean(own, what) for what in ("psnr", "seconds", "applications"))
            rows.append((name, *measured, min(gains(taken, name, GRADIENT_WIENER))))
    return Table(
        "real photographs",
        ("method", "PSNR at the best shift", "seconds", "applications", "least gain over gradient-Wiener"),
        tuple(rows),
    )


def _draw(records: Sequence[Mapping[str, Any]]) -> Figure:
    """PSNR over seconds, a panel for each setting."""
    from matplotlib.ticker import NullFormatter

    figure, axes = charts.grid(1, len(SETTINGS))
    for ax, setting in zip(axes[0], SETTINGS, strict=True):
        for colour, name in zip(charts.COLOURS, [m for m in METHODS if m != BLURRED], strict=False):
            own = [
                [r for r in records if (r["setting"], r["method"], r["noise"]) == (setting, name, n)] for n in NOISES
            ]
            if all(own):
                times, values = ([mean(rows, what) or 0.0 for rows in own] for what in ("seconds", "psnr"))
                ax.plot(times, values, "o-", color=colour, label=name)
        ax.set(xscale="log", xlabel="seconds an image")
        ax.xaxis.set_minor_formatter(NullFormatter())  # on less than a decade its labels overlap
        charts.style(ax, f"{setting} border")
    return charts.finish(figure, axes, "Deconvolution at 1, 2 and 3 % noise (from above)", "PSNR in dB")
