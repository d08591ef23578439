"""Blur as a linear operator: periodic, valid (unknown border) and spatially varying.

An operator maps latent images z (..., H, W) to observed images y (..., h, w); leading dimensions are batch and colour. With
kernel k, centred at (kh//2, kw//2), y = k ⊗ z is a true convolution. All products go through the FFT. Every operator knows a
Fourier multiplier M ≥ 0 with BᵀB ⪯ M on the latent grid (equal for periodic blur): what makes the z-step of the linearised ADMM
exact for all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from .._core.validate import as_tensor, finite

SUM_TOLERANCE = 1e-3
"""A kernel's sum may differ from 1 by this much: more changes the brightness of the picture."""
Shape = tuple[int, int]


def normalised_kernel(kernel: Any) -> Tensor:
    """A blur kernel divided by its sum, float64 unless it is float32; shape (..., kh, kw).

    Raises:
        TypeError: not an array of floats.
        ValueError: fewer than 2 dimensions, empty, on the meta device, NaN or infinite, negative entries, or all zero.
    """
    scaled = _kernel(kernel)
    scaled = scaled / scaled.amax(dim=(-2, -1), keepdim=True)  # the sum of huge entries overflows
    return scaled / scaled.sum(dim=(-2, -1), keepdim=True)


def _kernel(kernel: Any) -> Tensor:
    """A tensor (..., kh, kw), finite, not negative, not zero."""
    tensor = held("kernel", as_tensor("kernel", kernel))
    if tensor.ndim < 2 or tensor.numel() == 0:
        raise ValueError(f"kernel has shape {tuple(tensor.shape)}; pass a non-empty array (..., rows, columns)")
    finite("kernel", tensor)
    least = float(tensor.min())
    if least < 0.0:
        raise ValueError(
            f"kernel has negative entries (the least is {least:.3g}); a blur has none: use kernel.clamp(min=0), then "
            "normalised_kernel"
        )
    if not bool((tensor.sum(dim=(-2, -1)) > 0.0).all()):
        raise ValueError("kernel is zero everywhere; pass the point spread function of the blur")
    return tensor


def _unit_kernel(kernel: Any) -> Tensor:
    """A kernel whose sum is 1."""
    tensor = _kernel(kernel)
    sums = tensor.double().sum(dim=(-2, -1))
    worst = float(sums.flatten()[(sums - 1.0).abs().argmax()])
    if not abs(worst - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"kernel sums to {worst:.6g} instead of 1; divide it by its sum: normalised_kernel(kernel)")
    return tensor


def _shape(name: str, shape: tuple[int, ...]) -> Shape:
    if len(shape) != 2 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"{name} is {shape!r}; pass (rows, columns), two positive integers")
    return shape[0], shape[1]


def held(name: str, array: Tensor) -> Tensor:
    """``array``; ``ValueError`` where it has no values."""
    if array.is_meta:
        raise ValueError(f"{name} is on the meta device, which holds no values; pass a tensor on the CPU or a GPU")
    return array


def image_norm(image: Tensor) -> Tensor:
    """The 2-norm of each image (..., H, W)."""
    return torch.linalg.vector_norm(image, dim=(-2, -1))


def fft_error(dtype: torch.dtype, shape: Shape) -> float:
    """Relative error, in the 2-norm, granted to a Fourier transform of that size.

    8 units in the last place for each of log2(pixels) + 4 stages. A mixed-radix transform with accurate twiddle factors needs
    about 4 (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 24.2).
    """
    return 8.0 * torch.finfo(dtype).eps * (math.log2(shape[0] * shape[1]) + 4.0)


class Blur(ABC):
    """A linear blur B.

    Attributes:
        domain: (H, W), the size of latent images.
        range: (h, w), the size of observed images.
        kernel: what it was made of; its dtype and device are those of all images.
        majorizer: (..., H, W//2+1), the multiplier M on the half-plane of ``torch.fft.rfft2`` with BᵀB ⪯ M.
        exact_majorizer: whether BᵀB = M, so that ``solve`` inverts αBᵀB + I.
        norm_bound: rigorous upper bound of ‖B‖ over the whole batch, for the stored kernel in exact arithmetic.
    """

    domain: Shape
    range: Shape
    kernel: Tensor
    majorizer: Tensor
    exact_majorizer: bool = False
    norm_bound: float

    @abstractmethod
    def _forward(self, z: Tensor) -> Tensor: ...

    @abstractmethod
    def _adjoint(self, y: Tensor) -> Tensor: ...

    @abstractmethod
    def crop(self, z: Tensor) -> Tensor:
        """The part (..., h, w) of a latent image that lies under the observed one."""

    def seen(self, y: Tensor) -> Tensor:
        """Observed images (..., h, w) with 0 where the blur says that nothing was seen."""
        return y

    def filled(self, y: Tensor) -> Tensor:
        """Observed images (..., h, w) with a guess where nothing was seen, to start from."""
        return y

    @abstractmethod
    def to(self, target: torch.dtype | torch.device | str) -> Blur:
        """The same blur in another dtype or on another device."""

    def forward(self, z: Tensor) -> Tensor:
        """Bz (..., h, w) of z (..., H, W).

        Raises:
            ValueError: a shape that does not fit.
            TypeError: another dtype or device than the kernel's.
        """
        self._check("z", z, self.domain)
        return self._forward(z)

    def adjoint(self, y: Tensor) -> Tensor:
        """Bᵀy (..., H, W) of y (..., h, w); raises as ``forward``."""
        self._check("y", y, self.range)
        return self._adjoint(y)

    def gram(self, z: Tensor) -> Tensor:
        """BᵀBz."""
        return self._adjoint(self.forward(z))

    def solve(self, right: Tensor, alpha: float | Tensor) -> Tensor:
        """(αM + I)⁻¹ ``right`` for right (..., H, W); α > 0, a number or (..., 1, 1)."""
        return multiply(1.0 / (alpha * self.majorizer + 1.0), right)

    def majorized(self, z: Tensor) -> Tensor:
        """Mz."""
        return multiply(self.majorizer, z)

    def forward_error(self, scale: Tensor) -> Tensor:
        """Bound of the 2-norm of the rounding error of ``forward`` and ``adjoint`` for an argument of 2-norm ``scale``."""
        return 4.0 * fft_error(self.kernel.dtype, self.domain) * self.norm_bound * scale

    def _check(self, name: str, image: Tensor, shape: Shape) -> None:
        if image.shape[-2:] != shape or image.ndim < 2:
            raise ValueError(f"{name} has shape {tuple(image.shape)}; this blur takes (..., {shape[0]}, {shape[1]})")
        if image.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(image.shape)}, so it holds no image; pass at least one")
        if image.dtype != self.kernel.dtype or image.device != self.kernel.device:
            raise TypeError(
                f"{name} is {image.dtype} on {image.device}, the kernel {self.kernel.dtype} on {self.kernel.device}; "
                f"use blur.to(...) or {name}.to(...)"
            )


def multiply(multiplier: Tensor, image: Tensor) -> Tensor:
    """A Fourier multiplier (..., H, W//2+1) applied to images (..., H, W)."""
    return torch.fft.irfft2(multiplier * torch.fft.rfft2(image), s=image.shape[-2:])


def spectrum(kernel: Tensor, shape: Shape) -> Tensor:
    """The transfer function (..., H, W//2+1) of a kernel (..., kh, kw) centred at (kh//2, kw//2)."""
    rows, columns = kernel.shape[-2:]
    embedded = kernel.new_zeros(*kernel.shape[:-2], *shape)
    embedded[..., :rows, :columns] = kernel
    return torch.fft.rfft2(embedded.roll((-(rows // 2), -(columns // 2)), dims=(-2, -1)))


def _sum_bound(kernel: Tensor) -> Tensor:
    """Upper bounds (...,) of the sums of kernels, which bound the norm of the convolution (Young)."""
    entries = kernel.shape[-2] * kernel.shape[-1]
    return kernel.double().sum(dim=(-2, -1)) * (1.0 + (entries + 2) * 2.0**-52)


def _check_fits(kernel: Tensor, shape: Shape, what: str) -> None:
    rows, columns = kernel.shape[-2:]
    if rows > shape[0] or columns > shape[1]:
        raise ValueError(
            f"kernel ({rows} x {columns}) is larger than {what} ({shape[0]} x {shape[1]}); crop the kernel's zero margin, or "
            "pass a larger image"
        )


class PeriodicBlur(Blur):
    """Circular convolution: the picture continues on its opposite side. (αBᵀB + I)⁻¹ is exact by FFT.

    Args:
        kernel: (..., kh, kw), not negative, sum 1; leading dimensions broadcast against those of the images.
        shape: (H, W).

    Raises:
        TypeError, ValueError: see ``normalised_kernel``; a sum other than 1; a kernel larger than the image.
    """

    exact_majorizer = True

    def __init__(self, kernel: Any, shape: tuple[int, ...]) -> None:
        self.kernel = _unit_kernel(kernel)
        self.domain = self.range = _shape("shape", shape)
        _check_fits(self.kernel, self.domain, "the image")
        self.spectrum = spectrum(self.kernel, self.domain)
        self.majorizer = self.spectrum.real.square() + self.spectrum.imag.square()
        self.norm_bound = float(_sum_bound(self.kernel).max())

    def _forward(self, z: Tensor) -> Tensor:
        return multiply(self.spectrum, z)

    def _adjoint(self, y: Tensor) -> Tensor:
        return multiply(self.spectrum.conj(), y)

    def crop(self, z: Tensor) -> Tensor:
        return z

    def to(self, target: torch.dtype | torch.device | str) -> PeriodicBlur:
        return PeriodicBlur(self.kernel.to(target), self.domain)


class ValidBlur(Blur):
    """Convolution where the kernel lies inside the latent image: the border beyond the observed picture is unknown.

    y (H-kh+1, W-kw+1) says nothing about what would have to be made up, so that a restoration does not ring at the borders.

    Args:
        kernel: as for ``PeriodicBlur``.
        shape: (H, W) of latent images; ``ValidBlur.observing`` takes the observed size instead.
    """

    def __init__(self, kernel: Any, shape: tuple[int, ...]) -> None:
        self._periodic = PeriodicBlur(kernel, shape)
        self.kernel, self.domain = self._periodic.kernel, self._periodic.domain
        self._window = _window(self.kernel, self.domain)
        self.range = self._window.shape
        # with C the crop and K the circular convolution: BᵀB = KᵀCᵀCK ⪯ KᵀK
        self.majorizer, self.norm_bound = self._periodic.majorizer, self._periodic.norm_bound

    @classmethod
    def observing(cls, kernel: Any, shape: tuple[int, ...]) -> ValidBlur:
        """The blur whose observed images have this ``shape`` (h, w).

        Raises:
            TypeError, ValueError: as the constructor; a kernel larger than the observed image.
        """
        kernel = _unit_kernel(kernel)
        rows, columns = _shape("shape", shape)
        _check_fits(kernel, (rows, columns), "the image")
        return cls(kernel, (rows + kernel.shape[-2] - 1, columns + kernel.shape[-1] - 1))

    def _forward(self, z: Tensor) -> Tensor:
        return self._window.crop(self._periodic._forward(z))

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._periodic._adjoint(self._window.embed(y))

    def crop(self, z: Tensor) -> Tensor:
        return self._window.crop(z)

    def to(self, target: torch.dtype | torch.device | str) -> ValidBlur:
        return ValidBlur(self.kernel.to(target), self.domain)


class SpatiallyVaryingBlur(Blur):
    """y = Σ_j w_j ⊙ (k_j ⊗ z): kernels interpolated over the picture by weights that sum to 1 at each pixel.

    Args:
        kernels: (J, kh, kw), each not negative with sum 1.
        weights: (J, h, w) on the observed pixels, not negative, summing to 1 over J.
        boundary: ``"valid"`` (latent images are larger by the kernel's size less 1) or ``"periodic"``.

    Raises:
        TypeError, ValueError: as for ``PeriodicBlur``; weights that do not fit or do not sum to 1.
    """

    def __init__(self, kernels: Any, weights: Any, boundary: str = "valid") -> None:
        self.kernel, self.weights = _unit_kernel(kernels), held("weights", as_tensor("weights", weights))
        if self.kernel.ndim != 3 or self.weights.ndim != 3 or self.kernel.shape[0] != self.weights.shape[0]:
            raise ValueError(
                f"kernels have shape {tuple(self.kernel.shape)} and weights {tuple(self.weights.shape)}; pass (J, kh, kw) "
                "and (J, h, w)"
            )
        finite("weights", self.weights)
        least = float(self.weights.min())
        if least < 0.0:
            raise ValueError(
                f"weights must not be negative (the least is {least:.3g}); they say how much of each kernel acts"
            )
        deviation = float((self.weights.sum(0) - 1.0).abs().max())
        if deviation > SUM_TOLERANCE:
            raise ValueError(
                f"weights must sum to 1 at each pixel (they differ by up to {deviation:.3g}); divide them by weights.sum(0)"
            )
        if boundary not in ("valid", "periodic"):
            raise ValueError(f"boundary is {boundary!r}; pass 'valid' or 'periodic'")
        self.boundary = boundary
        self.weights = self.weights.to(self.kernel)
        observed = _shape("weights", tuple(self.weights.shape[1:]))
        _check_fits(self.kernel, observed, "the image")
        rows, columns = self.kernel.shape[-2:]
        grown = (observed[0] + rows - 1, observed[1] + columns - 1)
        self._periodic = PeriodicBlur(self.kernel, observed if boundary == "periodic" else grown)
        self.domain, self.range = self._periodic.domain, observed
        self._window = _Window(slice(None), slice(None), observed, observed)
        if boundary == "valid":
            self._window = _window(self.kernel, self.domain)
        # Jensen: ‖Bz‖² ≤ Σ_p Σ_j w_j(p) s(p) |k_j ⊗ z|²(p) with s = Σ_j w_j, and the largest w_j s of each kernel moves out
        largest = (self.weights * self.weights.sum(0)).amax(dim=(-2, -1), keepdim=True)
        slack = 1.0 + (len(self.kernel) + 8.0) * torch.finfo(self.kernel.dtype).eps
        self.scales = (largest * slack).flatten()
        self.majorizer = (self.scales[:, None, None] * self._periodic.majorizer).sum(0)
        self.norm_bound = self._bound()

    def _bound(self) -> float:
        """‖B‖² ≤ ‖B‖₁‖B‖_∞, the largest column and row sums of a matrix without negative entries."""
        sums, weights = _sum_bound(self.kernel), self.weights.double()
        rows = float((weights * sums[:, None, None]).sum(0).max())
        spread = PeriodicBlur(self.kernel.double(), self.domain)._adjoint(self._window.embed(weights)).sum(0)
        error = 4.0 * fft_error(torch.float64, self.domain) * float((weights.norm(dim=(-2, -1)) * sums).sum())
        return math.sqrt(rows * (float(spread.max()) + error)) * (1.0 + (len(sums) + 4) * 2.0**-52)

    def _forward(self, z: Tensor) -> Tensor:
        return (self.weights * self._window.crop(self._periodic._forward(z.unsqueeze(-3)))).sum(-3)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._periodic._adjoint(self._window.embed(self.weights * y.unsqueeze(-3))).sum(-3)

    def crop(self, z: Tensor) -> Tensor:
        return self._window.crop(z)

    def to(self, target: torch.dtype | torch.device | str) -> SpatiallyVaryingBlur:
        return SpatiallyVaryingBlur(self.kernel.to(target), self.weights.to(target), self.boundary)


class _Window:
    """A rectangle of a larger grid."""

    def __init__(self, rows: slice, columns: slice, shape: Shape, domain: Shape) -> None:
        self.rows, self.columns, self.shape, self.domain = rows, columns, shape, domain

    def crop(self, z: Tensor) -> Tensor:
        return z[..., self.rows, self.columns]

    def embed(self, y: Tensor) -> Tensor:
        """The adjoint of ``crop``: zeros around y."""
        z = y.new_zeros(*y.shape[:-2], *self.domain)
        z[..., self.rows, self.columns] = y
        return z


def _window(kernel: Tensor, domain: Shape) -> _Window:
    """Where a circular convolution with this kernel does not wrap around."""
    spans = []
    for size, total in zip(kernel.shape[-2:], domain, strict=True):
        spans.append((size - 1 - size // 2, total - size // 2))
    (top, bottom), (left, right) = spans
    return _Window(slice(top, bottom), slice(left, right), (bottom - top, right - left), domain)
