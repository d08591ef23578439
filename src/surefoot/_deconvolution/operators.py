"""Blur as a linear operator: periodic, valid (unknown border) and spatially varying.

An operator maps latent images z (..., H, W) to observed images y (..., h, w); leading dimensions are batch and colour. With
kernel k, centred at (kh//2, kw//2), y = k ⊗ z is a true convolution. All products go through the FFT. Every operator knows a
Fourier multiplier M ≥ 0 with BᵀB ⪯ M on the latent grid (equal for periodic blur): what makes the z-step of the linearised ADMM
exact for all of them.

All of this holds for stacks (..., D, H, W) with kernels (..., kd, kh, kw), too: the length of the shape that an operator is made
for says which of the two it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from .._core import brief
from .._core.validate import as_tensor, finite

SUM_TOLERANCE = 1e-3
"""A kernel's sum may differ from 1 by this much: more changes the brightness of the picture."""
Shape = tuple[int, ...]
"""(rows, columns) of a picture, or (planes, rows, columns) of a stack."""
AXES = {2: "rows, columns", 3: "planes, rows, columns"}


def normalised_kernel(kernel: Any, dimensions: int = 2) -> Tensor:
    """A blur kernel divided by its sum, float64 unless it is float32; shape (..., kh, kw), or (..., kd, kh, kw) of 3 dimensions.

    Args:
        kernel: an array or tensor of floats, not negative.
        dimensions: 2 of pictures, 3 of stacks.

    Raises:
        TypeError: not an array of floats.
        ValueError: too few dimensions, empty, on the meta device, NaN or infinite, negative entries, or all zero.

    Example:
        >>> sf.deconvolution.normalised_kernel(torch.tensor([[1.0, 2.0, 1.0]]))
        tensor([[0.2500, 0.5000, 0.2500]])
    """
    axes = last_axes(dimensions)
    scaled = _kernel(kernel, dimensions)
    scaled = scaled / scaled.amax(dim=axes, keepdim=True)  # the sum of huge entries overflows
    return scaled / scaled.sum(dim=axes, keepdim=True)


def last_axes(count: int) -> tuple[int, ...]:
    """The axes of pictures (2) or stacks (3), behind those of the batch."""
    return tuple(range(-count, 0))


def _kernel(kernel: Any, dimensions: int) -> Tensor:
    """A tensor (..., kh, kw) or (..., kd, kh, kw), finite, not negative, not zero."""
    tensor = held("kernel", as_tensor("kernel", kernel))
    if tensor.ndim < dimensions or tensor.numel() == 0:
        raise ValueError(f"kernel has shape {tuple(tensor.shape)}; pass a non-empty array (..., {AXES[dimensions]})")
    finite("kernel", tensor)
    least = float(tensor.min())
    if least < 0.0:
        raise ValueError(
            f"kernel has negative entries (the least is {least:.3g}); a blur has none: use kernel.clamp(min=0), then "
            "normalised_kernel"
        )
    if not bool((tensor.sum(dim=last_axes(dimensions)) > 0.0).all()):
        raise ValueError("kernel is zero everywhere; pass the point spread function of the blur")
    return tensor


def _unit_kernel(kernel: Any, dimensions: int) -> Tensor:
    """A kernel whose sum is 1."""
    tensor = _kernel(kernel, dimensions)
    sums = tensor.double().sum(dim=last_axes(dimensions))
    worst = float(sums.flatten()[(sums - 1.0).abs().argmax()])
    if not abs(worst - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"kernel sums to {worst:.6g} instead of 1; divide it by its sum: normalised_kernel(kernel)")
    return tensor


def _shape(name: str, shape: tuple[int, ...]) -> Shape:
    if len(shape) not in AXES or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(
            f"{name} is {shape!r}; pass (rows, columns) of pictures or (planes, rows, columns) of stacks, positive integers"
        )
    return tuple(shape)


def held(name: str, array: Tensor) -> Tensor:
    """``array``; ``ValueError`` where it has no values."""
    if array.is_meta:
        raise ValueError(f"{name} is on the meta device, which holds no values; pass a tensor on the CPU or a GPU")
    return array


def image_norm(image: Tensor, axes: tuple[int, ...] = (-2, -1)) -> Tensor:
    """The 2-norm of each image (..., H, W), or of each stack for the last three axes."""
    return torch.linalg.vector_norm(image, dim=axes)


def fft_error(dtype: torch.dtype, shape: Shape) -> float:
    """Relative error, in the 2-norm, granted to a Fourier transform of that size.

    8 units in the last place for each of log2(pixels) + 4 stages. A mixed-radix transform with accurate twiddle factors needs
    about 4 (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 24.2).
    """
    return 8.0 * torch.finfo(dtype).eps * (math.log2(math.prod(shape)) + 4.0)


class Blur(ABC):
    """A linear blur B of pictures (..., H, W), or of stacks (..., D, H, W).

    Attributes:
        domain: (H, W) or (D, H, W), the size of latent images.
        range: (h, w) or (d, h, w), the size of observed images.
        kernel: what it was made of; its dtype and device are those of all images.
        majorizer: (..., H, W//2+1), the multiplier M on the half-space of ``torch.fft.rfftn`` with BᵀB ⪯ M.
        exact_majorizer: whether BᵀB = M, so that ``solve`` inverts αBᵀB + I.
        norm_bound: rigorous upper bound of ‖B‖ over the whole batch, for the stored kernel in exact arithmetic.

    Example:
        >>> blur = sf.deconvolution.ValidBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> isinstance(blur, sf.deconvolution.Blur), blur.domain, blur.range
        (True, (16, 16), (14, 14))
        >>> z, y = torch.rand(16, 16).double(), torch.rand(14, 14).double()
        >>> torch.isclose((blur.forward(z) * y).sum(), (z * blur.adjoint(y)).sum()).item()
        True
    """

    domain: Shape
    range: Shape
    kernel: Tensor
    majorizer: Tensor
    exact_majorizer: bool = False
    norm_bound: float

    def __repr__(self) -> str:
        sizes = ("x".join(map(str, shape)) for shape in (self.domain, self.range))
        return f"{type(self).__name__}(kernel {brief.size(self.kernel)}, {' -> '.join(sizes)})"

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of a picture or a stack: (-2, -1) or (-3, -2, -1)."""
        return last_axes(len(self.domain))

    @abstractmethod
    def from_spectrum(self, transform: Tensor) -> Tensor:
        """Bz (..., h, w) of the transform ``torch.fft.rfftn`` (..., H, W//2+1) of z."""

    @abstractmethod
    def to_spectrum(self, y: Tensor) -> Tensor:
        """The transform (..., H, W//2+1) of Bᵀy."""

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
        return self.from_spectrum(torch.fft.rfftn(z, dim=self.axes))

    def adjoint(self, y: Tensor) -> Tensor:
        """Bᵀy (..., H, W) of y (..., h, w); raises as ``forward``."""
        self._check("y", y, self.range)
        return torch.fft.irfftn(self.to_spectrum(y), s=self.domain, dim=self.axes)

    def gram(self, z: Tensor) -> Tensor:
        """BᵀBz."""
        return self.adjoint(self.forward(z))

    def solve(self, right: Tensor, alpha: float | Tensor) -> Tensor:
        """(αM + I)⁻¹ ``right`` for right (..., H, W); α > 0, a number or (..., 1, 1)."""
        return self.filtered(1.0 / (alpha * self.majorizer + 1.0), right)

    def majorized(self, z: Tensor) -> Tensor:
        """Mz."""
        return self.filtered(self.majorizer, z)

    def filtered(self, multiplier: Tensor, z: Tensor) -> Tensor:
        """A Fourier multiplier (..., H, W//2+1) applied to latent images z (..., H, W)."""
        return multiply(multiplier, z, len(self.domain))

    def forward_error(self, scale: Tensor) -> Tensor:
        """Bound of the 2-norm of the rounding error of ``forward`` and ``adjoint`` for an argument of 2-norm ``scale``."""
        return 4.0 * fft_error(self.kernel.dtype, self.domain) * self.norm_bound * scale

    def _check(self, name: str, image: Tensor, shape: Shape) -> None:
        if image.shape[-len(shape) :] != shape:
            raise ValueError(f"{name} has shape {tuple(image.shape)}; this blur takes {described(shape)}")
        if image.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(image.shape)}, so it holds no image; pass at least one")
        if image.dtype != self.kernel.dtype or image.device != self.kernel.device:
            raise TypeError(
                f"{name} is {image.dtype} on {image.device}, the kernel {self.kernel.dtype} on {self.kernel.device}; "
                f"use blur.to(...) or {name}.to(...)"
            )


def of_pictures(blur: Blur, what: str) -> None:
    """Raise ``ValueError`` for a blur of stacks, where ``what`` knows pictures alone."""
    if len(blur.domain) != 2:
        raise ValueError(
            f"{what} is for pictures (rows, columns), and this blur is for stacks {described(blur.domain)}; those are restored "
            "by richardson_lucy, poisson_tv and the Wiener filters"
        )


def described(shape: Shape) -> str:
    """(..., H, W) with numbers, as errors say it."""
    return f"(..., {', '.join(map(str, shape))})"


def multiply(multiplier: Tensor, image: Tensor, dimensions: int = 2) -> Tensor:
    """A Fourier multiplier (..., H, W//2+1) applied to images (..., H, W); to stacks where ``dimensions`` is 3."""
    axes = last_axes(dimensions)
    return torch.fft.irfftn(multiplier * torch.fft.rfftn(image, dim=axes), s=image.shape[-dimensions:], dim=axes)


def spectrum(kernel: Tensor, shape: Shape) -> Tensor:
    """The transfer function (..., H, W//2+1) of a kernel (..., kh, kw) centred at (kh//2, kw//2); likewise of three axes."""
    axes = last_axes(len(shape))
    sizes = kernel.shape[-len(shape) :]
    embedded = kernel.new_zeros(*kernel.shape[: -len(shape)], *shape)
    embedded[(..., *map(slice, sizes))] = kernel
    return torch.fft.rfftn(embedded.roll([-(size // 2) for size in sizes], dims=axes), dim=axes)


def _sum_bound(kernel: Tensor, dimensions: int) -> Tensor:
    """Upper bounds (...,) of the sums of kernels, which bound the norm of the convolution (Young)."""
    entries = math.prod(kernel.shape[-dimensions:])
    return kernel.double().sum(dim=last_axes(dimensions)) * (1.0 + (entries + 2) * 2.0**-52)


def _check_fits(kernel: Tensor, shape: Shape, what: str) -> None:
    sizes = kernel.shape[-len(shape) :]
    if any(size > total for size, total in zip(sizes, shape, strict=True)):
        raise ValueError(
            f"kernel ({_times(sizes)}) is larger than {what} ({_times(shape)}); crop the kernel's zero margin, or "
            "pass a larger image"
        )


def _times(shape: Shape) -> str:
    return " x ".join(map(str, shape))


class PeriodicBlur(Blur):
    """Circular convolution: the picture continues on its opposite side. (αBᵀB + I)⁻¹ is exact by FFT.

    Args:
        kernel: (..., kh, kw), not negative, sum 1; leading dimensions broadcast against those of the images. Of stacks
            (..., kd, kh, kw).
        shape: (H, W) of pictures, (D, H, W) of stacks.

    Raises:
        TypeError, ValueError: see ``normalised_kernel``; a sum other than 1; a kernel larger than the image.

    Example:
        >>> blur = sf.deconvolution.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> right = torch.rand(16, 16).double()
        >>> z = blur.solve(right, alpha=10.0)  # (10 BᵀB + I)z = right by two transforms
        >>> torch.allclose(10.0 * blur.gram(z) + z, right), blur.exact_majorizer
        (True, True)
    """

    exact_majorizer = True

    def __init__(self, kernel: Any, shape: tuple[int, ...]) -> None:
        self.domain = self.range = _shape("shape", shape)
        self.kernel = _unit_kernel(kernel, len(self.domain))
        _check_fits(self.kernel, self.domain, "the image")
        self.spectrum = spectrum(self.kernel, self.domain)
        self.majorizer = self.spectrum.real.square() + self.spectrum.imag.square()
        self.norm_bound = float(_sum_bound(self.kernel, len(self.domain)).max())

    def from_spectrum(self, transform: Tensor) -> Tensor:
        return torch.fft.irfftn(self.spectrum * transform, s=self.domain, dim=self.axes)

    def to_spectrum(self, y: Tensor) -> Tensor:
        return self.spectrum.conj() * torch.fft.rfftn(y, dim=self.axes)

    def crop(self, z: Tensor) -> Tensor:
        return z

    def to(self, target: torch.dtype | torch.device | str) -> PeriodicBlur:
        return PeriodicBlur(self.kernel.to(target), self.domain)


class ValidBlur(Blur):
    """Convolution where the kernel lies inside the latent image: the border beyond the observed picture is unknown.

    y (H-kh+1, W-kw+1) says nothing about what would have to be made up, so that a restoration does not ring at the borders.

    Args:
        kernel: as for ``PeriodicBlur``.
        shape: (H, W) or (D, H, W) of latent images; ``ValidBlur.observing`` takes the observed size instead.

    Raises:
        TypeError, ValueError: as ``PeriodicBlur``.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> photo = torch.rand(16, 16)
        >>> blur = dc.ValidBlur.observing(torch.full((5, 3), 1 / 15), photo.shape)
        >>> blur.domain, blur.crop(torch.rand(blur.domain)).shape  # with its border, without
        ((20, 18), torch.Size([16, 16]))
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
        """The blur whose observed images have this ``shape`` (h, w) or (d, h, w).

        Raises:
            TypeError, ValueError: as the constructor; a kernel larger than the observed image.
        """
        shape = _shape("shape", shape)
        kernel = _unit_kernel(kernel, len(shape))
        _check_fits(kernel, shape, "the image")
        return cls(kernel, _grown(shape, kernel))

    def from_spectrum(self, transform: Tensor) -> Tensor:
        return self._window.crop(self._periodic.from_spectrum(transform))

    def to_spectrum(self, y: Tensor) -> Tensor:
        return self._periodic.to_spectrum(self._window.embed(y))

    def crop(self, z: Tensor) -> Tensor:
        return self._window.crop(z)

    def to(self, target: torch.dtype | torch.device | str) -> ValidBlur:
        return ValidBlur(self.kernel.to(target), self.domain)


class SpatiallyVaryingBlur(Blur):
    """y = Σ_j w_j ⊙ (k_j ⊗ z): kernels interpolated over the picture by weights that sum to 1 at each pixel.

    Args:
        kernels: (J, kh, kw), each not negative with sum 1; of stacks (J, kd, kh, kw).
        weights: (J, h, w) on the observed pixels, not negative, summing to 1 over J; of stacks (J, d, h, w).
        boundary: ``"valid"`` (latent images are larger by the kernel's size less 1) or ``"periodic"``.

    Raises:
        TypeError, ValueError: as for ``PeriodicBlur``; weights that do not fit or do not sum to 1.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> kernels = torch.zeros(2, 3, 3).double()
        >>> kernels[0, 1, 1], kernels[1] = 1.0, 1 / 9  # sharp on the left, blurred on the right
        >>> right = torch.linspace(0.0, 1.0, 16).double().expand(16, 16)
        >>> weights = torch.stack([1.0 - right, right])
        >>> blur = dc.SpatiallyVaryingBlur(kernels, weights, boundary="periodic")
        >>> z = torch.rand(16, 16).double()
        >>> y = blur.forward(z)
        >>> torch.allclose(y[:, 0], z[:, 0]), torch.allclose(y[:, -1], z[:, -1])
        (True, False)
    """

    def __init__(self, kernels: Any, weights: Any, boundary: str = "valid") -> None:
        self.weights = held("weights", as_tensor("weights", weights))
        observed = _shape("weights", tuple(self.weights.shape[1:]))
        dimensions = len(observed)
        self.kernel = _unit_kernel(kernels, dimensions)
        if self.kernel.ndim != dimensions + 1 or self.kernel.shape[0] != self.weights.shape[0]:
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
        _check_fits(self.kernel, observed, "the image")
        self._periodic = PeriodicBlur(
            self.kernel, observed if boundary == "periodic" else _grown(observed, self.kernel)
        )
        self.domain, self.range = self._periodic.domain, observed
        self._window = _Window(tuple(slice(None) for _ in observed), observed, observed)
        if boundary == "valid":
            self._window = _window(self.kernel, self.domain)
        # Jensen: ‖Bz‖² ≤ Σ_p Σ_j w_j(p) s(p) |k_j ⊗ z|²(p) with s = Σ_j w_j, and the largest w_j s of each kernel moves out
        largest = (self.weights * self.weights.sum(0)).amax(dim=self.axes, keepdim=True)
        slack = 1.0 + (len(self.kernel) + 8.0) * torch.finfo(self.kernel.dtype).eps
        self.scales = (largest * slack).flatten()
        self.majorizer = (self._each(self.scales) * self._periodic.majorizer).sum(0)
        self.norm_bound = self._bound()

    @classmethod
    def from_grid(cls, kernels: Any, shape: tuple[int, ...], boundary: str = "valid") -> SpatiallyVaryingBlur:
        """The blur whose kernels are known at the centres of R x C equal parts of the observed picture.

        Between the centres the weights are bilinear, beyond the outermost ones constant (Nagy & O'Leary, SIAM J. Sci. Comput.
        19(4), 1998, interpolate in this way).

        Args:
            kernels: (R, C, kh, kw), each not negative with sum 1; of stacks (P, R, C, kd, kh, kw).
            shape: (h, w) or (d, h, w), that of observed images.
            boundary: as for the constructor.

        Raises:
            TypeError, ValueError: as the constructor; kernels that are no such grid.
        """
        shape = _shape("shape", shape)
        array = held("kernels", as_tensor("kernels", kernels))
        if array.ndim != 2 * len(shape):
            names = "(R, C, kh, kw)" if len(shape) == 2 else "(P, R, C, kd, kh, kw)"
            raise ValueError(f"kernels have shape {tuple(array.shape)}; pass a grid of them, {names}")
        weights = array.new_ones(())
        for count, size in zip(array.shape, shape, strict=False):
            along = interpolation(count, size, array)
            weights = torch.einsum("...,rp->...rp", weights, along)
        # (R, h, C, w) -> (R, C, h, w)
        order = [*range(0, weights.ndim, 2), *range(1, weights.ndim, 2)]
        weights = weights.permute(order).reshape(-1, *shape)
        return cls(array.flatten(0, len(shape) - 1), weights, boundary)

    def _bound(self) -> float:
        """‖B‖² ≤ ‖B‖₁‖B‖_∞, the largest column and row sums of a matrix without negative entries."""
        sums, weights = _sum_bound(self.kernel, len(self.domain)), self.weights.double()
        rows = float((weights * self._each(sums)).sum(0).max())
        spread = PeriodicBlur(self.kernel.double(), self.domain).adjoint(self._window.embed(weights)).sum(0)
        error = 4.0 * fft_error(torch.float64, self.domain) * float((image_norm(weights, self.axes) * sums).sum())
        return math.sqrt(rows * (float(spread.max()) + error)) * (1.0 + (len(sums) + 4) * 2.0**-52)

    def _each(self, numbers: Tensor) -> Tensor:
        """One number for each kernel (J,), to multiply images (J, ...) with."""
        return numbers.reshape(-1, *(1 for _ in self.range))

    def from_spectrum(self, transform: Tensor) -> Tensor:
        axis = -len(self.domain) - 1
        blurred = self._periodic.from_spectrum(transform.unsqueeze(axis))
        return (self.weights * self._window.crop(blurred)).sum(axis)

    def to_spectrum(self, y: Tensor) -> Tensor:
        axis = -len(self.domain) - 1
        return self._periodic.to_spectrum(self._window.embed(self.weights * y.unsqueeze(axis))).sum(axis)

    def crop(self, z: Tensor) -> Tensor:
        return self._window.crop(z)

    def to(self, target: torch.dtype | torch.device | str) -> SpatiallyVaryingBlur:
        return SpatiallyVaryingBlur(self.kernel.to(target), self.weights.to(target), self.boundary)


def interpolation(count: int, size: int, like: Tensor) -> Tensor:
    """Weights (count, size) of values at the centres of ``count`` equal parts of ``size`` pixels: linear, and they sum to 1."""
    pixels = torch.arange(size, dtype=like.dtype, device=like.device)
    position = ((pixels + 0.5) * count / size - 0.5).clamp(0.0, count - 1.0)
    parts = torch.arange(count, dtype=like.dtype, device=like.device)
    return (1.0 - (position - parts[:, None]).abs()).clamp(min=0.0)


class _Window:
    """A rectangle or a block of a larger grid."""

    def __init__(self, spans: tuple[slice, ...], shape: Shape, domain: Shape) -> None:
        self.spans, self.shape, self.domain = spans, shape, domain

    def crop(self, z: Tensor) -> Tensor:
        return z[(..., *self.spans)]

    def embed(self, y: Tensor) -> Tensor:
        """The adjoint of ``crop``: zeros around y."""
        z = y.new_zeros(*y.shape[: -len(self.domain)], *self.domain)
        z[(..., *self.spans)] = y
        return z


def _grown(shape: Shape, kernel: Tensor) -> Shape:
    """The latent size behind an observed one."""
    return tuple(total + size - 1 for total, size in zip(shape, kernel.shape[-len(shape) :], strict=True))


def _window(kernel: Tensor, domain: Shape) -> _Window:
    """Where a circular convolution with this kernel does not wrap around."""
    spans = [
        (size - 1 - size // 2, total - size // 2)
        for size, total in zip(kernel.shape[-len(domain) :], domain, strict=True)
    ]
    return _Window(tuple(slice(*span) for span in spans), tuple(end - start for start, end in spans), domain)
