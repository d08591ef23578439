"""What deconvolution networks are trained on: crops of photographs, blurred by measured and generated kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..._core.brief import brief
from ..._core.validate import folder, positive_integer
from ..operators import Blur, PeriodicBlur, ValidBlur, normalised_kernel
from .training_kernels import KERNEL, mixed_kernels
from .training_pictures import free_pictures, luminance

TILE = 180
"""Pixels a side of the tiles that photographs are cut into; that of the BSD400 crops."""
GENERATED = 360
"""Generated kernels."""
NOISE = (0.002, 0.05)
"""Least and largest noise level."""
FAINT, CONTRAST = 0.25, 0.15
"""Share of the crops that lose contrast, and the least that they keep: such are the differences of colours."""
HELD_OUT = 0.08
"""Share of the tiles that only validate."""
FREE = "free"
"""In the place of a directory: pictures whose terms let the weights be passed on."""
IMAGES, KERNELS = "bsd400_gray180.npz", "csf_kernels.npz"


@dataclass(frozen=True)
class Batch:
    """Sharp crops (N, P, P), what is observed of them, the blur (a kernel for each), and the noise levels (N, 1, 1)."""

    sharp: Tensor
    observed: Tensor
    blur: Blur
    noise: Tensor


@dataclass(frozen=True)
class TrainingData:
    """Tiles and kernels to draw batches from.

    Attributes:
        tiles: (T, 180, 180) uint8.
        kernels: (M, 37, 37) float32, centred, each of sum 1.
        source: what they are, in words.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> pictures = torch.randint(256, (4, 180, 180), dtype=torch.uint8)
        >>> kernels = torch.full((1, 37, 37), 1 / 37**2)
        >>> data = dc.TrainingData(pictures, kernels, "my own pictures")
        >>> batch = data.draw(2, 40, torch.Generator().manual_seed(0))
        >>> batch.sharp.shape, batch.observed.shape
        (torch.Size([2, 40, 40]), torch.Size([2, 40, 40]))
    """

    tiles: Tensor
    kernels: Tensor
    source: str

    __repr__ = brief

    @classmethod
    def load(cls, directory: str | Path | None = None, *, seed: int = 0) -> TrainingData:
        """The BSD400 crops and the CSF kernels in ``directory``, with generated kernels besides; without one, scikit-learn's two
        photographs and generated kernels only; for ``FREE`` the same with more pictures (``training_pictures.PICTURES``).

        Raises:
            TypeError: a directory that is no path.
            ValueError: a file that is missing or does not hold what its name says; ``FREE`` without scikit-image.
        """
        generator = torch.Generator().manual_seed(seed)
        generated = mixed_kernels(GENERATED, generator)
        if directory is None:
            from sklearn.datasets import load_sample_images

            photographs = [luminance(image) for image in load_sample_images().images]
            return cls(tiled(photographs), generated, "scikit-learn's two photographs, generated kernels")
        if directory == FREE:
            tiles = tiled(free_pictures(), overlapping=True)
            return cls(tiles, generated, "the free pictures of scikit-learn and scikit-image, generated kernels")
        path = folder("data", directory)
        images, kernels = read_arrays(path / IMAGES), read_arrays(path / KERNELS)
        if "images" not in images or images["images"].ndim != 3 or images["images"].dtype != np.uint8:
            raise ValueError(f"{path / IMAGES} has no array images (N, rows, columns) of bytes; fetch it again")
        if not kernels:
            raise ValueError(f"{path / KERNELS} holds no kernels; fetch it again")
        measured = torch.cat([embedded(value) for value in kernels.values()])
        turned = torch.cat([torch.rot90(k, turns, (1, 2)) for k in (measured, measured.mT) for turns in range(4)])
        source = f"{IMAGES}, {KERNELS} in 8 orientations, {GENERATED} generated kernels"
        return cls(tiled(list(images["images"])), torch.cat([turned, generated]), source)

    def to(self, device: torch.device | str) -> TrainingData:
        """The same on another device."""
        return TrainingData(self.tiles.to(device), self.kernels.to(device), self.source)

    def split(self) -> tuple[TrainingData, TrainingData]:
        """To train on, and to validate on: tiles spread over all, with the same kernels."""
        kept = max(1, round(HELD_OUT * len(self.tiles)))
        if kept >= len(self.tiles):
            raise ValueError(f"there is only {len(self.tiles)} tile of {TILE} pixels; pass more or larger photographs")
        held_out = torch.zeros(len(self.tiles), dtype=torch.bool)
        held_out[[(2 * i + 1) * len(self.tiles) // (2 * kept) for i in range(kept)]] = True
        parts = (self.tiles[(~held_out).to(self.tiles.device)], self.tiles[held_out.to(self.tiles.device)])
        return TrainingData(parts[0], self.kernels, self.source), TrainingData(parts[1], self.kernels, self.source)

    def draw(
        self, count: int, size: int, generator: torch.Generator, *, valid: bool = False, noise: float | None = None
    ) -> Batch:
        """A batch: random crops, turned and mirrored, some of little contrast; random kernels; noise log-uniform in ``NOISE``.

        Args:
            count: N.
            size: P, pixels a side of the latent images; at most 180.
            generator: on the device of the tiles.
            valid: observe only where the kernel lies inside the crop; otherwise the blur is periodic.
            noise: one noise level for all.
        """
        positive_integer("count", count)
        if not KERNEL < size <= TILE:
            raise ValueError(f"size is {size}; crops must have {KERNEL + 1} to {TILE} pixels a side")
        device = self.tiles.device

        def integers(high: int) -> Tensor:
            return torch.randint(high, (count,), generator=generator, device=device)

        def uniform() -> Tensor:
            return torch.rand(count, 1, 1, generator=generator, device=device)

        along = torch.arange(size, device=device)
        spans: list[Tensor] = []
        for _ in range(2):
            mirrored = integers(2)[:, None] == 1
            spans.append(integers(TILE - size + 1)[:, None] + torch.where(mirrored, size - 1 - along, along))
        crops = self.tiles[integers(len(self.tiles))[:, None, None], spans[0][:, :, None], spans[1][:, None, :]]
        swapped = integers(2)[:, None, None] == 1
        sharp = torch.where(swapped, crops.mT, crops).to(torch.float32) / 255.0
        kernels = self.kernels[integers(len(self.kernels))]
        blur = (ValidBlur if valid else PeriodicBlur)(kernels, (size, size))
        low, high = NOISE if noise is None else (noise, noise)
        levels = low * (high / low) ** uniform()
        disturbance = levels * torch.randn(count, *blur.range, generator=generator, device=device)
        mean, faint = sharp.mean((1, 2), keepdim=True), uniform() < FAINT
        sharp = torch.where(faint, mean + CONTRAST ** uniform() * (sharp - mean), sharp)
        return Batch(sharp, blur.forward(sharp) + disturbance, blur, levels)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file.

    Raises:
        ValueError: it is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing; pass the directory that holds {IMAGES} and {KERNELS}") from error
    except Exception as error:  # numpy and zipfile raise many kinds for a damaged file
        raise ValueError(f"{path} cannot be read as .npz ({error}); fetch it again") from error


def tiled(images: list[np.ndarray], *, overlapping: bool = False) -> Tensor:
    """Grey images of bytes, cut into tiles (T, 180, 180) from their upper left corners, or into overlapping ones up to their
    lower right corners.

    Raises:
        ValueError: none is large enough.
    """

    def starts(size: int) -> list[int]:
        if not overlapping or size < TILE:
            return list(range(0, size - TILE + 1, TILE))
        return np.linspace(0, size - TILE, -(-size // TILE)).astype(int).tolist()

    tiles = [
        image[top : top + TILE, left : left + TILE]
        for image in images
        for top in starts(image.shape[0])
        for left in starts(image.shape[1])
    ]
    if not tiles:
        raise ValueError(f"no photograph has {TILE} x {TILE} pixels; pass larger ones")
    return torch.from_numpy(np.stack(tiles))


def embedded(kernel: np.ndarray) -> Tensor:
    """A kernel as (1, 37, 37), its centre (rows//2, columns//2) in the middle, divided by its sum.

    Raises:
        TypeError, ValueError: it is larger, or no kernel: see ``normalised_kernel``.
    """
    whole = normalised_kernel(np.asarray(kernel, dtype=np.float64))
    if whole.ndim != 2:
        raise ValueError(f"a kernel has shape {tuple(whole.shape)}; each array must be one kernel, (rows, columns)")
    rows, columns = whole.shape
    if max(rows, columns) > KERNEL:
        raise ValueError(f"a kernel has {rows} x {columns} pixels; networks are trained with at most {KERNEL} a side")
    padded = torch.zeros(1, KERNEL, KERNEL, dtype=torch.float64)
    top, left = KERNEL // 2 - rows // 2, KERNEL // 2 - columns // 2
    padded[0, top : top + rows, left : left + columns] = whole
    return padded.float()
