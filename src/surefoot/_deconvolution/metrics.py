"""Quality of a restored image: PSNR, SSIM, and PSNR at the best shift."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import conv2d


def psnr(image: Tensor, reference: Tensor, peak: float = 1.0, border: int = 0) -> Tensor:
    """10 log10(peak²/mean squared error) in dB, over the last two dimensions; (...,).

    Args:
        image, reference: (..., H, W).
        peak: the largest intensity.
        border: pixels left out at each side.

    Returns:
        (...,), in the dtype of the images.

    Raises:
        ValueError: shapes that differ, or a border that leaves nothing.

    Example:
        >>> sharp = torch.rand(16, 16)
        >>> round(sf.deconvolution.psnr(sharp + 0.1, sharp).item(), 2)
        20.0
    """
    a, b = _inside(image, reference, border)
    return 10.0 * torch.log10(peak**2 / (a - b).square().mean((-2, -1)))


def ssim(image: Tensor, reference: Tensor, peak: float = 1.0, border: int = 0) -> Tensor:
    """Mean structural similarity (...,), with the Gaussian window of 11 pixels and σ = 1.5 of Wang, Bovik, Sheikh, Simoncelli
    (IEEE TIP 13(4), 2004), K1 = 0.01, K2 = 0.03, windows inside the image only. Arguments as ``psnr``.

    Raises:
        ValueError: shapes that differ, or fewer than 11 pixels a side.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.rand(16, 16)
        >>> round(dc.ssim(sharp, sharp).item(), 2), bool(dc.ssim(sharp.mT, sharp) < 0.5)
        (1.0, True)
    """
    a, b = _inside(image, reference, border)
    if min(a.shape[-2:]) < 11:
        raise ValueError(f"image has {a.shape[-2]} x {a.shape[-1]} pixels; SSIM needs at least 11 a side")
    offsets = torch.arange(-5, 6, dtype=a.dtype, device=a.device)
    taps = torch.exp(-offsets.square() / (2.0 * 1.5**2))
    taps = taps / taps.sum()

    def local(v: Tensor) -> Tensor:
        flat = v.reshape(-1, 1, *v.shape[-2:])
        flat = conv2d(conv2d(flat, taps.reshape(1, 1, 1, -1)), taps.reshape(1, 1, -1, 1))
        return flat.reshape(*v.shape[:-2], *flat.shape[-2:])

    mean_a, mean_b = local(a), local(b)
    variance_a, variance_b = local(a * a) - mean_a.square(), local(b * b) - mean_b.square()
    covariance = local(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    luminance = (2.0 * mean_a * mean_b + c1) / (mean_a.square() + mean_b.square() + c1)
    return (luminance * (2.0 * covariance + c2) / (variance_a + variance_b + c2)).mean((-2, -1))


def best_shift(image: Tensor, reference: Tensor, reach: int = 5, border: int = 0) -> tuple[int, int]:
    """The integer shift (rows, columns), up to ``reach`` each way, by which ``image`` (H, W) fits ``reference`` (H, W) best.

    Compared where both are known and at least ``border`` pixels from the sides.

    Args:
        image, reference: of one size, of any floats.
        reach: the largest shift that is tried, in pixels.
        border: pixels left out at each side, beside ``reach``.

    Raises:
        ValueError: a reach and a border that leave nothing.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.rand(16, 16)
        >>> dc.best_shift(sharp.roll((1, -2), (0, 1)), sharp)  # what moves it back
        (-1, 2)
    """
    best, shift = math.inf, (0, 0)
    for rows in range(-reach, reach + 1):
        for columns in range(-reach, reach + 1):
            a, b = _inside(*_overlap(image, reference, rows, columns, reach), border)
            error = float((a - b).square().mean())
            if error < best:
                best, shift = error, (rows, columns)
    return shift


def aligned_psnr(image: Tensor, reference: Tensor, peak: float = 1.0, border: int = 0, reach: int = 5) -> float:
    """PSNR of ``image`` (H, W) against ``reference`` (H, W) at their best integer shift: a blur kernel and a photograph fix
    the position of the sharp image only up to a shift. Arguments and errors as ``psnr`` and ``best_shift``.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.rand(16, 16)
        >>> moved = sharp.roll((1, -2), (0, 1)) + 0.01  # as a kernel off its centre does
        >>> round(dc.aligned_psnr(moved, sharp), 1), bool(dc.psnr(moved, sharp) < 15)
        (40.0, True)
    """
    shift = best_shift(image, reference, reach, border)
    return float(psnr(*_overlap(image, reference, *shift, reach), peak, border))


def _overlap(image: Tensor, reference: Tensor, rows: int, columns: int, reach: int) -> tuple[Tensor, Tensor]:
    """The same window for every shift: the reference without ``reach`` pixels at its sides, the image moved."""
    height, width = reference.shape[-2:]
    inner = reference[..., reach : height - reach, reach : width - reach]
    return image[..., reach - rows : height - reach - rows, reach - columns : width - reach - columns], inner


def _inside(image: Tensor, reference: Tensor, border: int) -> tuple[Tensor, Tensor]:
    if image.shape[-2:] != reference.shape[-2:]:
        raise ValueError(
            f"image has {tuple(image.shape[-2:])} pixels and reference {tuple(reference.shape[-2:])}; pass images of one size"
        )
    if 2 * border >= min(image.shape[-2:]):
        raise ValueError(f"border is {border}; images of {tuple(image.shape[-2:])} have nothing left")
    inside = slice(border, image.shape[-2] - border), slice(border, image.shape[-1] - border)
    return image[..., *inside], reference[..., *inside]
