"""Deblurring problems with a known kernel and noise, and a reference solver in plain numpy.

The 90 problems of a data folder: ten crops of BSD68 of 128×128 pixels, three kernels of Levin et al., noise of 1, 2 and 3 %, each
with a periodic border and with the true surroundings. Without one, crops of scikit-learn's two photographs, generated kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from surefoot._deconvolution.learned.training_pictures import LUMINANCE
from surefoot_experiments import deconvolution_data
from surefoot_experiments.deconvolution_peers import blurred, transfer

Image = NDArray[np.float64]
NOISES = (0.01, 0.02, 0.03)
SIZE = 128
KERNELS = ("k1", "k4", "k5")
FIRST, EVERY, PICTURES = (60, 100), 5, 10
"""Upper left pixel of a crop with its surroundings, and which landscape pictures of BSD68."""
WEIGHTS = {0.01: 0.1, 0.02: 0.3, 0.03: 0.3}
"""λσ² of the reference by noise level, as tuned for the published numbers of these problems."""
POWER, GROWTH, LARGEST, NEWTON = 2.0 / 3.0, 2.0**1.5, 256.0, 8


@dataclass(frozen=True)
class Problem:
    """One sharp picture (h, w), and its two observations of that size, float64, intensities 0..1."""

    name: str
    sharp: Image
    kernel: Image
    noise: float
    periodic: Image
    valid: Image


def problems(data: Path | None, size: int = SIZE, count: int = PICTURES) -> Iterator[Problem]:
    """The problems of a folder, or with none those of bundled pictures: ``count`` crops, each with three kernels and noises."""
    number = 0
    for name, picture, kernel, (top, left) in _crops(data, size, count):
        reach = kernel.shape[0] - 1
        around = picture[top : top + size + reach, left : left + size + reach]
        inner = slice(reach // 2, reach // 2 + size)
        sharp = around[inner, inner]
        for noise in NOISES:
            drawn = noise * np.random.default_rng(number).standard_normal((2, size, size))
            number += 1
            seen = blurred(sharp, kernel) + drawn[0], fftconvolve(around, kernel, "valid") + drawn[1]
            yield Problem(f"{name}, {100 * noise:g} %", sharp, kernel, noise, *seen)


def _crops(data: Path | None, size: int, count: int) -> Iterator[tuple[str, Image, Image, tuple[int, int]]]:
    if data is not None:
        pictures, stored = np.load(data / deconvolution_data.IMAGES), np.load(data / deconvolution_data.KERNELS)
        for i in range(count):
            for name in KERNELS:
                kernel = stored[name].astype(np.float64)
                yield f"{i}, {name}", pictures["landscape"][EVERY * i] / 255.0, kernel / kernel.sum(), FIRST
        return
    from sklearn.datasets import load_sample_images

    generated = deconvolution_data.load(None, 0).kernels
    for i in range(count):
        grey = load_sample_images().images[i % 2] @ LUMINANCE / 255.0
        for j in range(len(KERNELS)):
            kernel = trimmed(generated[j].numpy(), size // 2)
            room = [n - size - kernel.shape[0] for n in grey.shape]
            yield f"{i}, generated {j}", grey, kernel, (room[0] * i // count, room[1] * i // count)


def trimmed(kernel: Image, largest: int) -> Image:
    """The middle of a kernel, at most ``largest`` pixels a side and an odd number, with sum 1."""
    half = [min(n, largest - 1 + largest % 2) // 2 for n in kernel.shape]
    rows, columns = (slice(n // 2 - h, n // 2 + h + 1) for n, h in zip(kernel.shape, half, strict=True))
    return kernel[rows, columns] / kernel[rows, columns].sum()


def half_quadratic(observed: Image, kernel: Image, noise: float) -> Image:
    """min λ/2 ‖k ⊗ z - y‖² + Σ|∂z|^(2/3) with a periodic border, by half-quadratic splitting (Krishnan and Fergus, NIPS 2009),
    with one z-step for each β."""
    shape = observed.shape
    weight = WEIGHTS[noise] / noise**2
    blur = transfer(kernel, shape)
    steps = np.stack([transfer(np.array(taps), shape) for taps in ([[0.0], [1.0], [-1.0]], [[0.0, 1.0, -1.0]])])
    right, system = blur.conj() * np.fft.rfft2(observed), np.abs(blur) ** 2
    smooth = (np.abs(steps) ** 2).sum(0)
    z, beta = np.fft.rfft2(observed), 1.0
    while beta < LARGEST:
        w = _shrunk(np.fft.irfft2(steps * z, shape), beta)
        z = (right + beta / weight * (steps.conj() * np.fft.rfft2(w)).sum(0)) / (system + beta / weight * smooth)
        beta *= GROWTH
    return np.fft.irfft2(z, shape)


def _shrunk(v: Image, beta: float) -> Image:
    """argmin over w of |w|^p + β/2 (w - v)², for each entry: the larger stationary point, where that is below the value at 0."""
    size = np.abs(v)
    w = size.copy()
    for _ in range(NEWTON):
        floored = np.maximum(w, 1e-9)
        slope = POWER * floored ** (POWER - 1.0) + beta * (w - size)
        bend = POWER * (POWER - 1.0) * floored ** (POWER - 2.0) + beta
        w = np.clip(np.where(bend > 0.0, w - slope / np.where(bend > 0.0, bend, 1.0), 0.0), 0.0, size)
    better = w**POWER + 0.5 * beta * (w - size) ** 2 < 0.5 * beta * size**2
    return np.sign(v) * np.where(better, w, 0.0)


def tensor(image: Image) -> torch.Tensor:
    """The same, as what our solvers take."""
    return torch.from_numpy(np.ascontiguousarray(image))
