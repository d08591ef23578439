"""A blur kernel as it is used, and what a person should know about what was changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._core.validate import as_tensor
from .operators import SUM_TOLERANCE, normalised_kernel


def prepared_kernel(kernel: Any) -> tuple[Tensor, tuple[str, ...]]:
    """A kernel (kh, kw) in float64 with sum 1, and what a person should know about that.

    Raises:
        TypeError, ValueError: see ``normalised_kernel``; other than 2 dimensions.
    """
    raw = as_tensor("kernel", kernel).double()
    if raw.ndim != 2:
        raise ValueError(f"kernel has shape {tuple(raw.shape)}; pass one kernel, (rows, columns)")
    scaled = normalised_kernel(raw)
    notices: list[str] = []
    total = float(raw.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        notices.append(f"the kernel sums to {total:.6g} and was divided by that, which keeps the brightness")
    even = [f"{size} {name}" for size, name in zip(scaled.shape, ("rows", "columns"), strict=True) if size % 2 == 0]
    if even:
        centre = " and ".join(
            f"{name} {size // 2 + 1}" for size, name in zip(scaled.shape, ("row", "column"), strict=True)
        )
        notices.append(
            f"the kernel has {' and '.join(even)}, so no pixel is its middle: {centre} counts as that, half a pixel off along an "
            "even side, and the sharpened picture may lie half a pixel off"
        )
    return scaled, tuple(notices)
