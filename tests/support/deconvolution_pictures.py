"""Pictures and kernels for the tests of deconvolution: made here, or bundled with scikit-learn."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.deconvolution import Blur, MaskedBlur, PeriodicBlur, SpatiallyVaryingBlur, ValidBlur, normalised_kernel

DOUBLE = torch.float64


def kernel(rows: int, columns: int, seed: int = 0) -> Tensor:
    """A kernel without symmetry, sum 1."""
    generator = torch.Generator().manual_seed(seed)
    return normalised_kernel(torch.rand(rows, columns, generator=generator, dtype=DOUBLE) ** 4)


def weights(count: int, rows: int, columns: int) -> Tensor:
    """Interpolation weights (count, rows, columns), summing to 1."""
    generator = torch.Generator().manual_seed(1)
    raw = torch.rand(count, rows, columns, generator=generator, dtype=DOUBLE)
    return raw / raw.sum(0)


def varying(rows: int, columns: int, boundary: str) -> SpatiallyVaryingBlur:
    """Three kernels of 4 x 3 over an observed picture."""
    kernels = torch.stack([kernel(4, 3, seed) for seed in range(3)])
    return SpatiallyVaryingBlur(kernels, weights(3, rows, columns), boundary)


def masked(blur: Blur) -> MaskedBlur:
    """Of which a quarter of the pixels was not seen."""
    generator = torch.Generator().manual_seed(7)
    return MaskedBlur(blur, torch.rand(blur.range, generator=generator) > 0.25)


def blurs() -> dict[str, Blur]:
    """Every kind of operator, with odd and even kernels and sizes, and kernels of a batch."""
    return {
        "periodic": PeriodicBlur(kernel(5, 3), (12, 10)),
        "periodic, odd picture": PeriodicBlur(kernel(4, 4), (11, 13)),
        "periodic, kernel as large as the picture": PeriodicBlur(kernel(6, 7), (6, 7)),
        "periodic, a kernel for each picture": PeriodicBlur(
            torch.stack([kernel(5, 5, 0), kernel(5, 5, 1)])[:, None], (9, 8)
        ),
        "valid": ValidBlur(kernel(5, 3), (12, 10)),
        "valid, even kernel": ValidBlur(kernel(4, 6), (11, 13)),
        "varying, valid": varying(9, 8, "valid"),
        "varying, periodic": varying(9, 8, "periodic"),
        "masked, valid": masked(ValidBlur(kernel(5, 3), (12, 10))),
        "masked, varying": masked(varying(9, 8, "periodic")),
    }


def stacks() -> dict[str, Blur]:
    """The operators of stacks, with odd and even kernels and sizes."""
    kernels = torch.stack([volume_kernel(2, 2, 1, seed) for seed in range(2)])
    depth = torch.linspace(0.0, 1.0, 4, dtype=DOUBLE)[:, None, None].expand(4, 7, 5)
    return {
        "stacks, periodic": PeriodicBlur(volume_kernel(3, 2, 3), (5, 4, 5)),
        "stacks, valid": ValidBlur(volume_kernel(1, 3, 2), (5, 9, 8)),
        "stacks, varying with depth": SpatiallyVaryingBlur(kernels, torch.stack([depth, 1.0 - depth])),
    }


def volume_kernel(planes: int, rows: int, columns: int, seed: int = 0) -> Tensor:
    """A kernel of a stack without symmetry, sum 1."""
    generator = torch.Generator().manual_seed(seed)
    return normalised_kernel(torch.rand(planes, rows, columns, generator=generator, dtype=DOUBLE) ** 4, 3)


def photos(count: int, size: int) -> Tensor:
    """Grey patches (count, size, size) in 0..1 of scikit-learn's two photographs."""
    from sklearn.datasets import load_sample_images

    grey = [torch.from_numpy(image / 255.0).mean(-1) for image in load_sample_images().images]
    corners = [(210, 180), (180, 300), (270, 240), (90, 180)]  # where there is something to see
    patches = [image[r : r + size, c : c + size] for r, c in corners for image in grey]
    return torch.stack(patches[:count])


def noisy(blur: Blur, sharp: Tensor, noise: float) -> Tensor:
    """A blurred picture with white noise."""
    generator = torch.Generator().manual_seed(3)
    blurred = blur.forward(sharp)
    return blurred + noise * torch.randn(blurred.shape, generator=generator, dtype=blurred.dtype)


def counted(blur: Blur, latent: Tensor, background: float = 0.0, seed: int = 0) -> Tensor:
    """Poisson counts of what the blur makes of a latent image."""
    expected = blur.forward(latent).clamp(min=0.0) + background
    return torch.poisson(expected, generator=torch.Generator().manual_seed(seed))
