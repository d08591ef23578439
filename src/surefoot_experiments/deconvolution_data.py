"""Sharp test images, blur kernels and real blurred photographs for the deconvolution table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from surefoot._deconvolution.learned.training_data import TrainingData, read_arrays, tiled
from surefoot._deconvolution.learned.training_kernels import shake_kernels
from surefoot._deconvolution.learned.training_pictures import luminance

IMAGES, KERNELS, REAL = "bsd68_gray.npz", "levin_kernels.npz", "levin_real_blur.npz"
COUNT = 8
"""Kernels, of Levin et al. or generated."""


@dataclass(frozen=True)
class RealPair:
    """A photograph taken with camera shake, its kernel, and a sharp photograph of the same scene, all float64."""

    sharp: Tensor
    blurred: Tensor
    kernel: Tensor


@dataclass(frozen=True)
class TestData:
    """What solvers are compared on, and what networks may be trained on: disjoint photographs and disjoint kernels.

    Attributes:
        images: sharp, float64, intensities 0..1.
        kernels: float64, sum 1.
        real: empty where there are none.
        training: for networks.
        source: in words.
    """

    images: list[Tensor]
    kernels: list[Tensor]
    real: list[RealPair]
    training: TrainingData
    source: str


def load(directory: Path | None, seed: int) -> TestData:
    """BSD68 and the kernels and photographs of Levin et al. from ``directory``; without one, scikit-learn's flower for tests, its
    temple for training, and generated kernels.

    Raises:
        ValueError: a file that is missing or damaged.
    """
    if directory is None:
        from sklearn.datasets import load_sample_images

        temple, flower = (luminance(image) for image in load_sample_images().images)
        generator = torch.Generator().manual_seed(seed)
        training = TrainingData(
            tiled([temple]), shake_kernels(240, generator), "scikit-learn's temple, generated kernels"
        )
        kernels = [k.double() / k.double().sum() for k in shake_kernels(COUNT, generator)]
        source = "scikit-learn's flower (tiles of 180 pixels) and generated kernels, as no data folder was named"
        return TestData([tile.double() / 255.0 for tile in tiled([flower])], kernels, [], training, source)
    stored = read_arrays(directory / IMAGES)
    images = [torch.from_numpy(z).double() / 255.0 for name in ("landscape", "portrait") for z in stored[name]]
    arrays = read_arrays(directory / KERNELS)
    kernels = [torch.from_numpy(arrays[f"k{j}"] / arrays[f"k{j}"].sum()) for j in range(1, COUNT + 1)]
    pairs = read_arrays(directory / REAL)
    real = [_pair(pairs, kernels, image, kernel) for image in range(len(pairs["sharp"])) for kernel in range(COUNT)]
    source = "BSD68, 8 kernels and 32 real photographs of Levin et al."
    return TestData(images, kernels, real, TrainingData.load(directory, seed=seed), source)


def _pair(pairs: dict[str, np.ndarray], kernels: list[Tensor], image: int, kernel: int) -> RealPair:
    """Their blurred photographs are correlations with the kernel, shifted by whole pixels."""
    sharp, blurred = (
        torch.from_numpy(pairs[name][image, kernel].astype(np.float64)) / 65535.0 for name in ("sharp", "blurred")
    )
    rows, columns = (int(n) for n in pairs["shift"][kernel])
    return RealPair(sharp, blurred.roll((-rows, -columns), dims=(0, 1)), kernels[kernel].flip((0, 1)))
