"""Wiener filters: quadratic restoration, by FFT where the blur is periodic, else by preconditioned conjugate gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._core.validate import positive
from .inner import solve_spd
from .operators import Blur, Shape
from .problem import checked_image

TOLERANCE = 1e-4
"""Relative residual of the conjugate gradients: far below the noise of a picture."""
ITERATIONS = 200


def wiener(blur: Blur, observed: Any, noise: float, signal: float = 0.08) -> Tensor:
    """argmin ‖Bz - y‖² + (noise/signal)²‖z - mean‖²: the Wiener filter of a white image around its mean.

    Args:
        blur: B.
        observed: y (..., h, w), or stacks (..., d, h, w), intensities of about 0..1.
        noise: its standard deviation, positive.
        signal: that of the sharp image, as far as its spectrum counts as white; the default was chosen on training photographs.

    Returns:
        The latent image (..., H, W); ``blur.crop`` gives the part under the observed one.

    Raises:
        TypeError, ValueError: not an image of the blur's shape, dtype and device; a noise or signal that is not positive.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(sharp) + 0.01 * torch.randn(16, 16).double()
        >>> restored = blur.crop(dc.wiener(blur, observed, noise=0.01))
        >>> bool(dc.psnr(restored, sharp) - dc.psnr(observed, sharp) > 3)
        True
    """
    y = checked_image("observed", observed)
    ratio = positive("noise", noise) / positive("signal", signal)
    # a blur whose kernels sum to 1 keeps the mean
    mean = y.mean(dim=blur.axes, keepdim=True)
    return restored(blur, blur.adjoint(y - mean), y.new_tensor(ratio**2)) + mean


def gradient_wiener(blur: Blur, observed: Any, noise: float, gradient: float = 0.09) -> Tensor:
    """argmin ‖Bz - y‖² + (noise/gradient)²Σ_i ‖∂_i z‖²: the Wiener filter of an image with white gradients.

    Args and result as ``wiener``; ``gradient`` is the standard deviation of the differences of neighbouring pixels. Its default
    was chosen on training photographs.

    Raises:
        TypeError, ValueError: as ``wiener``.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> blur = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = blur.forward(sharp) + 0.01 * torch.randn(16, 16).double()
        >>> restored = blur.crop(dc.gradient_wiener(blur, observed, noise=0.01))
        >>> bool(dc.psnr(restored, sharp) - dc.psnr(observed, sharp) > 2)
        True
    """
    y = checked_image("observed", observed)
    ratio = positive("noise", noise) / positive("gradient", gradient)
    return restored(blur, blur.adjoint(y), ratio**2 * laplacian(blur.domain, y))


def laplacian(shape: Shape, like: Tensor) -> Tensor:
    """The multiplier Σ_i |d_i|² (..., H, W//2+1) of periodic forward differences; dtype and device as ``like``."""
    total = like.new_zeros(())
    for axis, size in enumerate(shape):
        grid = torch.fft.rfftfreq if axis == len(shape) - 1 else torch.fft.fftfreq
        frequencies = grid(size, dtype=like.dtype, device=like.device)
        square = 4.0 * (math.pi * frequencies).sin().square()
        total = total + square.reshape(-1, *(1 for _ in shape[axis + 1 :]))
    return total


def restored(
    blur: Blur, right: Tensor, penalty: Tensor, tolerance: float = TOLERANCE, iterations: int = ITERATIONS
) -> Tensor:
    """(BᵀB + P)⁻¹r, P ≥ 0 a multiplier; where no FFT inverts that, by conjugate gradients with these limits."""
    # where both vanish, so does the right-hand side: the floor only keeps 0/0 away
    inverse = 1.0 / (blur.majorizer + penalty).clamp(min=torch.finfo(right.dtype).tiny)
    start = blur.filtered(inverse, right)
    if blur.exact_majorizer:
        return start

    def system(z: Tensor) -> Tensor:
        return blur.gram(z) + blur.filtered(penalty, z)

    return solve_spd(
        system, right, start, lambda r: blur.filtered(inverse, r), 3, tolerance, iterations, blur.axes
    ).solution
