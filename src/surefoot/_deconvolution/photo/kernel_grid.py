"""Kernels that were measured at several places of a photograph: between them the blur is interpolated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..operators import SpatiallyVaryingBlur, interpolation, normalised_kernel
from .kernels import fast_padded, kernel_tensor, prepared_kernel
from .tiles import Tile


@dataclass(frozen=True)
class KernelGrid:
    """Kernels at the centres of equal parts of a photograph.

    Attributes:
        kernels: (R, C, kh, kw), float64, each with sum 1.
        shape: (H, W) of the photograph.
    """

    kernels: Tensor
    shape: tuple[int, int]

    def blur(self, part: Tile) -> SpatiallyVaryingBlur:
        """That of a tile: of the kernels that act there."""
        rows, columns = (
            interpolation(count, size, self.kernels)[:, span.slice]
            for count, size, span in zip(self.kernels.shape, self.shape, (part.rows, part.columns), strict=False)
        )
        weights = (rows[:, None, :, None] * columns[None, :, None, :]).flatten(0, 1)
        acting = weights.amax((-2, -1)) > 0.0
        observed = (weights.shape[-2], weights.shape[-1])
        kernels = fast_padded(self.kernels.flatten(0, 1)[acting], observed)
        return SpatiallyVaryingBlur(kernels, weights[acting])


def prepared(kernel: Any, shape: tuple[int, int]) -> tuple[KernelGrid | None, Tensor, tuple[str, ...]]:
    """The grid, if ``kernel`` is one (R, C, kh, kw); the kernel (kh, kw), of a grid the mean of all; and notices.

    Raises:
        TypeError, ValueError: as ``prepared_kernel``, for each of a grid; other than 2 or 4 dimensions.
    """
    raw = kernel_tensor(kernel)
    if raw.ndim != 4:
        return None, *prepared_kernel(raw)
    kernels = normalised_kernel(raw)
    counts = f"{kernels.shape[0]} x {kernels.shape[1]}"
    notice = f"the blur varies: of {counts} kernels, each acts at the centre of its part, and between them it is interpolated"
    return KernelGrid(kernels, shape), kernels.mean((0, 1)), (notice,)
